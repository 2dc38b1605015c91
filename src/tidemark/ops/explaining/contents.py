"""What an event says, or what a correction puts in its place."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidemark.errors import EventRejected
from tidemark.ledger.port import EventRow
from tidemark.timestamps import parse_timestamp

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Content(msgspec.Struct, frozen=True):
    """`event` says it. `ts` is when it happened, `members` are its `meta` or its `data`.

    Without a `ts` it has the time of the event that it corrects.
    """

    event: EventRow
    ts: int | None
    members: Mapping[str, msgspec.Raw]


def content_of(event: EventRow) -> Content | None:
    """None for an event that has no content of its own."""
    own = _members(event.data)
    if event.control is None:
        return Content(event, event.occurred_at, own)
    if event.control == "adjust":
        return Content(event, _time(own.get("periodStart")), {})
    if event.control == "amend":
        amended = _members(_text(own.get("event")))
        if event.metric is not None:
            return Content(event, event.occurred_at, _members(_text(amended.get("meta"))))
        said = amended.get("occurredAt")
        return Content(
            event,
            None if said is None else event.occurred_at,
            _members(_text(amended.get("data"))),
        )
    return None


def reason_of(event: EventRow) -> str | None:
    """Why somebody sent a control event, in their words."""
    return _string(_members(event.data).get("reason"))


def _members(text: str | None) -> dict[str, msgspec.Raw]:
    if text is None:
        return {}
    try:
        return _decode_members(text)
    except msgspec.MsgspecError:
        # The pipeline has an error row for it.
        return {}


def _text(raw: msgspec.Raw | None) -> str | None:
    return None if raw is None else bytes(raw).decode()


def _string(raw: msgspec.Raw | None) -> str | None:
    try:
        return None if raw is None else msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        return None


def _time(raw: msgspec.Raw | None) -> int | None:
    text = _string(raw)
    try:
        return None if text is None else parse_timestamp(text)
    except EventRejected:
        return None
