"""CloudEvents 1.0 in JSON: another envelope around the same events.

`type` names the stream, `time` is the event's time, and the tenant is the extension `tenantid` or
`data.tenantId`. The extensions `causalitykey` and `idempotencykey` mean what the plain fields mean.
Other extensions, `subject` and `dataschema` are ignored: they are the transport's, not the event's.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from tidemark.canonical import Json
from tidemark.config.model import IngestConfig
from tidemark.errors import EventRejected
from tidemark.ingress.catalogue import Catalogue
from tidemark.ingress.drafts import Draft
from tidemark.ingress.envelopes import Envelope
from tidemark.ingress.members import MAX_KEY_LENGTH, Members, checked_object, missing, name_limit
from tidemark.ingress.rejections import shown
from tidemark.ingress.trees import read_tree
from tidemark.ingress.usage import CONTENT_FIELDS, UsageStream

SPECVERSION: Final = "1.0"

_JSON_MEDIA_TYPE = re.compile(r"[^/;\s]+/(?:[^/;\s]+\+)?json\s*(?:;.*)?", re.IGNORECASE).fullmatch


class CloudEvents:
    """Reads CloudEvents into drafts."""

    def __init__(self, catalogue: Catalogue, limits: IngestConfig) -> None:
        self._catalogue = catalogue
        self._limits = limits

    def read(self, tree: dict[str, Json], horizon_us: int) -> Draft:
        """The draft of one CloudEvent; the same as that of the plain form of its event."""
        members = Members(tree)
        longest = self._limits.max_string_length
        version = members.text("specversion", longest)
        if version != SPECVERSION:
            raise EventRejected(
                f"CloudEvents {shown(version)} is not supported",
                code="unsupported_specversion",
                field="specversion",
                hint=f'Send specversion "{SPECVERSION}".',
            )
        event_id = members.text("id", longest)
        source = members.text("source", longest)
        stream = self._catalogue.find(members.text("type", longest), "type")
        data = dict(self._data(members))
        # A field that the stream itself calls tenantId is data like any other.
        shared = {} if members.has("tenantid") and "tenantId" in stream.field_names else data
        tenant_id = _either(
            members, "tenantid", Members(shared, "data"), "tenantId", name_limit(longest)
        )
        if tenant_id is None:
            raise missing("tenantid", "Add the extension `tenantid`, or `tenantId` to the data.")
        envelope = Envelope(
            tenant_id=tenant_id,
            idempotency_key=members.optional_text("idempotencykey", MAX_KEY_LENGTH),
            causality_key=members.optional_text("causalitykey", MAX_KEY_LENGTH),
            source=source,
            source_id=event_id,
            occurred=members.value("time") if members.has("time") else None,
            occurred_path="time",
        )
        if isinstance(stream, UsageStream):
            # The data may be a whole plain usage event.
            inside = Members(data, "data")
            inside.only(*CONTENT_FIELDS, "tenantId", "idempotencyKey", "causalityKey")
            envelope.idempotency_key = _either(
                members, "idempotencykey", inside, "idempotencyKey", MAX_KEY_LENGTH
            )
            envelope.causality_key = _either(
                members, "causalitykey", inside, "causalityKey", MAX_KEY_LENGTH
            )
        elif "tenantId" not in stream.field_names:
            data.pop("tenantId", None)
        return stream.read(data, "data", envelope, horizon_us)

    def _data(self, members: Members) -> dict[str, Json]:
        if members.has("datacontenttype"):
            media_type = members.text("datacontenttype", self._limits.max_string_length)
            if _JSON_MEDIA_TYPE(media_type) is None:
                raise EventRejected(
                    f"data of type {shown(media_type)} cannot be read",
                    code="unsupported_data",
                    field="datacontenttype",
                    hint="Send the data as JSON, with datacontenttype application/json or none.",
                )
        if not members.has("data_base64"):
            return members.object("data")
        if members.has("data"):
            raise EventRejected(
                "an event has either `data` or `data_base64`",
                code="unsupported_data",
                field="data_base64",
                hint="Leave one of them out.",
            )
        encoded = members.text("data_base64", self._limits.max_event_bytes * 2)
        try:
            raw = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise EventRejected(
                "`data_base64` is not base64",
                code="unsupported_data",
                field="data_base64",
                hint="Send the data as JSON in `data`.",
            ) from None
        tree = read_tree(raw, max_depth=self._limits.max_json_depth - 1, root="data")
        return checked_object(tree, "data")


def _either(
    members: Members, extension: str, data: Members, name: str, max_length: int
) -> str | None:
    """What the extension or the data says; if both do, they must say the same."""
    outside = members.optional_text(extension, max_length)
    inside = data.optional_text(name, max_length)
    if outside is not None and inside is not None and outside != inside:
        raise EventRejected(
            f"`{extension}` is {shown(outside)}, `{data.path(name)}` is {shown(inside)}",
            code="fields_disagree",
            field=data.path(name),
            hint="Say it once, or the same twice.",
        )
    return inside if outside is None else outside
