"""What keeps the pipeline from reading on. All of it is waited for, and nothing is passed over."""

from __future__ import annotations

from tidemark.errors import TidemarkError


class KafkaUnavailable(TidemarkError):
    """The brokers are away, or have not finished what they began."""

    code = "kafka_unavailable"


class KafkaDiffers(TidemarkError):
    """The topics do not hold what the mirror wrote to them."""

    code = "kafka_differs"
