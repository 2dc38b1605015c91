"""When to try again, and for how long. Pure: readings of the clock and of chance are handed in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with jitter, for a limited time."""

    retry_for_us: int
    first_delay_us: int = 100_000
    max_delay_us: int = 5_000_000

    def delay_us(self, failure_count: int, chance: float) -> int:
        """The pause after so many failures in a row: between half and all of the doubled delay."""
        doubled = self.first_delay_us << min(failure_count - 1, 32)
        return int(min(doubled, self.max_delay_us) * (0.5 + chance / 2))


@dataclass(frozen=True, slots=True)
class Outage:
    """A run of failures that no answer has ended. Every lane to the server has its own."""

    since_us: int
    failure_count: int
    next_attempt_us: int


def after_failure(
    outage: Outage | None,
    *,
    now_us: int,
    taken_at_us: int,
    retry_after_us: int | None,
    policy: RetryPolicy,
    chance: float,
) -> tuple[Outage, bool]:
    """The outage after one more failed attempt, and whether the same events may be tried again.

    It is the outage that is timed, not the wait of the events: those that queued for long behind
    others, while the server was taking them, still have all of their time. The last attempt is made
    at the deadline itself rather than left out because the next pause would pass it. A
    `Retry-After` beyond the deadline ends the attempts at once; the next batch then looks again
    after an ordinary pause, since its own time may be longer.
    """
    since_us = now_us if outage is None else outage.since_us
    failure_count = 1 if outage is None else outage.failure_count + 1
    deadline_us = max(since_us, taken_at_us) + policy.retry_for_us
    asked_us = now_us + (retry_after_us or 0)
    next_attempt_us = now_us + policy.delay_us(failure_count, chance)
    may_retry = now_us < deadline_us and asked_us <= deadline_us
    if may_retry:
        # The jitter spreads those that were all told the same number of seconds.
        jitter_us = int(chance * policy.first_delay_us)
        next_attempt_us = min(max(next_attempt_us, asked_us + jitter_us), deadline_us)
    return Outage(since_us, failure_count, next_attempt_us), may_retry


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a caller waits for buffered events: for a time, or while there is progress."""

    started_us: int
    timeout_us: int | None = None
    stall_us: int | None = None

    def remaining_us(self, now_us: int, progress_us: int) -> int | None:
        """The time left, with the last progress made then. None is for ever, 0 is none."""
        if self.timeout_us is not None:
            deadline_us = self.started_us + self.timeout_us
        elif self.stall_us is not None:
            deadline_us = max(self.started_us, progress_us) + self.stall_us
        else:
            return None
        return max(0, deadline_us - now_us)
