"""Schemas of what the server answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidemark.ops.openapi.codes import REQUEST_CODES, by_status
from tidemark.ops.openapi.events import EXAMPLE_TENANT, reference
from tidemark.ops.openapi.values import SHOWN_SEQUENCE, SHOWN_TIME, Schema, described

_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_REQUEST_ID = described(_TEXT, "Names the request in the log and among the rejects.")
_KEY = described(_TEXT, "The key by which the event is known; its own, or the derived one.")
_SEQUENCE = described(SHOWN_SEQUENCE, "Its place in the order of all events.")
_RECEIVED = described(SHOWN_TIME, "When its commit was made, the time of everything derived.")
CURSOR = {
    "type": ["string", "null"],
    "description": "The `cursor` of the next page, together with the same filters; null at the "
    "end. A page may be short, even empty, before the end: the work for one page is bounded.",
}

EXAMPLE_RESULTS: Final = {
    "accepted": 1,
    "duplicates": 0,
    "conflicts": 0,
    "rejected": 1,
    "requestId": "5f0d9a6be2c4c113",
    "results": [
        {
            "status": "accepted",
            "idempotencyKey": "Yk2Ck0gD4vYJ1N0N9l9sAqyLr1mU8zUmkS0T2B3z0hM",
            "ingressSequence": "41",
            "receivedAt": "2025-01-31T12:00:00.123456Z",
        },
        {
            "status": "rejected",
            "error": {
                "code": "unknown_stream",
                "message": 'the stream "trade" is not declared',
                "hint": "Did you mean `trades`?",
                "field": "stream",
            },
        },
    ],
}


def answer_schemas() -> dict[str, Schema]:
    """The components that describe answers, by name."""
    placed = {"idempotencyKey": _KEY, "ingressSequence": _SEQUENCE, "receivedAt": _RECEIVED}
    error = reference("Error")
    results = {
        "accepted": ("Stored, and durable.", placed, list(placed)),
        "duplicate": ("The same event was stored before; this is its place.", placed, list(placed)),
        "conflict": (
            "An event with this key but other content was stored before, at this place. "
            "Nothing was stored.",
            placed | {"error": error},
            [*placed, "error"],
        ),
        "rejected": (
            "Not acceptable as it is. Nothing was stored.",
            {"error": error, "idempotencyKey": described(_TEXT, "The client's own key.")},
            ["error"],
        ),
    }
    schemas = {
        f"Result.{status}": object_schema(
            text, {"status": {"const": status}, **properties}, ["status", *required]
        )
        for status, (text, properties, required) in results.items()
    }
    return schemas | {
        "Result": {
            "description": "What became of one event.",
            "oneOf": [reference(f"Result.{status}") for status in results],
            "discriminator": {
                "propertyName": "status",
                "mapping": {s: f"#/components/schemas/Result.{s}" for s in results},
            },
        },
        "IngestAnswer": object_schema(
            "`results` has one entry for each event, in the order of the request.",
            {
                "accepted": described(_COUNT, "How many were stored."),
                "duplicates": described(_COUNT, "How many were there already."),
                "conflicts": described(_COUNT, "How many have a key that other content has."),
                "rejected": described(_COUNT, "How many are not acceptable."),
                "requestId": _REQUEST_ID,
                "results": {"type": "array", "items": reference("Result")},
            },
        ),
        "Error": object_schema(
            "The one shape of an error.",
            {
                "code": described(_TEXT, "What programs test for; it does not change."),
                "message": described(_TEXT, "What happened."),
                "hint": described(_TEXT, "What to do about it."),
                "field": described(_TEXT, "The path of the field, parameter or header at fault."),
            },
            ["code", "message", "hint"],
        ),
        "ErrorAnswer": object_schema(
            "A request that was refused as a whole.",
            {"error": error, "requestId": _REQUEST_ID},
        ),
        "StoredEvent": stored_event(),
        "EventPage": object_schema(
            "Events in the order in which they were committed.",
            {"events": {"type": "array", "items": reference("StoredEvent")}, "nextCursor": CURSOR},
        ),
        "Reject": _reject(),
        "RejectPage": object_schema(
            "Refused events, the newest first.",
            {"rejects": {"type": "array", "items": reference("Reject")}, "nextCursor": CURSOR},
        ),
        "ClockConfirmed": object_schema("Ingest goes on.", {"status": {"const": "confirmed"}}),
    }


def refusals(codes: Iterable[str]) -> dict[str, Schema]:
    """The responses of an operation that can be refused with these codes, by status."""
    responses = {}
    for status, of_status in by_status(codes).items():
        meanings = "\n".join(f"- `{code}`: {REQUEST_CODES[code].meaning}" for code in of_status)
        responses[str(status)] = {
            "description": meanings,
            "content": {"application/json": {"schema": reference("ErrorAnswer")}},
        }
        if headers := _headers_of(status):
            responses[str(status)]["headers"] = headers
    return responses


def _headers_of(status: int) -> Schema:
    seconds = {"type": "integer", "minimum": 1}
    if status == 429:
        text = "Seconds to wait before the same request is sent again."
        return {"Retry-After": {"description": text, "required": True, "schema": seconds}}
    if status in (503, 504):
        text = "Seconds to wait, where trying again helps."
        return {"Retry-After": {"description": text, "schema": seconds}}
    if status == 401:
        return {"WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}}}
    return {}


def object_schema(text: str, properties: Schema, required: list[str] | None = None) -> Schema:
    return {
        "type": "object",
        "description": text,
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


def stored_event() -> Schema:
    """One event of the ledger as it is shown."""
    always = {
        "ingressSequence": _SEQUENCE,
        "receivedAt": _RECEIVED,
        "occurredAt": described(SHOWN_TIME, "When it happened, as the sender says."),
        "tenantId": _TEXT,
        "stream": _TEXT,
        "idempotencyKey": _KEY,
        "contentHash": {
            "type": "string",
            "pattern": "^[0-9a-f]{64}$",
            "description": "SHA-256 of the canonical content.",
        },
    }
    sometimes = {
        "metric": _TEXT,
        "customerRef": _TEXT,
        "resourceId": _TEXT,
        "quantity": described(_TEXT, "Exact, in plain notation without trailing zeros."),
        "meta": {"type": "object", "description": "Of a usage event, in canonical form."},
        "data": {
            "type": "object",
            "description": "Of a stream event, in canonical form. Of a control event: its reason "
            "and what else belongs to it alone.",
        },
        "control": {"enum": ["void", "amend", "adjust", "end", "swap"]},
        "target": described(_TEXT, "The key of the event that a correction names."),
        "causalityKey": _TEXT,
        "source": _TEXT,
        "sourceId": described(_TEXT, "The id of a CloudEvent."),
        "globalSequence": described(
            SHOWN_SEQUENCE, "Its number across ledgers, where there is a sequence database."
        ),
    }
    schema = object_schema(
        "One event of the ledger. What an event does not have is left out.",
        always | sometimes,
        list(always),
    )
    schema["examples"] = [
        {
            "ingressSequence": "41",
            "receivedAt": "2025-01-31T12:00:00.123456Z",
            "occurredAt": "2025-01-31T12:00:00.000000Z",
            "tenantId": EXAMPLE_TENANT,
            "stream": "usage",
            "idempotencyKey": "Yk2Ck0gD4vYJ1N0N9l9sAqyLr1mU8zUmkS0T2B3z0hM",
            "contentHash": "6f1e1a96e6c4239561a45f78e1af85a8f6697d7f3737a2fe82a49290008f4fe9",
            "metric": "api_calls",
            "customerRef": "cus_42",
            "quantity": "12.5",
        }
    ]
    return schema


def _reject() -> Schema:
    always = {
        "rejectId": SHOWN_SEQUENCE,
        "rejectedAt": SHOWN_TIME,
        "requestId": _REQUEST_ID,
        "position": described(_COUNT, "Its index in the request."),
        "status": {"enum": ["rejected", "conflict"]},
        "error": reference("Error"),
        "body": described(_TEXT, "The event as it came, cut if it was long."),
    }
    sometimes = {
        "tenantId": _TEXT,
        "stream": _TEXT,
        "idempotencyKey": _TEXT,
        "originalSequence": described(SHOWN_SEQUENCE, "Of a conflict: the event stored before."),
    }
    return object_schema("One refused event and why.", always | sometimes, list(always))
