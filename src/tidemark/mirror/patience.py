"""How long the mirror waits for brokers that take nothing more."""

from __future__ import annotations

from time import monotonic
from typing import Final

from tidemark.mirror.errors import MirrorUnavailable
from tidemark.mirror.kafka import Trouble

STUCK_AFTER_S: Final = 30.0
_IN_TROUBLE_S: Final = 5.0


class Patience:
    """It begins anew with whatever they take: a large commit may take long, and brokers that are
    slow are not away."""

    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble
        self._longest_s = STUCK_AFTER_S
        self._since = monotonic()
        self._left: int | None = None

    def shorten(self) -> None:
        """Something has failed, and what is still to come only says more of it."""
        self._longest_s = min(self._longest_s, _IN_TROUBLE_S)

    def is_over(self, left: int) -> bool:
        """`left` is how many messages are still to be taken."""
        if self._left is None or left < self._left:
            self._left, self._since = left, monotonic()
            return False
        # Who is told that the brokers are down says so sooner than who is told nothing.
        longest_s = min(self._longest_s, _IN_TROUBLE_S) if self._trouble.said else self._longest_s
        return monotonic() - self._since > longest_s

    def lost(self) -> MirrorUnavailable:
        return MirrorUnavailable(
            f"the brokers did not answer in time. {self._trouble.said}".strip(),
            hint="Look at the brokers in mirror.bootstrap_servers; the mirror goes on by itself.",
            field="mirror.bootstrap_servers",
        )
