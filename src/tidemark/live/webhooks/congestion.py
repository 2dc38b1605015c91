"""How many attempts one host may have at a time: it grows with quick answers, shrinks without."""

from __future__ import annotations

QUICK_S = 5.0


class HostWindow:
    """Opens by one for each quick answer, up to a limit; halves for each attempt that got none.

    A host that answers nothing is soon down to one attempt at a time, a probe, and the first answer
    opens it again. Slow answers leave it as it is: they hold their place among all attempts long.
    """

    def __init__(self, first: int, limit: int) -> None:
        self._first = first
        self._limit = limit
        self.size = first

    def answered(self, seconds: float) -> None:
        if seconds < QUICK_S or self.is_struggling:
            self.size = min(self.size + 1, self._limit)

    def congested(self) -> None:
        self.size = max(self.size // 2, 1)

    @property
    def is_struggling(self) -> bool:
        """Whether it has less room than a host of which nothing is known."""
        return self.size < self._first
