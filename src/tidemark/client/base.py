"""What both clients are made of, apart from how they wait."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Literal

from tidemark.client import events
from tidemark.client.batches import SERVER_MAX_BYTES
from tidemark.client.buffer import Buffer, Entry, FutureT
from tidemark.client.delivery import Outcome
from tidemark.client.reports import Failures
from tidemark.client.results import Result
from tidemark.client.retry import Patience
from tidemark.client.settings import Settings, api_key_or_default, url_or_default
from tidemark.clock import MICROS_PER_SECOND, Clock, SystemClock
from tidemark.errors import ClientError, EventRejected

Event = Mapping[str, Any]


def flush_timeout(timeout_s: float | None) -> ClientError:
    """The error of a flush whose time was up first."""
    return ClientError(
        f"events are still being delivered after {timeout_s} s",
        hint="They stay buffered and are retried. Flush again, or wait for their futures.",
        code="flush_timeout",
    )


class BaseClient(Generic[FutureT]):
    """The options, and what is fixed before anything is sent.

    `url` and `api_key` default to `TIDEMARK_URL` and `TIDEMARK_API_KEY`, and without those to the
    embedded server on this machine and to no key.

    - `batch_events`, `max_request_bytes`: how much one request may hold.
    - `max_queued`, `max_queued_bytes`: how much `submit` may hold that is not yet answered. Beyond
      that it waits.
    - `max_in_flight`: requests of `submit` under way at once. With more than one, events of
      different requests may be stored in another order than they were submitted in.
    - `linger_s`: how long a submitted event may wait for others to share its request.
    - `timeout_s`: how long one attempt may take.
    - `retry_for_s`: how long to go on trying while the server takes nothing; 0 tries once.
    - `first_delay_s`, `max_delay_s`: the pauses between attempts, doubling from one to the other.
    - `idempotency_key`: "auto" gives each event without an `idempotencyKey` a random one, once.
    - `ssl_context`: for a private certificate authority or a client certificate.
    - `clock`: where the time comes from; tests bring their own.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        batch_events: int = 500,
        max_request_bytes: int = SERVER_MAX_BYTES,
        max_queued: int = 10_000,
        max_queued_bytes: int = 64 * 1024 * 1024,
        max_in_flight: int = 1,
        linger_s: float = 0.05,
        timeout_s: float = 30.0,
        retry_for_s: float = 60.0,
        first_delay_s: float = 0.1,
        max_delay_s: float = 5.0,
        idempotency_key: Literal["auto"] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = Settings(
            url=url_or_default(url),
            api_key=api_key_or_default(api_key),
            batch_events=batch_events,
            max_request_bytes=max_request_bytes,
            max_queued=max_queued,
            max_queued_bytes=max_queued_bytes,
            max_in_flight=max_in_flight,
            linger_s=linger_s,
            timeout_s=timeout_s,
            retry_for_s=retry_for_s,
            first_delay_s=first_delay_s,
            max_delay_s=max_delay_s,
            idempotency_key=idempotency_key,
            ssl_context=ssl_context,
            clock=clock or SystemClock(),
        )
        self._clock = self._settings.clock
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        """Make what belongs to this process, with nothing on its way."""
        settings = self._settings
        self._buffer: Buffer[FutureT] = Buffer(
            settings.limits,
            max_events=settings.max_queued,
            max_bytes=settings.max_queued_bytes,
            linger_us=settings.linger_us,
        )
        self._failures = Failures(
            max_events=settings.max_queued, max_bytes=settings.max_queued_bytes
        )
        self._progress_us = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.url!r})"

    def _take(self, event: Event) -> bytes:
        """Fix one event's bytes."""
        self._check_open()
        return events.take(event, self._clock, auto_key=self._settings.idempotency_key == "auto")

    def _take_all(self, given: Event | Iterable[Event]) -> list[bytes]:
        """Fix the bytes of one event or of many. If one is at fault, none is sent."""
        if isinstance(given, Mapping):
            return [self._take(given)]
        taken = []
        for index, event in enumerate(given):
            try:
                taken.append(self._take(event))
            except ClientError as error:
                where = f"[{index}]" + (f".{error.field}" if error.field else "")
                raise ClientError(
                    f"event {index}: {error.message}; nothing was sent",
                    hint=error.hint,
                    field=where,
                    code=error.code,
                ) from None
        return taken

    def _too_large(self, body: bytes) -> Result | None:
        """The result of an event that fits no request, None for one that does."""
        limit = self._settings.max_event_bytes
        if len(body) <= limit:
            return None
        error = EventRejected(
            f"the event is {len(body):,} bytes of JSON; the largest that can be sent is {limit:,}",
            hint="Keep large content elsewhere and send a reference to it.",
            code="event_too_large",
        )
        return Result("rejected", error=error)

    def _claim(
        self, batch: Sequence[Entry[FutureT]], outcomes: Sequence[Outcome]
    ) -> list[tuple[Entry[FutureT], Outcome]]:
        """Take note of a batch's outcomes, and give those whose futures are to be told.

        What `close` gave up before is not among them.
        """
        outcome_of = dict(zip((entry.number for entry in batch), outcomes, strict=True))
        claimed = [(entry, outcome_of[entry.number]) for entry in self._buffer.claim(batch)]
        for entry, outcome in claimed:
            if isinstance(outcome, Result):
                self._progress_us = self._clock.elapsed_us()
            else:
                self._failures.add(entry.body, outcome)
        return claimed

    def _patience(self, timeout_s: float | None, stall_us: int | None = None) -> Patience:
        timeout_us = None if timeout_s is None else int(timeout_s * MICROS_PER_SECOND)
        return Patience(self._clock.elapsed_us(), timeout_us, stall_us)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientError(
                "the client is closed", hint="Make a new client.", code="client_closed"
            )
