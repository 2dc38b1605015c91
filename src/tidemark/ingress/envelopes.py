"""What surrounds an event's own content, whichever form it came in."""

from __future__ import annotations

import msgspec

from tidemark.canonical import Json
from tidemark.config.model import IngestConfig
from tidemark.errors import EventRejected
from tidemark.ingress.members import MAX_KEY_LENGTH, Members, name_limit
from tidemark.ingress.schemas import ABSENT
from tidemark.timestamps import format_timestamp

COMMON_FIELDS = ("tenantId", "causalityKey", "idempotencyKey", "source")


class Envelope(msgspec.Struct, gc=False):
    """Whose event it is and by what key; checked.

    `occurred` is the time as the client wrote it and `occurred_path` where, because only the stream
    knows how precise a time may be. `source_id` is the id of a CloudEvent.
    """

    tenant_id: str
    idempotency_key: str | None = None
    causality_key: str | None = None
    source: str | None = None
    source_id: str | None = None
    occurred: Json = None
    occurred_path: str = "occurredAt"


def read_envelope(members: Members, limits: IngestConfig) -> Envelope:
    """The fields that usage, stream and control events have in common."""
    return Envelope(
        tenant_id=members.text("tenantId", name_limit(limits.max_string_length)),
        idempotency_key=members.optional_text("idempotencyKey", MAX_KEY_LENGTH),
        causality_key=members.optional_text("causalityKey", MAX_KEY_LENGTH),
        source=members.optional_text("source", limits.max_string_length),
    )


def refuse_future(us: int, horizon_us: int, path: str) -> None:
    """Refuses a time beyond the horizon, which is now plus `ingest.future_limit`."""
    if us > horizon_us:
        raise EventRejected(
            f"{format_timestamp(us)} is later than {format_timestamp(horizon_us)}, "
            "the latest time that is accepted now",
            code="future_timestamp",
            field=path,
            hint="Check the sender's clock; the limit is `ingest.future_limit`.",
        )


class QuickEvent(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A plain event of any kind as msgspec decodes it. Bounds and presence are the reader's to
    check, since they depend on the configuration and on the kind."""

    tenantId: str  # noqa: N815
    metric: str | None = None
    customerRef: str | None = None  # noqa: N815
    resourceId: str | None = None  # noqa: N815
    ts: str | None = None
    quantity: msgspec.Raw = ABSENT
    meta: msgspec.Raw = ABSENT
    causalityKey: str | None = None  # noqa: N815
    idempotencyKey: str | None = None  # noqa: N815
    source: str | None = None
    stream: str | None = None
    data: msgspec.Raw = ABSENT
    occurredAt: str | None = None  # noqa: N815
