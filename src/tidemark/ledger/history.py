"""One line of a history: an event as a client would send it, and when it was received.

The order of a history is that of `(received_at, occurred_at, id)`, where `id` is the idempotency
key, the client's or the derived one. The key of a `void` or `amend` without a client's key is only
known when its original is, so `target control` stands for it: it follows its target if the times
are equal. What is equal in all of this is ordered by its content, so that no two runs can differ.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from tidemark.canonical import Json
from tidemark.errors import EventRejected
from tidemark.event_files import RECEIVED_AT, EventLine
from tidemark.ingress.decoder import Decoder
from tidemark.ingress.drafts import Correction, Draft, Rejection
from tidemark.ingress.members import checked_timestamp, missing
from tidemark.ingress.rejections import reject
from tidemark.ingress.trees import parse_tree
from tidemark.timestamps import format_timestamp

# For messages only: what is deeper is refused by the decoder.
_MAX_DEPTH: Final = 16
_DRAFT: Final = b"D"
_CORRECTION: Final = b"C"

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


class Place(NamedTuple):
    """An event and its place in the order of its history: places compare as their events do."""

    received_at: int
    occurred_at: int
    id: str
    body: bytes
    file: str
    line: int


class HistoryReader:
    """Finds the place of each line, or the reason why it has none."""

    def __init__(self, decoder: Decoder, now_us: int) -> None:
        self._decoder = decoder
        self._now_us = now_us
        # The events of one commit have one time, and mostly stand together.
        self._last: tuple[Json, int] = (None, 0)

    def read(self, line: EventLine) -> Place | Rejection:
        if line.fault is not None:
            return reject(line.fault, line.raw)
        try:
            members = _members(line.raw)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return self._explain(line.raw)
        try:
            received_at = self._received_at(members.pop(RECEIVED_AT, None))
        except EventRejected as error:
            return reject(error, line.raw, _tree(line.raw))
        # Whether its own time lies in the future is judged by when it was received.
        entry = self._decoder.decode_event(_encode(members), now_us=received_at)
        if isinstance(entry, Rejection):
            return entry
        occurred_at = None
        if isinstance(entry, Draft):
            occurred_at, name = entry.occurred_at, entry.idempotency_key
        else:
            name = entry.idempotency_key or f"{entry.target_key} {entry.control}"
        return Place(
            received_at,
            received_at if occurred_at is None else occurred_at,
            name,
            pack(entry),
            line.file,
            line.number,
        )

    def _received_at(self, raw: msgspec.Raw | None) -> int:
        if raw is None or bytes(raw) == b"null":
            raise missing(RECEIVED_AT, "A history says of each event when it was received.")
        value: Json
        try:
            value = _text(raw)
        except (msgspec.MsgspecError, UnicodeError):
            value = parse_tree(bytes(raw), max_depth=_MAX_DEPTH)
        if value == self._last[0]:
            return self._last[1]
        try:
            us, _ = checked_timestamp(value, RECEIVED_AT, truncate=False)
        except EventRejected as error:
            if error.code == "timestamp_too_precise":
                error.hint = "Cut it to six fractional digits."
            raise
        if us > self._now_us:
            raise EventRejected(
                f"{format_timestamp(us)} has not come yet",
                code="future_timestamp",
                field=RECEIVED_AT,
                hint="Nothing was received later than now: check the clock that made it.",
            )
        if us == 0:
            # The ledger stands there before its first commit, and a commit is later than the last.
            raise EventRejected(
                f"{format_timestamp(us)} is where every ledger begins, nothing is received then",
                code="timestamp_out_of_range",
                field=RECEIVED_AT,
                hint="Check the unit and the clock that made it.",
            )
        self._last = (value, us)
        return us

    def _explain(self, raw: bytes) -> Rejection:
        """Why the line is no JSON object; the careful reading knows better than the quick one."""
        entry = self._decoder.decode_event(raw, now_us=self._now_us)
        if isinstance(entry, Rejection) and entry.code != "unknown_field":
            return entry
        return reject(
            EventRejected(
                "the line is not a JSON object",
                code="malformed_event",
                hint="Write each event as one JSON object on one line.",
            ),
            raw,
        )


def _tree(raw: bytes) -> Json:
    """What the line says of itself, as far as that can be read."""
    try:
        return parse_tree(raw, max_depth=_MAX_DEPTH)
    except EventRejected:
        return None


def pack(entry: Draft | Correction) -> bytes:
    """The entry as bytes; equal bytes for equal entries."""
    kind = _DRAFT if isinstance(entry, Draft) else _CORRECTION
    return kind + _pack(msgspec.structs.astuple(entry))


def unpack(body: bytes) -> Draft | Correction:
    values = _unpack(memoryview(body)[1:])
    return Draft(*values) if body.startswith(_DRAFT) else Correction(*values)


def unpack_draft(body: bytes) -> Draft:
    """An entry that is known to be finished."""
    assert body.startswith(_DRAFT)
    return Draft(*_unpack(memoryview(body)[1:]))
