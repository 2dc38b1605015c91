"""What must fit together in windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tidemark.config.durations import parse_duration
from tidemark.config.problems import shorten
from tidemark.config.raw_settings import Finding, Rule, fields_of, sections, texts_of
from tidemark.config.suggestions import did_you_mean

# The columns of a window's rows and of its late events, in lower case as all names are compared.
WINDOW_COLUMNS: Final = frozenset(
    {
        *("tenant_id", "window_start", "window_end", "value", "is_closed"),
        *("agg_sum", "agg_max", "agg_min", "agg_count", "agg_last"),
        *("last_ts", "last_sequence", "distinct_count", "row_key", "row_received_at"),
        *("ingress_sequence", "part", "event_ts", "amount", "reason"),
        *("idempotency_key", "original_key"),
    }
)
MAX_OVERLAP: Final = 1_000


def late_view(name: str) -> str:
    """The view that shows the late events of a window."""
    return f"{name}_late"


def groups_of_windows_are_fields(raw: dict[str, Any]) -> Iterator[Finding]:
    streams = dict(sections(raw, "streams"))
    for name, window in sections(raw, "windows"):
        stream = window.get("stream")
        if not isinstance(stream, str) or stream not in streams:
            continue
        fields = dict(fields_of(streams[stream]))
        for index, field in texts_of(window.get("group_by")):
            place = ("windows", name, "group_by", index)
            if field not in fields:
                message = f"expected a field of the stream, found {shorten(field)}"
                yield place, message, did_you_mean(field, fields)
            elif field.lower() in WINDOW_COLUMNS:
                message = f"expected another field, found {shorten(field)}"
                yield place, message, "Rows of windows have a column of this name already."
            elif fields[field].get("type") == "json":
                message = f"expected a field of a plain type, found {shorten(field)} of type json"
                yield place, message, "Name fields that hold a single value."


def windows_have_a_value(raw: dict[str, Any]) -> Iterator[Finding]:
    for name, window in sections(raw, "windows"):
        aggregate = window.get("aggregate", "sum")
        if aggregate != "count" and "value" not in window:
            message = f"expected a value to take the {aggregate} of, found none"
            hint = "Name a field, such as `value: quantity`, or say `aggregate: count`."
            yield ("windows", name), message, hint


def refiring_has_an_end(raw: dict[str, Any]) -> Iterator[Finding]:
    for name, window in sections(raw, "windows"):
        refires = window.get("late") == "refire"
        if refires and "refireFor" not in window:
            message = "expected how long late events are counted, found no `refireFor`"
            yield ("windows", name), message, "For example `refireFor: 1h`."
        elif not refires and "refireFor" in window:
            message = "expected this only with `late: refire`"
            yield ("windows", name, "refireFor"), message, "Remove it, or say `late: refire`."


def windows_have_a_length(raw: dict[str, Any]) -> Iterator[Finding]:
    for name, window in sections(raw, "windows"):
        size, every = (_duration(window.get(key)) for key in ("size", "every"))
        for key, length in (("size", size), ("every", every)):
            if length == 0:
                message = f"expected a duration longer than nothing, found {window[key]}"
                yield ("windows", name, key), message, "For example `1m`."
        if not size or not every:
            continue
        if every > size:
            message = f"expected no more than the size, {window['size']}, found {window['every']}"
            hint = "Events between two windows would be in neither."
            yield ("windows", name, "every"), message, hint
        elif -(-size // every) > MAX_OVERLAP:
            message = f"expected an event to be in at most {MAX_OVERLAP} windows"
            hint = f"With a size of {window['size']} and every {window['every']} it is in more."
            yield ("windows", name, "every"), message, hint


def _duration(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return parse_duration(value) if isinstance(value, str) else None
    except ValueError:
        return None


WINDOW_RULES: Final[tuple[Rule, ...]] = (
    groups_of_windows_are_fields,
    windows_have_a_value,
    refiring_has_an_end,
    windows_have_a_length,
)
