"""Query parameters of what can be listed, read strictly, and the cursors that are given out."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from tidemark.errors import EventRejected, RequestError
from tidemark.ledger.port import EventFilter
from tidemark.timestamps import parse_timestamp
from tidemark.web.access import Caller, visible_tenants

EVENT_PARAMETERS = (
    "tenantId",
    "stream",
    "causalityKey",
    "metric",
    "customerRef",
    "sequenceFrom",
    "sequenceTo",
    "receivedFrom",
    "receivedTo",
    "occurredFrom",
    "occurredTo",
)
CURSOR_VERSION = 1
MAX_SEQUENCE = 2**63 - 1

SEQUENCE_PATTERN: Final = "^[0-9]{1,19}$"
CURSOR_PATTERN: Final = "^[A-Za-z0-9_-]{1,512}$"
# One that holds the key of a row, which may have 1,024 bytes.
LONG_CURSOR_PATTERN: Final = "^[A-Za-z0-9_-]{1,4096}$"
# What says how to answer, and not which entries are asked for.
_NO_FILTERS: Final = frozenset({"cursor", "limit", "format", "minSequence", "timeoutMs"})

_SEQUENCE = re.compile(SEQUENCE_PATTERN.strip("^$")).fullmatch

P = TypeVar("P")
# What a position may hold: anybody can make up a cursor, so what no store could look for is none.
PlaceNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQUENCE)]
PlaceText: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[^\x00]*\Z")]


class Cursor(msgspec.Struct, rename={"version": "v", "position": "p", "query": "q"}):
    """Where a listing goes on; it belongs to the query that it was given for."""

    version: int
    position: msgspec.Raw
    query: str


def event_filter(query: dict[str, str], caller: Caller) -> EventFilter:
    """The events a reader asks for, within the tenants that it may see."""
    return EventFilter(
        tenant_ids=visible_tenants(caller, query.get("tenantId")),
        stream=query.get("stream"),
        causality_key=query.get("causalityKey"),
        metric=query.get("metric"),
        customer_ref=query.get("customerRef"),
        sequence_from=sequence_of(query, "sequenceFrom"),
        sequence_to=sequence_of(query, "sequenceTo"),
        received_from=time_of(query, "receivedFrom"),
        received_to=time_of(query, "receivedTo"),
        occurred_from=time_of(query, "occurredFrom"),
        occurred_to=time_of(query, "occurredTo"),
    )


def sequence_of(query: dict[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if _SEQUENCE(text) is None:
        raise invalid(name, "is not a sequence", "Give a whole number from 0 on, such as 42.")
    # No event is beyond the largest number a ledger can hold, so neither need a question be.
    return min(int(text), MAX_SEQUENCE)


def time_of(query: dict[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    try:
        return parse_timestamp(text, truncate=True)
    except EventRejected as error:
        if error.code == "timestamp_out_of_range":
            # Nothing is stored out there, so as a bound it is as good as the end of the range.
            return 0 if text[:4] <= "1970" else MAX_SEQUENCE
        raise invalid(name, error.message, error.hint) from None


def limit_of(query: dict[str, str], default: int, most: int) -> int:
    text = query.get("limit")
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise invalid("limit", "is not possible", f"Give a whole number from 1 to {most}.")
    return int(text)


def invalid(name: str, what: str, hint: str) -> RequestError:
    return RequestError(f"{name} {what}", code="invalid_parameter", field=name, hint=hint)


def encode_cursor(position: object, query: dict[str, str]) -> str:
    cursor = Cursor(CURSOR_VERSION, msgspec.Raw(msgspec.json.encode(position)), _fingerprint(query))
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).rstrip(b"=").decode()


def decode_cursor(query: dict[str, str]) -> int | None:
    """The number that a cursor stands for."""
    position = decode_position(query, int, CURSOR_PATTERN)
    if position is not None and not 0 <= position <= MAX_SEQUENCE:
        raise unknown_cursor("is not one of ours", "Send a nextCursor as it came.")
    return position


def decode_position(
    query: dict[str, str], kind: type[P], pattern: str = LONG_CURSOR_PATTERN
) -> P | None:
    """The position a cursor stands for.

    What cannot be a cursor is an invalid parameter. What could be one but was never given out for
    this query names a page that does not exist.
    """
    text = query.get("cursor")
    if text is None:
        return None
    if re.fullmatch(pattern.strip("^$"), text) is None:
        raise invalid("cursor", "cannot be read", "Send a nextCursor exactly as it came.")
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        cursor = msgspec.json.decode(raw, type=Cursor)
    except (ValueError, msgspec.MsgspecError):
        raise unknown_cursor("is not one of ours", "Send a nextCursor as it came.") from None
    if cursor.version != CURSOR_VERSION:
        raise unknown_cursor("is of another version", "Start again without a cursor.")
    if cursor.query != _fingerprint(query):
        raise unknown_cursor(
            "was given for other filters",
            "Send the same filters with it, or start again without a cursor.",
        )
    try:
        return msgspec.json.decode(cursor.position, type=kind)
    except msgspec.MsgspecError:
        raise unknown_cursor("is not one of ours", "Send a nextCursor as it came.") from None


def unknown_cursor(what: str, hint: str) -> RequestError:
    return RequestError(
        f"the cursor {what}", status=404, code="unknown_cursor", field="cursor", hint=hint
    )


def _fingerprint(query: dict[str, str]) -> str:
    asked = sorted((n, v) for n, v in query.items() if n not in _NO_FILTERS)
    return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:16]
