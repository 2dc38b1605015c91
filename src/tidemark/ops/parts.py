"""The state of each part of a server, as health shows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tidemark.errors import TidemarkError

STATES: Final = ("ready", "degraded", "unavailable", "disabled")
UNMEASURED: Final = "how far it is behind cannot be said: the ledger does not answer"
_WORST_FIRST: Final = ("unavailable", "degraded", "ready", "disabled")


class Part(msgspec.Struct, rename="camel", omit_defaults=True):
    """The state of one part: `ready`, `degraded`, `unavailable` or `disabled`, and why."""

    state: str
    reason: str = ""
    last_sequence: str | None = None
    received_at: str | None = None
    lag_events: str | None = None
    lag_seconds: float | None = None
    told_at: str | None = None

    @property
    def is_up(self) -> bool:
        """Whether it does what it is there for, as metrics have it."""
        return self.state == "ready"


def worst_state(parts: Iterable[Part]) -> str:
    """Of all these parts; one that is disabled is no worse than one that is ready."""
    states = {part.state for part in parts}
    return next(state for state in _WORST_FIRST if state in states)


def reason_of(error: TidemarkError) -> str:
    """What is wrong and what to do about it."""
    return f"{error.message}. {error.hint}" if error.hint else error.message
