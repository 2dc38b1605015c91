"""What an answer means, and when to try again. Pure: the clock is handed in, chance is computed."""

from __future__ import annotations

import hashlib
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import TypeAlias

import msgspec

from tidemark.live.webhooks.outbox import Delivery, Settlement

SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US
DAY_US = 24 * HOUR_US

TOO_MANY_REQUESTS = 429
SERVICE_UNAVAILABLE = 503
GONE = 410
MAX_RETRY_AFTER_DIGITS = 9


class Answer(msgspec.Struct, frozen=True):
    """The receiver answered. `excerpt` is the beginning of what it said, for people to read."""

    status: int
    excerpt: str = ""
    retry_after_us: int | None = None


class NoAnswer(msgspec.Struct, frozen=True):
    """There was no answer, or nothing that is HTTP. `error` says why."""

    error: str


Result: TypeAlias = Answer | NoAnswer


class Outcome(Enum):
    """What is to happen to the event."""

    DELIVERED = "delivered"
    RETRY = "retry"
    GONE = "gone"


class Verdict(msgspec.Struct, frozen=True):
    """An outcome, why, and how long the receiver asked to be left alone."""

    outcome: Outcome
    error: str | None = None
    retry_after_us: int | None = None


def judge(result: Result) -> Verdict:
    """Only 2xx is success, and only 410 is final; everything else may have passed by next time.

    A redirect is not followed: it could lead where the guard of targets has not looked, and a
    receiver that has moved shall be told so in its trigger.
    """
    if isinstance(result, NoAnswer):
        return Verdict(Outcome.RETRY, result.error)
    status = result.status
    if 200 <= status < 300:
        return Verdict(Outcome.DELIVERED)
    said = f": {result.excerpt}" if result.excerpt else ""
    if status == GONE:
        return Verdict(Outcome.GONE, f"answered 410, which disables the trigger{said}")
    if 300 <= status < 400:
        return Verdict(Outcome.RETRY, f"answered {status}, and redirects are not followed{said}")
    asks = status in (TOO_MANY_REQUESTS, SERVICE_UNAVAILABLE)
    return Verdict(
        Outcome.RETRY, f"answered {status}{said}", result.retry_after_us if asks else None
    )


def is_congested(result: Result) -> bool:
    """Whether the host, and not only this request, is in trouble."""
    if isinstance(result, NoAnswer):
        return True
    return result.status in (TOO_MANY_REQUESTS, SERVICE_UNAVAILABLE)


class RetrySchedule(msgspec.Struct, frozen=True):
    """Exponential backoff with jitter, counted from the first attempt."""

    first_delay_us: int = 5 * SECOND_US
    max_delay_us: int = 6 * HOUR_US
    max_retry_after_us: int = 12 * HOUR_US
    retry_for_us: int = 3 * DAY_US

    def next_attempt_at(
        self,
        event_id: str,
        attempts: int,
        first_attempt_at: int,
        now_us: int,
        retry_after_us: int | None = None,
    ) -> int | None:
        """When to try again after so many attempts, the last of which has just failed.

        None means never. The last attempt is made at the deadline itself rather than left out
        because the next pause would pass it.
        """
        deadline_us = first_attempt_at + self.retry_for_us
        if now_us >= deadline_us:
            return None
        pause_us = self._pause_us(event_id, attempts)
        if retry_after_us is not None:
            # On top of it, so that those that were all told the same do not all come back at once.
            asked_us = min(max(retry_after_us, 0), self.max_retry_after_us)
            pause_us = max(pause_us, asked_us + min(pause_us, self.first_delay_us))
        return min(now_us + pause_us, deadline_us)

    def _pause_us(self, event_id: str, attempts: int) -> int:
        """Between half and all of the doubled delay, and the same again after a restart."""
        doubled_us = min(self.first_delay_us << min(attempts - 1, 32), self.max_delay_us)
        digest = hashlib.sha256(f"{event_id}:{attempts}".encode()).digest()
        chance = int.from_bytes(digest[:8]) / (1 << 64)
        return int(doubled_us * (0.5 + chance / 2))


def settlement(
    delivery: Delivery, result: Result, attempted_at: int, now_us: int, schedule: RetrySchedule
) -> Settlement:
    """What the outbox shall hold after one attempt that began at `attempted_at` and ended now."""
    verdict = judge(result)
    attempts = delivery.attempts + 1
    first_attempt_at = (
        attempted_at if delivery.first_attempt_at is None else delivery.first_attempt_at
    )
    next_attempt_at = None
    if verdict.outcome is Outcome.RETRY:
        next_attempt_at = schedule.next_attempt_at(
            delivery.event_id, attempts, first_attempt_at, now_us, verdict.retry_after_us
        )
    return Settlement(
        outbox_id=delivery.outbox_id,
        lease_until=delivery.lease_until,
        trigger=delivery.trigger,
        status=(
            "delivered"
            if verdict.outcome is Outcome.DELIVERED
            else "dead"
            if next_attempt_at is None
            else "pending"
        ),
        attempts=attempts,
        first_attempt_at=first_attempt_at,
        attempted_at=attempted_at,
        next_attempt_at=next_attempt_at,
        last_status=result.status if isinstance(result, Answer) else None,
        last_error=verdict.error,
        disable_trigger=verdict.outcome is Outcome.GONE,
    )


def parse_retry_after(text: str | None, now_us: int) -> int | None:
    """A `Retry-After` header as a pause: seconds, or a date. None if it is neither."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text[:MAX_RETRY_AFTER_DIGITS]) * SECOND_US
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(int(moment.timestamp() * SECOND_US) - now_us, 0)
    except (ValueError, OverflowError):
        return None
