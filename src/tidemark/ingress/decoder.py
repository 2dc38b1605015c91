"""From the bytes of a request to one entry per event: a draft, a correction or a rejection.

Every event is read quickly first. What that does not accept is read again with care, and the
careful reading alone decides and explains. So the quick path may pass on what it likes, but must
never accept what the careful one refuses, nor read it differently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from tidemark.canonical import Json, canonical_json
from tidemark.config.model import Config
from tidemark.errors import EventRejected, RequestError
from tidemark.ingress.bodies import single_event, split_array, split_events
from tidemark.ingress.catalogue import Catalogue
from tidemark.ingress.cloudevents import CloudEvents
from tidemark.ingress.controls import CONTROL_FIELDS, Controls, correction_claims
from tidemark.ingress.drafts import Correction, Draft, Entry, Original, Rejection
from tidemark.ingress.envelopes import COMMON_FIELDS, QuickEvent, read_envelope
from tidemark.ingress.fields import NotQuick
from tidemark.ingress.identity import Identity
from tidemark.ingress.media import BodyForm, body_form
from tidemark.ingress.members import Members, missing
from tidemark.ingress.rejections import reject
from tidemark.ingress.trees import check_tree, parse_tree
from tidemark.ingress.usage import CONTENT_FIELDS, UsageStream

# Whether the caller may send this tenant's events (with True: its control events); None if so.
AccessCheck: TypeAlias = Callable[[str, bool], EventRejected | None]

_Read: TypeAlias = Callable[[dict[str, Json], int], Draft | Correction]

# A NUL can only come as this escape, and the quick reading would let it pass.
_NUL_ESCAPE: Final = b"\\u0000"
# All that the quick reading may raise for an event it does not accept.
_NOT_QUICK: Final = (NotQuick, EventRejected, msgspec.MsgspecError, ValueError, RecursionError)

_KNOWN_FIELDS: Final = frozenset((*QuickEvent.__struct_fields__, *CONTROL_FIELDS))
# An event with one of these is no plain usage event, even if it names no stream.
_OF_OTHER_KINDS: Final = frozenset(("control", "data", "type", "specversion"))

_decode = msgspec.json.Decoder(QuickEvent).decode


class Decoder:
    """Validates, normalises and identifies events for one configuration and one salt."""

    def __init__(self, config: Config, salt: bytes | str) -> None:
        identity = Identity(salt)
        self._catalogue = Catalogue(config, identity)
        self._controls = Controls(self._catalogue, config.ingest, identity)
        self._cloudevents = CloudEvents(self._catalogue, config.ingest)
        self._limits = config.ingest
        self._max_event_bytes = config.ingest.max_event_bytes
        self._http = config.http
        self._usage = self._catalogue.usage
        self._by_name = self._catalogue.by_name

    def decode_body(
        self,
        content_type: str | None,
        body: bytes,
        *,
        now_us: int,
        allow: AccessCheck | None = None,
        content_encoding: str | None = None,
        binary_mode: bool = False,
    ) -> list[Entry]:
        """One entry per event of a request's body, in order.

        Raises `RequestError` for what concerns the request as a whole. `allow` is asked for each
        event whose tenant is known; without it every tenant is allowed. `binary_mode` says that
        the request has `ce-` headers.
        """
        form = body_form(content_type, content_encoding, binary_mode=binary_mode)
        if len(body) > self._http.max_body_bytes:
            raise RequestError(
                f"the body has {len(body)} bytes",
                status=413,
                code="body_too_large",
                hint=f"At most {self._http.max_body_bytes} bytes (`http.max_body_bytes`).",
            )
        horizon_us = now_us + self._limits.future_limit_us
        if form is BodyForm.EVENTS:
            events = split_events(body, self._http.max_events)
            clean = _NUL_ESCAPE not in body
            entries = [
                self._entry(raw, horizon_us, clean or _NUL_ESCAPE not in raw) for raw in events
            ]
        else:
            if form is BodyForm.CLOUDEVENT:
                events = [single_event(body)]
            else:
                events = split_array(body, self._http.max_events)
            entries = [self._careful(raw, horizon_us, self._cloudevents.read) for raw in events]
        if allow is None:
            return entries
        return [_admitted(entry, raw, allow) for entry, raw in zip(entries, events, strict=True)]

    def decode_event(self, raw: bytes, *, now_us: int) -> Entry:
        """The entry of one plain event; never raises."""
        quickly = _NUL_ESCAPE not in raw
        return self._entry(raw, now_us + self._limits.future_limit_us, quickly)

    def resolve(self, correction: Correction, original: Original | None) -> Draft | Rejection:
        """The finished correction of the original it names, or why there is none."""
        try:
            return self._controls.resolve(correction, original)
        except EventRejected as error:
            claims = correction_claims(correction)
            stream = None if original is None else original.stream
            return reject(error, canonical_json(claims), claims, stream)

    def _entry(self, raw: bytes, horizon_us: int, quickly: bool) -> Entry:
        if quickly and len(raw) <= self._max_event_bytes:
            try:
                event = _decode(raw)
                reader = self._usage if event.stream is None else self._by_name.get(event.stream)
                if reader is not None:
                    return reader.quick(event, horizon_us)
            except _NOT_QUICK:
                pass
        return self._careful(raw, horizon_us, self._read_plain)

    def _careful(self, raw: bytes, horizon_us: int, read: _Read) -> Entry:
        tree: Json = None
        try:
            if len(raw) > self._limits.max_event_bytes:
                raise EventRejected(
                    f"the event has {len(raw)} bytes",
                    code="event_too_large",
                    hint=f"At most {self._limits.max_event_bytes} (`ingest.max_event_bytes`).",
                )
            tree = parse_tree(raw, max_depth=self._limits.max_json_depth)
            check_tree(tree, max_depth=self._limits.max_json_depth)
            if not isinstance(tree, dict):
                raise EventRejected(
                    "the event is not an object",
                    code="malformed_event",
                    hint="Send each event as one JSON object.",
                )
            return read(tree, horizon_us)
        except EventRejected as error:
            stream = None
            if isinstance(tree, dict) and tree.keys().isdisjoint(_OF_OTHER_KINDS):
                stream = None if self._usage is None else self._usage.name
            return reject(error, raw, tree, stream)

    def _read_plain(self, tree: dict[str, Json], horizon_us: int) -> Draft | Correction:
        # A known field that is null is absent, whichever kind of event it belongs to.
        tree = {
            name: value
            for name, value in tree.items()
            if value is not None or name not in _KNOWN_FIELDS
        }
        if "control" in tree:
            return self._controls.read(tree, horizon_us)
        if "stream" in tree:
            return self._read_stream(tree, horizon_us)
        if "specversion" in tree:
            raise EventRejected(
                "a CloudEvent stands among plain events",
                code="unknown_field",
                field="specversion",
                hint="Send CloudEvents as application/cloudevents+json or -batch+json.",
            )
        if "data" in tree:
            raise missing("stream", "Name the stream that the event belongs to.")
        return self._catalogue.require_usage().read_plain(tree, horizon_us)

    def _read_stream(self, tree: dict[str, Json], horizon_us: int) -> Draft:
        members = Members(tree)
        name = members.text("stream", self._limits.max_string_length)
        stream = self._catalogue.find(name, "stream")
        members.only(*COMMON_FIELDS, "stream", "data", "occurredAt")
        envelope = read_envelope(members, self._limits)
        if members.has("occurredAt"):
            envelope.occurred = members.value("occurredAt")
        data = members.object("data")
        if isinstance(stream, UsageStream):
            Members(data, "data").only(*CONTENT_FIELDS)
        return stream.read(data, "data", envelope, horizon_us)


def _admitted(entry: Entry, raw: bytes, allow: AccessCheck) -> Entry:
    """The entry, or its rejection if the caller may not act for its tenant."""
    tenant_id = entry.tenant_id
    if tenant_id is None:
        return entry
    if isinstance(entry, Rejection):
        # What kind of event it was meant to be is not known: the tenant's name is no secret to
        # those who may send either.
        refusal = allow(tenant_id, False) and allow(tenant_id, True)
    else:
        refusal = allow(tenant_id, entry.control is not None)
    if refusal is None:
        return entry
    stream = None if isinstance(entry, Correction) else entry.stream
    claims: dict[str, Json] = {"tenantId": tenant_id, "idempotencyKey": entry.idempotency_key}
    return reject(refusal, raw, claims, stream)
