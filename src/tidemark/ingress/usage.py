"""Usage events: so much of a metric, by a customer, at a time."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from tidemark.canonical import Json
from tidemark.config.model import IngestConfig, StreamConfig
from tidemark.errors import EventRejected
from tidemark.ingress.drafts import Draft
from tidemark.ingress.envelopes import (
    COMMON_FIELDS,
    Envelope,
    QuickEvent,
    read_envelope,
    refuse_future,
)
from tidemark.ingress.fields import NotQuick, quick_decimal
from tidemark.ingress.identity import Identity
from tidemark.ingress.members import (
    MAX_KEY_LENGTH,
    Members,
    checked_timestamp,
    missing,
    name_limit,
    suggestion,
)
from tidemark.ingress.rejections import shown
from tidemark.ingress.schemas import ABSENT, DeclaredSchema, FreeSchema, Schema
from tidemark.timestamps import normalise_timestamp

CONTENT_FIELDS: Final = ("metric", "customerRef", "resourceId", "ts", "quantity", "meta")
AMENDED_FIELDS: Final = ("resourceId", "ts", "quantity", "meta")

# `meta` of a plain usage event stands one level below the event.
_META_DEPTH: Final = 2
_EMPTY: Final = b"{}"

_encode = msgspec.json.Encoder().encode
_sha256 = hashlib.sha256


# Structs encode in the order of definition, and canonical JSON is sorted.
class _Data(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    customerRef: str  # noqa: N815
    meta: msgspec.Raw = ABSENT
    metric: str
    quantity: str
    resourceId: str | None = None  # noqa: N815


class _Content(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    causalityKey: str | None = None  # noqa: N815
    data: _Data
    occurredAt: str | None = None  # noqa: N815
    stream: str
    tenantId: str  # noqa: N815


class UsageStream:
    """Reads the events of the usage stream."""

    def __init__(
        self, name: str, stream: StreamConfig, limits: IngestConfig, identity: Identity
    ) -> None:
        self.name = name
        self.field_names = frozenset(CONTENT_FIELDS)
        self._truncate = stream.truncate
        self._limits = limits
        self._max_length = limits.max_string_length
        self._max_name_length = name_limit(limits.max_string_length)
        self._identity = identity
        self._metrics = None if stream.metrics is None else frozenset(stream.metrics)
        self._metrics_in_order = stream.metrics or []
        self._meta: Schema = FreeSchema(limits, _META_DEPTH)
        self._meta_required = False
        if stream.fields:
            self._meta = DeclaredSchema(
                stream.fields, limits, _META_DEPTH, truncate=stream.truncate
            )
            self._meta_required = any(field.required for field in stream.fields.values())

    def quick(self, event: QuickEvent, horizon_us: int) -> Draft:
        """The draft of a plain usage event that is in order; else an error, and `read` decides."""
        tenant_id = event.tenantId
        metric = event.metric
        customer_ref = event.customerRef
        resource_id = event.resourceId
        ts = event.ts
        key = event.idempotencyKey
        causality_key = event.causalityKey
        source = event.source
        longest = self._max_length
        longest_name = self._max_name_length
        if (
            not metric
            or not customer_ref
            or not tenant_id
            or ts is None
            or event.stream is not None
            or event.data is not ABSENT
            or event.occurredAt is not None
            or len(tenant_id) > longest_name
            or len(metric) > longest_name
            or len(customer_ref) > longest_name
            or (resource_id is not None and len(resource_id) > longest)
            or (key is not None and not 0 < len(key) <= MAX_KEY_LENGTH)
            or (causality_key is not None and not 0 < len(causality_key) <= MAX_KEY_LENGTH)
            or (source is not None and not 0 < len(source) <= longest)
            or (self._metrics is not None and metric not in self._metrics)
        ):
            raise NotQuick
        occurred_at, occurred_text = normalise_timestamp(ts, truncate=self._truncate)
        if occurred_at > horizon_us:
            raise NotQuick
        quantity = quick_decimal(event.quantity)
        meta = None
        if event.meta is not ABSENT:
            meta = self._meta.quick(event.meta).text
            if meta == _EMPTY:
                meta = None
        elif self._meta_required:
            raise NotQuick
        if key is None:
            key = self._identity.usage_key(
                tenant_id, metric, customer_ref, resource_id, occurred_text
            )
        content = self._content_hash(
            tenant_id,
            metric,
            customer_ref,
            resource_id,
            occurred_text,
            quantity,
            meta,
            causality_key,
        )
        return Draft(
            tenant_id,
            self.name,
            key,
            content,
            occurred_at,
            metric,
            customer_ref,
            resource_id,
            quantity,
            None if meta is None else meta.decode(),
            causality_key,
            source,
        )

    def read_plain(self, tree: dict[str, Json], horizon_us: int) -> Draft:
        """The draft of a plain usage event."""
        members = Members(tree)
        members.only(*COMMON_FIELDS, *CONTENT_FIELDS)
        return self.read(tree, "", read_envelope(members, self._limits), horizon_us)

    def read(
        self, content: dict[str, Json], path: str, envelope: Envelope, horizon_us: int
    ) -> Draft:
        """The draft of the usage event whose own fields are in `content`, which stands at `path`.

        Its time is its `ts`, or else that of the envelope.
        """
        members = Members(content, path)
        metric = self.read_metric(members)
        customer_ref = self.read_customer(members)
        occurred, occurred_path = envelope.occurred, envelope.occurred_path
        if members.has("ts"):
            occurred, occurred_path = members.value("ts"), members.path("ts")
        occurred_at = occurred_text = None
        if occurred is not None:
            occurred_at, occurred_text = checked_timestamp(
                occurred, occurred_path, truncate=self._truncate
            )
            refuse_future(occurred_at, horizon_us, occurred_path)
        resource_id, quantity, meta = self.read_amount(members)
        key = envelope.idempotency_key
        if key is None:
            if occurred_text is None:
                raise missing(
                    members.path("ts"),
                    "Add the time of the event; without it an event needs an `idempotencyKey`.",
                )
            key = self._identity.usage_key(
                envelope.tenant_id, metric, customer_ref, resource_id, occurred_text
            )
        return Draft(
            tenant_id=envelope.tenant_id,
            stream=self.name,
            idempotency_key=key,
            content_hash=self._content_hash(
                envelope.tenant_id,
                metric,
                customer_ref,
                resource_id,
                occurred_text,
                quantity,
                meta,
                envelope.causality_key,
            ),
            occurred_at=occurred_at,
            metric=metric,
            customer_ref=customer_ref,
            resource_id=resource_id,
            quantity=quantity,
            data=None if meta is None else meta.decode(),
            causality_key=envelope.causality_key,
            source=envelope.source,
            source_id=envelope.source_id,
        )

    def read_metric(self, members: Members) -> str:
        metric = members.text("metric", self._max_name_length)
        if self._metrics is not None and metric not in self._metrics:
            raise EventRejected(
                f"the metric {shown(metric)} is not declared",
                code="unknown_metric",
                field=members.path("metric"),
                hint=suggestion(metric, self._metrics_in_order),
            )
        return metric

    def read_customer(self, members: Members) -> str:
        return members.text("customerRef", self._max_name_length)

    def read_amount(self, members: Members) -> tuple[str | None, str, bytes | None]:
        """Resource, quantity and canonical `meta`; no `meta` and an empty one are the same."""
        resource_id = members.optional_text("resourceId", self._max_length, empty=True)
        quantity = members.decimal("quantity")
        meta = None
        if members.has("meta") or self._meta_required:
            tree = members.object("meta") if members.has("meta") else {}
            meta = self._meta.read(tree, members.path("meta")).text
        return resource_id, quantity, None if meta == _EMPTY else meta

    def read_time(self, members: Members, name: str) -> tuple[int, str]:
        return members.timestamp(name, truncate=self._truncate)

    def _content_hash(
        self,
        tenant_id: str,
        metric: str,
        customer_ref: str,
        resource_id: str | None,
        occurred_text: str | None,
        quantity: str,
        meta: bytes | None,
        causality_key: str | None,
    ) -> bytes:
        content = _Content(
            causalityKey=causality_key,
            data=_Data(
                customerRef=customer_ref,
                meta=ABSENT if meta is None else msgspec.Raw(meta),
                metric=metric,
                quantity=quantity,
                resourceId=resource_id,
            ),
            occurredAt=occurred_text,
            stream=self.name,
            tenantId=tenant_id,
        )
        return _sha256(_encode(content)).digest()
