"""What keeps the pipeline from reading on, and is waited for.

Nothing that the mirror wrote is passed over. What others wrote among it is, and is told in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidemark.errors import TidemarkError
from tidemark.mirror.errors import MirrorRefused, MirrorUnavailable


class KafkaUnavailable(TidemarkError):
    """The brokers are away, or have not finished what they began."""

    code = "kafka_unavailable"


class KafkaDiffers(TidemarkError):
    """The topics do not hold what the mirror wrote to them."""

    code = "kafka_differs"


@contextmanager
def brokers_asked() -> Iterator[None]:
    """Around what asks them in the way of the mirror."""
    try:
        yield
    except MirrorUnavailable as error:
        raise KafkaUnavailable(
            error.message,
            hint="Look at the brokers in mirror.bootstrap_servers and at the topics; the pipeline"
            " goes on by itself.",
        ) from error
    except MirrorRefused as error:
        raise KafkaDiffers(
            error.message,
            hint="Have the topics mirrored anew (docs/howto/kafka.md), or set pipeline.source to"
            " ledger.",
        ) from error
