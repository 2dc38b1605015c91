"""Where the key of an event comes from: from its sender, or from what the event is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from tidemark.config.model import StreamConfig
from tidemark.ingress.identity import Identity
from tidemark.ledger.port import EventRow
from tidemark.ops.explaining.contents import content_of
from tidemark.timestamps import format_timestamp

_Tuple: TypeAlias = Sequence[tuple[str, Any]]


class KeyOrigin(msgspec.Struct, frozen=True):
    """The names and values of the tuple that a key is derived from; None if it was given."""

    derived_from: _Tuple | None


def key_origin(
    event: EventRow, identity: Identity, streams: Mapping[str, StreamConfig]
) -> KeyOrigin:
    """A key that no tuple of the event comes to was given by the sender."""
    for key, derived_from in _derivable(event, identity, streams.get(event.stream)):
        if key == event.idempotency_key:
            return KeyOrigin(derived_from)
    return KeyOrigin(None)


def _derivable(
    event: EventRow, identity: Identity, stream: StreamConfig | None
) -> Iterator[tuple[str, _Tuple]]:
    tenant: tuple[str, Any] = ("tenantId", event.tenant_id)
    if event.control is not None:
        subject = subject_of(event)
        key = identity.control_key(
            event.tenant_id, event.control, [value for _, value in subject], event.content_hash
        )
        content = ("contentHash", event.content_hash.hex())
        yield key, [tenant, ("control", event.control), *subject, content]
        return
    if event.metric is not None and event.customer_ref is not None:
        ts = format_timestamp(event.occurred_at)
        yield (
            identity.usage_key(
                event.tenant_id, event.metric, event.customer_ref, event.resource_id, ts
            ),
            [
                tenant,
                ("metric", event.metric),
                ("customerRef", event.customer_ref),
                ("resourceId", event.resource_id),
                ("ts", ts),
            ],
        )
        return
    if stream is not None and stream.identity:
        content_members = _members(event)
        values = [content_members.get(name) for name in stream.identity]
        pairs = zip((f"data.{name}" for name in stream.identity), values, strict=True)
        yield (
            identity.stream_key(event.tenant_id, event.stream, values),
            [tenant, ("stream", event.stream), *pairs],
        )
    if event.source is not None and event.source_id is not None:
        yield (
            identity.cloudevent_key(event.tenant_id, event.source, event.source_id),
            [tenant, ("source", event.source), ("id", event.source_id)],
        )


def subject_of(event: EventRow) -> list[tuple[str, str]]:
    """What a control event is about, as its key has it."""
    if event.control == "adjust":
        content = content_of(event)
        start = None if content is None else content.ts
        return [
            ("metric", event.metric or ""),
            ("customerRef", event.customer_ref or ""),
            ("periodStart", "" if start is None else format_timestamp(start)),
            ("quantity", event.quantity or ""),
        ]
    if event.control == "end":
        return [("stream", event.stream)]
    if event.control == "swap":
        swap = msgspec.json.decode(event.data or "{}")
        return [(name, swap.get(name, "")) for name in ("name", "after")]
    return [("target", event.target_key or "")]


def _members(event: EventRow) -> Mapping[str, msgspec.Raw]:
    content = content_of(event)
    return {} if content is None else content.members
