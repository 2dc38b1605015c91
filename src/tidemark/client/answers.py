"""An HTTP answer, or the lack of one → what to do next.

The server's words: 200 has a result for each event. 408, 429 and 5xx mean "later". 413 means "less
at once". Everything else is final. An answer that cannot be read counts as no answer: asking
again is safe, since the same bytes are the same events.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import msgspec

from tidemark.client.results import Result, Status
from tidemark.errors import ClientError, EventRejected

# After 408 and 500 nobody knows whether the events were stored, so they are sent again.
RETRYABLE_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
# A thousand results with long errors are well under a megabyte.
MAX_ANSWER_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back."""

    status: int
    body: bytes
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Nothing usable came back; the request may or may not have been carried out."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Nothing came back, and asking again would end the same way."""

    error: ClientError


Answer = HttpAnswer | NoAnswer | Unreachable


@dataclass(frozen=True, slots=True)
class Judged:
    """Every event has its result."""

    results: list[Result]


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The same bytes may be sent again."""

    reason: str
    code: str | None = None
    retry_after_us: int | None = None


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The server takes less at once than was sent."""

    error: ClientError


@dataclass(frozen=True, slots=True)
class Refused:
    """The request will never be taken as it is."""

    error: ClientError


Verdict = Judged | TryAgain | TooLarge | Refused


class _ErrorBody(msgspec.Struct):
    code: str
    message: str
    hint: str = ""
    field: str | None = None


class _RefusalBody(msgspec.Struct):
    error: _ErrorBody


class _ResultBody(msgspec.Struct, rename="camel"):
    status: Literal["accepted", "duplicate", "conflict", "rejected"]
    idempotency_key: str | None = None
    ingress_sequence: str | None = None
    received_at: datetime | None = None
    error: _ErrorBody | None = None


class _AnswerBody(msgspec.Struct):
    results: list[_ResultBody]


_answer_decoder = msgspec.json.Decoder(_AnswerBody)
_refusal_decoder = msgspec.json.Decoder(_RefusalBody)


def judge(answer: Answer, event_count: int) -> Verdict:
    """Decide what an answer to a request with so many events means."""
    if isinstance(answer, NoAnswer):
        return TryAgain(answer.reason)
    if isinstance(answer, Unreachable):
        return Refused(answer.error)
    if answer.status == 200:
        return _judge_results(answer.body, event_count)
    error = _error_of(answer)
    if answer.status in RETRYABLE_STATUSES:
        return TryAgain(
            f"HTTP {answer.status}: {error.message}",
            error.code,
            _retry_after_us(answer.retry_after),
        )
    if answer.status == 413:
        return TooLarge(error)
    return Refused(error)


def _judge_results(body: bytes, event_count: int) -> Verdict:
    try:
        results = [_result(found) for found in _answer_decoder.decode(body).results]
    except (msgspec.DecodeError, ValueError) as error:
        return TryAgain(f"HTTP 200 with a body that cannot be read: {error}", "unreadable_answer")
    if len(results) != event_count:
        return TryAgain(
            f"HTTP 200 with {len(results)} results for {event_count} events", "unreadable_answer"
        )
    return Judged(results)


def _result(found: _ResultBody) -> Result:
    status: Status = found.status
    sequence = None if found.ingress_sequence is None else int(found.ingress_sequence)
    if status in ("accepted", "duplicate"):
        if found.idempotency_key is None or sequence is None or found.received_at is None:
            raise ValueError(f"a result is {status} without a place in the ledger")
        error = None
    else:
        why = found.error or _ErrorBody(status, "the server gave no reason")
        error = EventRejected(why.message, hint=why.hint, field=why.field, code=why.code)
    return Result(status, found.idempotency_key, sequence, found.received_at, error)


def _error_of(answer: HttpAnswer) -> ClientError:
    """The server's own error where there is one; an answer of something in between otherwise."""
    try:
        found = _refusal_decoder.decode(answer.body).error
    except (msgspec.DecodeError, ValueError):
        text = answer.body[:200].decode("utf-8", "replace").strip()
        return ClientError(
            f"HTTP {answer.status}" + (f": {text}" if text else ""),
            hint="The answer is not one of Tidemark's. Check the URL and any proxy before it.",
            code="unexpected_answer",
        )
    return ClientError(found.message, hint=found.hint, field=found.field, code=found.code)


def _retry_after_us(value: str | None) -> int | None:
    """The seconds of a `Retry-After`; its form as a date is left to the ordinary backoff."""
    if value is None or not value.strip().isdecimal() or len(value) > 9:
        return None
    return int(value) * 1_000_000
