"""What things may be called, as patterns that the schema for editors shows as well."""

from __future__ import annotations

from typing import Final

# A stream's name may also be a CloudEvents type, such as `com.example.order-placed`.
STREAM_NAME_PATTERN: Final = "^[A-Za-z_][A-Za-z0-9_.-]{0,63}$"
FIELD_NAME_PATTERN: Final = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"
# PostgreSQL cuts names after 63 bytes. A view's name stands in those of its tables and indexes, and
# `__` sets apart the views that are kept for the pipeline itself.
VIEW_NAME_PATTERN: Final = "^(?!.*__)[A-Za-z_][A-Za-z0-9_]{0,46}$"
COLUMN_NAME_PATTERN: Final = "^[A-Za-z_][A-Za-z0-9_]{0,62}$"
CLICKHOUSE_NAME_PATTERN: Final = "^[A-Za-z_][A-Za-z0-9_]{0,62}$"
EVENTTIME_TYPE_PATTERN: Final = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"
# The name stands before a colon in what event ids are made of.
TRIGGER_NAME_PATTERN: Final = "^[A-Za-z0-9_-]{1,64}$"
SPARK_OPTION_PATTERN: Final = r"^spark\..+$"
KAFKA_OPTION_PATTERN: Final = "^[a-z][A-Za-z0-9._]*$"
TOPIC_PREFIX_PATTERN: Final = "^[A-Za-z0-9._-]{0,64}$"

BUILT_IN_EVENTTIME_TYPES: Final = {
    "unixtimestamp_s": "Seconds since 1970.",
    "unixtimestamp_ms": "Milliseconds since 1970.",
    "unixtimestamp_us": "Microseconds since 1970.",
    "unixtimestamp_ns": "Nanoseconds since 1970.",
    "iso8601": "A time with an offset or `Z`, such as `2025-01-01T00:00:00Z`.",
}

# What Tidemark records by itself, such as swaps, is in streams of these names.
OWN_STREAMS: Final = "tidemark."
