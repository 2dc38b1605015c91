"""The conversation of one batch with the server, without I/O.

`Lane.deliver` is a generator: it yields what is to be done (`Post` a body, `Pause` for a while), is
sent the answer to each `Post`, and returns an outcome for each event. Both clients drive the same
conversation, one with threads and one with tasks.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from tidemark.client.answers import Answer, Judged, Refused, TooLarge, TryAgain, Verdict, judge
from tidemark.client.batches import request_body
from tidemark.client.results import Result
from tidemark.client.retry import Outage, RetryPolicy, after_failure
from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.errors import ClientError, EventRejected

logger = logging.getLogger("tidemark.client")


@dataclass(frozen=True, slots=True)
class Post:
    """Send this body and say what came back."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so long."""

    duration_us: int


Outcome = Result | ClientError
Conversation = Generator[Post | Pause, Answer | None, list[Outcome]]


class Lane:
    """One line to the server: a request at a time, and the outage it is in, if it is in one."""

    def __init__(self, policy: RetryPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._random = random.Random()
        self._outage: Outage | None = None

    def deliver(self, events: Sequence[bytes], taken_at_us: int) -> Conversation:
        """Deliver events as one request, or as several if the server takes only less at once.

        `taken_at_us` is when the youngest of them was taken. Every event gets an outcome: a
        `Result` if the server judged it, else the error that is to be raised for it.
        """
        outcomes: list[Outcome] = []
        parts = [events]
        while parts:
            part = parts.pop()
            verdict = yield from self._ask(request_body(part), len(part), taken_at_us)
            if isinstance(verdict, Judged):
                outcomes.extend(verdict.results)
            elif isinstance(verdict, TooLarge) and len(part) > 1:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
            elif isinstance(verdict, TooLarge):
                outcomes.append(too_large(verdict.error))
            else:
                # An error for each: one that many futures raise would collect all their traces.
                outcomes.extend(_copy(verdict.error) for _ in part)
        return outcomes

    def _ask(
        self, body: bytes, event_count: int, taken_at_us: int
    ) -> Generator[Post | Pause, Answer | None, Judged | TooLarge | Refused]:
        """Send one body, byte for byte the same, until it has an answer or its time is up."""
        while True:
            if self._outage is not None:
                pause_us = self._outage.next_attempt_us - self._clock.elapsed_us()
                if pause_us > 0:
                    yield Pause(pause_us)
            answer = yield Post(body)
            assert answer is not None, "a Post must be answered"
            verdict: Verdict = judge(answer, event_count)
            if not isinstance(verdict, TryAgain):
                self._end_outage()
                return verdict
            if not self._may_retry(verdict, taken_at_us):
                seconds = self._policy.retry_for_us / MICROS_PER_SECOND
                message = f"not delivered within {seconds:g} s; last: {verdict.reason}"
                return Refused(not_answered(message))

    def _may_retry(self, again: TryAgain, taken_at_us: int) -> bool:
        began = self._outage is None
        self._outage, may_retry = after_failure(
            self._outage,
            now_us=self._clock.elapsed_us(),
            taken_at_us=taken_at_us,
            retry_after_us=again.retry_after_us,
            policy=self._policy,
            chance=self._random.random(),
        )
        if began and may_retry:
            logger.warning("events wait, the server cannot take them now: %s", again.reason)
        return may_retry

    def _end_outage(self) -> None:
        if self._outage is not None:
            logger.info("the server answers again")
            self._outage = None


def too_large(error: ClientError) -> Result:
    """The result of an event that is too large to be sent even alone."""
    refusal = EventRejected(error.message, hint=error.hint, field=error.field, code=error.code)
    return Result("rejected", error=refusal)


def not_answered(message: str, code: str = "delivery_failed") -> ClientError:
    """The error of an event whose fate is not known."""
    return ClientError(
        message,
        hint="Whether the server stored it is not known. Sending the same event again with the "
        "same ts and idempotencyKey is safe.",
        code=code,
    )


def log_refusals(outcomes: Sequence[Outcome]) -> None:
    """Tell the log of events that were not stored, since nobody may be looking at their futures."""
    errors = (outcome.error if isinstance(outcome, Result) else outcome for outcome in outcomes)
    codes = Counter(error.code for error in errors if error is not None)
    if codes:
        listed = ", ".join(f"{code} × {count}" for code, count in codes.most_common())
        logger.error("%d of %d events were not stored: %s", codes.total(), len(outcomes), listed)


def _copy(error: ClientError) -> ClientError:
    return ClientError(error.message, hint=error.hint, field=error.field, code=error.code)
