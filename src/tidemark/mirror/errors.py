"""What keeps the mirror from going on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidemark.errors import ConfigError, TidemarkError


class MirrorUnavailable(TidemarkError):
    """It goes on by itself once the brokers can do again what they were asked to."""

    code = "mirror_unavailable"


class NotTaken(MirrorUnavailable):
    """A message was not taken, or one that was sent with it. Commits before may well be."""


class TimedOut(MirrorUnavailable):
    """Brokers have given up a transaction, because it took too long or another took over."""


class MirrorRefused(TidemarkError):
    """What is in Kafka cannot be gone on from: a person has to look."""

    code = "mirror_refused"


class MirrorFenced(TidemarkError):
    """Another mirror of this ledger has taken over."""

    code = "mirror_fenced"


class Stopped(Exception):
    """Somebody wants an end in the middle of a transaction. It is given up, or already committed
    and found by whoever comes next."""


@contextmanager
def client_needed() -> Iterator[None]:
    """Around what loads Kafka's client, which is there only for those who have asked for it."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "confluent_kafka":
            raise
        is_there = not isinstance(error, ModuleNotFoundError)
        raise ConfigError(
            f"the client of Kafka cannot be loaded: {error}"
            if is_there
            else "the client of Kafka is not installed",
            hint="Install Tidemark's extra `kafka` (pip install '.[kafka]' in a checkout).",
            field="mirror",
        ) from error
