"""`POST /v1/events`: bytes in, one result per event out, `accepted` only when it is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from tidemark.clock import Clock
from tidemark.crash import crash_point
from tidemark.errors import QueueFull
from tidemark.ingress.decoder import Decoder
from tidemark.ingress.drafts import Entry, EventSink, Outcome, Rejection, Submission
from tidemark.timestamps import format_timestamp
from tidemark.web.messages import Request, Response

# Decoding this much takes about a tenth of a millisecond, which nothing else notices.
LARGE_BODY_BYTES = 4096


class IngestObserver(Protocol):
    """Is told what became of the events of each request."""

    def answered(self, outcomes: Sequence[Outcome]) -> None: ...


class PlacedResult(msgspec.Struct, rename="camel", gc=False):
    """The result of an event that has a place in the ledger."""

    status: str
    idempotency_key: str | None
    ingress_sequence: str
    received_at: str


class ErrorBody(msgspec.Struct, omit_defaults=True, gc=False):
    """The one shape of an error."""

    code: str
    message: str
    hint: str
    field: str | None = None


class RefusedResult(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """The result of an event that was not stored; a conflict names the earlier event's place."""

    status: str
    error: ErrorBody
    idempotency_key: str | None = None
    ingress_sequence: str | None = None
    received_at: str | None = None


class IngestAnswer(msgspec.Struct, rename="camel", gc=False):
    """The answer to a request: results are aligned with its events."""

    accepted: int
    duplicates: int
    conflicts: int
    rejected: int
    request_id: str
    results: list[PlacedResult | RefusedResult]


class IngestEndpoint:
    """Decodes requests and hands them to the ledger, within a bound on bytes in memory."""

    def __init__(
        self,
        decoder: Decoder,
        sink: EventSink,
        observer: IngestObserver,
        clock: Clock,
        *,
        max_body_bytes: int,
        max_inflight_bytes: int,
    ) -> None:
        self._decoder = decoder
        self._sink = sink
        self._observer = observer
        self._clock = clock
        self._max_body_bytes = max_body_bytes
        self._max_inflight_bytes = max_inflight_bytes
        self._inflight_bytes = 0
        self._decoding = asyncio.Lock()

    async def post(self, request: Request) -> Response:
        request.query(())
        # A body sent in chunks may grow to the limit, so that much is set aside for it.
        length = request.declared_length()
        reserved = self._max_body_bytes if length is None else min(length, self._max_body_bytes)
        if self._inflight_bytes and self._inflight_bytes + reserved > self._max_inflight_bytes:
            raise QueueFull(
                f"requests of {self._inflight_bytes} bytes are being worked on",
                hint="Wait as Retry-After says, then send the same request again.",
            )
        self._inflight_bytes += reserved
        try:
            return await self._ingest(request)
        finally:
            self._inflight_bytes -= reserved

    async def _ingest(self, request: Request) -> Response:
        body = await request.body(self._max_body_bytes)
        if len(body) > LARGE_BODY_BYTES:
            # One large body at a time: a commit under way goes on between two of them.
            async with self._decoding:
                await asyncio.sleep(0)
                entries = self._decode(request, body)
        else:
            entries = self._decode(request, body)
        crash_point("ingress.decoded")
        outcomes = await self._sink.append(Submission(request.request_id, entries))
        self._observer.answered(outcomes)
        crash_point("ingress.before_response")
        return Response(200, msgspec.json.encode(answer(request.request_id, outcomes)))

    def _decode(self, request: Request, body: bytes) -> list[Entry]:
        self._sink.check_room()
        return self._decoder.decode_body(
            request.header(b"content-type"),
            body,
            now_us=self._clock.wall_us(),
            allow=request.caller.may_send if request.caller.limited else None,
            content_encoding=request.header(b"content-encoding"),
            binary_mode=b"ce-specversion" in request.headers,
        )


def answer(request_id: str, outcomes: Sequence[Outcome]) -> IngestAnswer:
    """The index-aligned answer."""
    counts = {"accepted": 0, "duplicate": 0, "conflict": 0, "rejected": 0}
    times: dict[int, str] = {}
    results: list[PlacedResult | RefusedResult] = []
    for outcome in outcomes:
        counts[outcome.status] += 1
        sequence = received_at = None
        if outcome.ingress_sequence is not None and outcome.received_at is not None:
            sequence = str(outcome.ingress_sequence)
            # Events of one commit share their time, so it is spelt out once.
            received_at = times.get(outcome.received_at)
            if received_at is None:
                received_at = times[outcome.received_at] = format_timestamp(outcome.received_at)
            if outcome.rejection is None:
                results.append(
                    PlacedResult(outcome.status, outcome.idempotency_key, sequence, received_at)
                )
                continue
        assert outcome.rejection is not None
        results.append(
            RefusedResult(
                outcome.status,
                _error(outcome.rejection),
                outcome.idempotency_key,
                sequence,
                received_at,
            )
        )
    return IngestAnswer(
        counts["accepted"],
        counts["duplicate"],
        counts["conflict"],
        counts["rejected"],
        request_id,
        results,
    )


def _error(rejection: Rejection) -> ErrorBody:
    return ErrorBody(rejection.code, rejection.message, rejection.hint, rejection.field)
