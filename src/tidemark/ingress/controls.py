"""Control events: what changes the meaning of other events is itself an event.

`adjust` and `end` stand on their own. `void` and `amend` correct an event that only the ledger
knows, so they are read in two steps: `read` checks what can be checked without the original, and
`resolve` judges the correction once the original is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tidemark.canonical import Json, canonical_json, content_hash
from tidemark.config.model import IngestConfig
from tidemark.errors import EventRejected
from tidemark.ingress.catalogue import Catalogue
from tidemark.ingress.drafts import Control, Correction, Draft, Original
from tidemark.ingress.envelopes import COMMON_FIELDS, Envelope, read_envelope, refuse_future
from tidemark.ingress.identity import Identity
from tidemark.ingress.members import (
    MAX_KEY_LENGTH,
    Members,
    checked_object,
    checked_timestamp,
    suggestion,
    wrong_type,
)
from tidemark.ingress.rejections import shown
from tidemark.ingress.streams import EventStream
from tidemark.ingress.trees import canonical_tree, parse_tree, read_tree
from tidemark.ingress.usage import AMENDED_FIELDS, UsageStream

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "void": ("target",),
    "amend": ("target", "event"),
    "adjust": ("metric", "customerRef", "periodStart", "quantity"),
    "end": ("stream",),
}
CONTROL_FIELDS: Final = ("control", "reason", *(name for own in _FIELDS.values() for name in own))
# What an amend may repeat but not change.
_FIXED_FIELDS: Final = ("tenantId", "stream", "metric", "customerRef")


class Controls:
    """Reads control events and judges corrections."""

    def __init__(self, catalogue: Catalogue, limits: IngestConfig, identity: Identity) -> None:
        self._catalogue = catalogue
        self._limits = limits
        self._identity = identity

    def read(self, tree: dict[str, Json], horizon_us: int) -> Draft | Correction:
        members = Members(tree)
        control = members.value("control")
        if not isinstance(control, str):
            raise wrong_type(control, "control", "a string")
        if control not in _FIELDS:
            raise EventRejected(
                f"the control {shown(control)} is not known",
                code="unknown_control",
                field="control",
                hint=suggestion(control, tuple(_FIELDS)),
            )
        members.only(*COMMON_FIELDS, "control", "reason", *_FIELDS[control])
        envelope = read_envelope(members, self._limits)
        if control == "adjust":
            return self._adjust(members, envelope)
        reason = members.optional_text("reason", self._limits.max_string_length)
        if control == "end":
            return self._end(members, envelope, reason)
        event = None
        if control == "amend":
            content = members.object("event")
            for name in ("ts", "occurredAt"):
                if content.get(name) is not None:
                    path = f"event.{name}"
                    # Whether the time is too precise is for the original's stream to say.
                    us, _ = checked_timestamp(content[name], path, truncate=True)
                    refuse_future(us, horizon_us, path)
            event = canonical_tree(content, "event")
        return Correction(
            tenant_id=envelope.tenant_id,
            control="amend" if event is not None else "void",
            target_key=members.text("target", MAX_KEY_LENGTH),
            idempotency_key=envelope.idempotency_key,
            event=event,
            reason=reason,
            causality_key=envelope.causality_key,
            source=envelope.source,
        )

    def resolve(self, correction: Correction, original: Original | None) -> Draft:
        """The finished correction, or `EventRejected` if it may not correct this original."""
        if original is None:
            raise EventRejected(
                f"the tenant has no earlier event with the key {shown(correction.target_key)}",
                code="unknown_target",
                field="target",
                hint="Name the `idempotencyKey` that was returned for an event sent before this.",
            )
        _refuse_other_controls(correction.control, original.control)
        content: dict[str, object] = {
            "control": correction.control,
            "target": correction.target_key,
            "tenantId": correction.tenant_id,
        }
        data: dict[str, object] = {}
        if correction.reason is not None:
            content["reason"] = data["reason"] = correction.reason
        draft = Draft(
            tenant_id=correction.tenant_id,
            stream=original.stream,
            idempotency_key="",
            content_hash=b"",
            occurred_at=None,
            metric=original.metric,
            customer_ref=original.customer_ref,
            causality_key=correction.causality_key,
            source=correction.source,
            control=correction.control,
            target_key=correction.target_key,
        )
        if correction.event is not None:
            content["event"] = data["event"] = self._amended(correction.event, original, draft)
        draft.data = canonical_json(data).decode()
        return self._with_identity(
            draft, content, [correction.target_key], correction.idempotency_key
        )

    def _adjust(self, members: Members, envelope: Envelope) -> Draft:
        usage = self._catalogue.require_usage()
        metric = usage.read_metric(members)
        customer_ref = usage.read_customer(members)
        _, period_start = usage.read_time(members, "periodStart")
        quantity = members.decimal("quantity")
        reason = members.text("reason", self._limits.max_string_length)
        own = {
            "customerRef": customer_ref,
            "metric": metric,
            "periodStart": period_start,
            "quantity": quantity,
        }
        draft = _draft(envelope, usage.name, "adjust")
        draft.metric = metric
        draft.customer_ref = customer_ref
        draft.quantity = quantity
        draft.data = canonical_json({"periodStart": period_start, "reason": reason}).decode()
        content = {"control": "adjust", "reason": reason, "tenantId": envelope.tenant_id, **own}
        subject = [metric, customer_ref, period_start, quantity]
        return self._with_identity(draft, content, subject, envelope.idempotency_key)

    def _end(self, members: Members, envelope: Envelope, reason: str | None) -> Draft:
        name = members.text("stream", self._limits.max_string_length)
        stream = self._catalogue.find(name, "stream")
        data = {} if reason is None else {"reason": reason}
        draft = _draft(envelope, stream.name, "end")
        draft.data = canonical_json(data).decode()
        content = {
            "control": "end",
            "stream": stream.name,
            "tenantId": envelope.tenant_id,
            **data,
        }
        return self._with_identity(draft, content, [stream.name], envelope.idempotency_key)

    def _amended(self, event: bytes, original: Original, draft: Draft) -> dict[str, object]:
        """The new content in normal form; what of it has its own place is put into the draft."""
        tree = read_tree(event, max_depth=self._limits.max_json_depth)
        members = Members(checked_object(tree, "event"), "event")
        stream = self._catalogue.find(original.stream, "target")
        if isinstance(stream, UsageStream):
            members.only(*_FIXED_FIELDS, *AMENDED_FIELDS)
        else:
            members.only("tenantId", "stream", "data", "occurredAt")
        _refuse_changed_identity(members, draft)
        if isinstance(stream, EventStream):
            return _amended_event(stream, members, draft)
        return _amended_usage(stream, members, draft)

    def _with_identity(
        self,
        draft: Draft,
        content: Mapping[str, object],
        subject: Sequence[str],
        client_key: str | None,
    ) -> Draft:
        causality = {} if draft.causality_key is None else {"causalityKey": draft.causality_key}
        draft.content_hash = content_hash({**content, **causality})
        draft.idempotency_key = client_key or self._identity.control_key(
            draft.tenant_id, str(draft.control), subject, draft.content_hash
        )
        return draft


def correction_claims(correction: Correction) -> dict[str, Json]:
    """A correction as the client might have written it, to be kept with its rejection."""
    claims: dict[str, Json] = {
        "control": correction.control,
        "tenantId": correction.tenant_id,
        "target": correction.target_key,
        "idempotencyKey": correction.idempotency_key,
        "reason": correction.reason,
        "causalityKey": correction.causality_key,
        "source": correction.source,
    }
    if correction.event is not None:
        claims["event"] = parse_tree(correction.event, max_depth=1)
    return {name: value for name, value in claims.items() if value is not None}


def _draft(envelope: Envelope, stream: str, control: Control) -> Draft:
    """A control event without its content; key and hash follow from that."""
    return Draft(
        tenant_id=envelope.tenant_id,
        stream=stream,
        idempotency_key="",
        content_hash=b"",
        occurred_at=None,
        causality_key=envelope.causality_key,
        source=envelope.source,
        control=control,
    )


def _amended_usage(stream: UsageStream, members: Members, draft: Draft) -> dict[str, object]:
    draft.occurred_at, ts = stream.read_time(members, "ts")
    draft.resource_id, draft.quantity, meta = stream.read_amount(members)
    event: dict[str, object] = {"quantity": draft.quantity, "ts": ts}
    if draft.resource_id is not None:
        event["resourceId"] = draft.resource_id
    if meta is not None:
        event["meta"] = msgspec.Raw(meta)
    return event


def _amended_event(stream: EventStream, members: Members, draft: Draft) -> dict[str, object]:
    occurred = members.value("occurredAt") if members.has("occurredAt") else None
    draft.occurred_at, occurred_text = stream.read_time(occurred, members.path("occurredAt"))
    data = stream.read_data(members.object("data"), members.path("data"))
    event: dict[str, object] = {"data": msgspec.Raw(data.text)}
    if occurred_text is not None:
        event["occurredAt"] = occurred_text
    return event


def _refuse_other_controls(control: Control, target: Control | None) -> None:
    if target in ("void", "amend"):
        raise EventRejected(
            f"the target is itself a correction (`{target}`)",
            code="target_is_correction",
            field="target",
            hint="Name the original event: the latest correction of it is the one that counts.",
        )
    if target in ("end", "swap") or (target == "adjust" and control == "amend"):
        raise EventRejected(
            f"`{control}` cannot be applied to `{target}`",
            code="target_not_correctable",
            field="target",
            hint="An `adjust` can be voided and made again; `end` and `swap` cannot be undone.",
        )


def _refuse_changed_identity(members: Members, draft: Draft) -> None:
    before = {
        "tenantId": draft.tenant_id,
        "stream": draft.stream,
        "metric": draft.metric,
        "customerRef": draft.customer_ref,
    }
    for name in _FIXED_FIELDS:
        if members.has(name) and members.value(name) != before[name]:
            raise EventRejected(
                f"an amend may not change `{name}`",
                code="amend_changes_identity",
                field=members.path(name),
                hint="Leave it out. To move an event elsewhere, void it and send a new one.",
            )
