"""A configuration with all there is to declare, and decoders for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from tidemark.canonical import Number
from tidemark.config.model import Config, FieldConfig, HttpConfig, IngestConfig, StreamConfig
from tidemark.ingress.decoder import Decoder
from tidemark.ingress.drafts import Draft, Entry, Original, Rejection
from tidemark.timestamps import parse_timestamp

SALT: Final = "vector-salt"
NOW_US: Final = parse_timestamp("2026-06-01T12:00:00Z")

USAGE: Final = {
    "tenantId": "t1",
    "metric": "api_calls",
    "customerRef": "c1",
    "ts": "2026-06-01T11:00:00Z",
    "quantity": "1.5",
}
TRADE: Final = {
    "trade_id": "x-1",
    "account": "a1",
    "side": "buy",
    "quantity": "100",
    "price": 12.5,
    "executed_at": "2026-06-01T10:00:00+01:00",
}
STREAM_EVENT: Final = {"stream": "trades", "tenantId": "t1", "data": TRADE}


def field(kind: Any, **settings: Any) -> FieldConfig:
    return FieldConfig(type=kind, **settings)


def a_config(**ingest: Any) -> Config:
    return Config(
        http=HttpConfig(max_events=50),
        ingest=IngestConfig(**ingest),
        streams={
            "usage": StreamConfig(kind="usage"),
            "trades": StreamConfig(
                identity=["trade_id"],
                fields={
                    "trade_id": field("string", max_length=40),
                    "account": field("string"),
                    "side": field("enum", values=["buy", "sell"]),
                    "quantity": field("decimal"),
                    "price": field("decimal"),
                    "executed_at": field("timestamp"),
                    "venue": field("string", required=False),
                },
            ),
            "everything": StreamConfig(
                identity=["a_string", "a_decimal", "a_json"],
                truncate=True,
                fields={
                    f"a_{kind}": field(
                        kind, required=False, values=["low", "high"] if kind == "enum" else None
                    )
                    for kind in (
                        "string",
                        "int",
                        "bigint",
                        "decimal",
                        "boolean",
                        "timestamp",
                        "json",
                        "enum",
                    )
                },
            ),
            "notes": StreamConfig(fields={"text": field("string")}),
        },
    )


DECODER: Final = Decoder(a_config(), SALT)


def encode(event: Any) -> bytes:
    return json.dumps(event).encode()


def spelled(tree: Any, order: Sequence[int] = ()) -> str:
    """JSON text with the members of each object moved about, and numbers as they are spelled."""
    if isinstance(tree, dict):
        members = list(tree.items())
        for place in order if members else ():
            members.append(members.pop(place % len(members)))
        inside = (f"{json.dumps(name)}:{spelled(member, order)}" for name, member in members)
        return "{" + ",".join(inside) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(spelled(member, order) for member in tree) + "]"
    return tree.text if isinstance(tree, Number) else json.dumps(tree)


def decode(event: Any, decoder: Decoder = DECODER) -> Entry:
    """What becomes of an event; it is given as JSON text or as what JSON text is made of."""
    raw = event if isinstance(event, bytes) else encode(event)
    return decoder.decode_event(raw, now_us=NOW_US)


def accepted(event: Any, decoder: Decoder = DECODER) -> Draft:
    entry = decode(event, decoder)
    assert isinstance(entry, Draft), entry
    return entry


def rejected(event: Any, decoder: Decoder = DECODER) -> tuple[str, str | None]:
    """The code and the field of the rejection, which explains itself."""
    entry = decode(event, decoder)
    assert isinstance(entry, Rejection), entry
    assert entry.message
    assert entry.hint
    return entry.code, entry.field


def decode_cloudevent(event: Any, decoder: Decoder = DECODER) -> Entry:
    raw = event if isinstance(event, bytes) else encode(event)
    (entry,) = decoder.decode_body("application/cloudevents+json", raw, now_us=NOW_US)
    return entry


def original_of(draft: Draft) -> Original:
    """What the ledger would know of an event it has stored."""
    return Original(draft.stream, draft.metric, draft.customer_ref, draft.control)
