"""Events of a declared stream: an envelope around data of a declared shape."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from tidemark.canonical import Json
from tidemark.config.model import IngestConfig, StreamConfig
from tidemark.errors import EventRejected
from tidemark.ingress.drafts import Draft
from tidemark.ingress.envelopes import Envelope, QuickEvent, refuse_future
from tidemark.ingress.fields import NotQuick
from tidemark.ingress.identity import Identity
from tidemark.ingress.members import MAX_KEY_LENGTH, checked_timestamp, name_limit
from tidemark.ingress.schemas import ABSENT, DeclaredSchema, Reading
from tidemark.timestamps import normalise_timestamp

# `data` stands one level below the event.
_DATA_DEPTH: Final = 2

_encode = msgspec.json.Encoder().encode
_sha256 = hashlib.sha256


class EventStream:
    """Reads the events of one stream."""

    def __init__(
        self, name: str, stream: StreamConfig, limits: IngestConfig, identity: Identity
    ) -> None:
        self.name = name
        self.field_names = frozenset(stream.fields)
        self._truncate = stream.truncate
        self._max_length = limits.max_string_length
        self._max_name_length = name_limit(limits.max_string_length)
        self._identity = identity
        self._has_identity = bool(stream.identity)
        self._schema = DeclaredSchema(
            stream.fields, limits, _DATA_DEPTH, truncate=stream.truncate, identity=stream.identity
        )

    def quick(self, event: QuickEvent, horizon_us: int) -> Draft:
        """The draft of an event that is in order; else an error, and `read` decides."""
        tenant_id = event.tenantId
        key = event.idempotencyKey
        causality_key = event.causalityKey
        source = event.source
        if (
            not 0 < len(tenant_id) <= self._max_name_length
            or event.data is ABSENT
            or event.quantity is not ABSENT
            or event.meta is not ABSENT
            or event.metric is not None
            or event.customerRef is not None
            or event.resourceId is not None
            or event.ts is not None
            or (key is None and not self._has_identity)
            or (key is not None and not 0 < len(key) <= MAX_KEY_LENGTH)
            or (causality_key is not None and not 0 < len(causality_key) <= MAX_KEY_LENGTH)
            or (source is not None and not 0 < len(source) <= self._max_length)
        ):
            raise NotQuick
        occurred_at = occurred_text = None
        if event.occurredAt is not None:
            occurred_at, occurred_text = normalise_timestamp(
                event.occurredAt, truncate=self._truncate
            )
            if occurred_at > horizon_us:
                raise NotQuick
        data = self._schema.quick(event.data)
        envelope = Envelope(tenant_id, key, causality_key, source)
        return self._draft(envelope, data, occurred_at, occurred_text)

    def read(
        self, content: dict[str, Json], path: str, envelope: Envelope, horizon_us: int
    ) -> Draft:
        """The draft of the event whose data is `content`, which stands at `path`."""
        occurred_at, occurred_text = self.read_time(envelope.occurred, envelope.occurred_path)
        if occurred_at is not None:
            refuse_future(occurred_at, horizon_us, envelope.occurred_path)
        data = self.read_data(content, path)
        return self._draft(envelope, data, occurred_at, occurred_text)

    def read_data(self, content: dict[str, Json], path: str) -> Reading:
        return self._schema.read(content, path)

    def read_time(self, occurred: Json, path: str) -> tuple[int | None, str | None]:
        if occurred is None:
            return None, None
        return checked_timestamp(occurred, path, truncate=self._truncate)

    def _draft(
        self,
        envelope: Envelope,
        data: Reading,
        occurred_at: int | None,
        occurred_text: str | None,
    ) -> Draft:
        content: dict[str, object] = {}
        if envelope.causality_key is not None:
            content["causalityKey"] = envelope.causality_key
        content["data"] = msgspec.Raw(data.text)
        if occurred_text is not None:
            content["occurredAt"] = occurred_text
        content["stream"] = self.name
        content["tenantId"] = envelope.tenant_id
        return Draft(
            tenant_id=envelope.tenant_id,
            stream=self.name,
            idempotency_key=self._key(envelope, data.identity),
            content_hash=_sha256(_encode(content)).digest(),
            occurred_at=occurred_at,
            data=data.text.decode(),
            causality_key=envelope.causality_key,
            source=envelope.source,
            source_id=envelope.source_id,
        )

    def _key(self, envelope: Envelope, values: Sequence[object]) -> str:
        if envelope.idempotency_key is not None:
            return envelope.idempotency_key
        if self._has_identity:
            return self._identity.stream_key(envelope.tenant_id, self.name, values)
        if envelope.source is not None and envelope.source_id is not None:
            return self._identity.cloudevent_key(
                envelope.tenant_id, envelope.source, envelope.source_id
            )
        raise EventRejected(
            f"nothing tells two events of the stream `{self.name}` apart",
            code="idempotency_key_required",
            field="idempotencyKey",
            hint="Send an `idempotencyKey` with each event, or declare the stream's `identity`.",
        )
