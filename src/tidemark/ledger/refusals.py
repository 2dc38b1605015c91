"""What the ledger itself refuses, in the words of the event API and bounded like every refusal."""

from __future__ import annotations

from typing import Final

import msgspec

from tidemark.canonical import Json
from tidemark.errors import EventRejected, StorageRefused
from tidemark.ingress.drafts import Correction, Draft, Rejection
from tidemark.ingress.rejections import MAX_BODY_CHARACTERS, printable, reject
from tidemark.timestamps import format_timestamp

CONFLICT_CODE: Final = "content_conflict"

_LEFT_OUT: Final = ("content_hash", "data", "event", "occurred_at")
_OTHER_NAMES: Final = {"target_key": "target"}


def content_conflict(entry: Draft, earlier_sequence: int, *, same_key: bool) -> Rejection:
    """The key is taken: by another content, or (`same_key` is false) by the digest of another."""
    if same_key:
        message = (
            f"an event with this key and other content was accepted before, "
            f"as sequence {earlier_sequence}"
        )
        hint = (
            "Nothing was stored. To correct the earlier event send an amend control event that "
            "names it; to record another one give it its own idempotencyKey."
        )
    else:
        message = "this key has the same digest as another event's key"
        hint = "Nothing was stored. Send the event with another idempotencyKey."
    return Rejection(
        code=CONFLICT_CODE,
        message=message,
        hint=hint,
        field="idempotencyKey",
        tenant_id=entry.tenant_id,
        stream=entry.stream,
        idempotency_key=entry.idempotency_key,
        body=_body(entry),
    )


def refused_by_storage(entry: Draft | Correction, refused: StorageRefused) -> Rejection:
    """The database does not take this event. What it is called is kept only if that can be."""
    claims: dict[str, Json] = {
        "tenantId": entry.tenant_id,
        "idempotencyKey": entry.idempotency_key,
    }
    stream = entry.stream if isinstance(entry, Draft) else None
    error = EventRejected(refused.message, code="storage_refused", hint=refused.hint)
    return reject(error, _body(entry).encode(), claims, stream)


def _body(entry: Draft | Correction) -> str:
    body: dict[str, object] = {
        _api_name(name): printable(value, MAX_BODY_CHARACTERS)
        for name, value in msgspec.structs.asdict(entry).items()
        if value is not None and name not in _LEFT_OUT
    }
    if isinstance(entry, Draft):
        if entry.occurred_at is not None:
            body["occurredAt"] = format_timestamp(entry.occurred_at)
        nested = None if entry.data is None else entry.data.encode("utf-8", "replace")
        name = "data"
    else:
        nested, name = entry.event, "event"
    if nested is not None:
        body[name] = msgspec.Raw(nested)
    text = msgspec.json.encode(body).decode("utf-8", "replace")
    return printable(text, MAX_BODY_CHARACTERS)


def _api_name(name: str) -> str:
    first, *rest = _OTHER_NAMES.get(name, name).split("_")
    return first + "".join(part.capitalize() for part in rest)
