"""What delivery counts, for whoever shows it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

LATENCY_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0)


@dataclass(slots=True)
class Latency:
    """How long attempts took: a count for each bound, one for what was longer, and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def copy(self) -> Latency:
        """As it is now."""
        return Latency(list(self.counts), self.sum_s)


@dataclass(slots=True)
class Counters:
    """Since the start: `delivered`, `failed`, `dead` count attempts by what came of them.

    An attempt that killed its event is counted as `dead`, not as `failed` too. `released` counts
    claims given back unsent. `held` and `in_flight` are of this moment.
    """

    delivered: int = 0
    failed: int = 0
    dead: int = 0
    released: int = 0
    triggers_disabled: int = 0
    held: int = 0
    in_flight: int = 0
    latency: Latency = field(default_factory=Latency)

    @property
    def attempts(self) -> int:
        return self.delivered + self.failed + self.dead
