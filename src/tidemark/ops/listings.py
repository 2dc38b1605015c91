"""Lists of what is derived from events, answered as JSON or as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Final

import msgspec

from tidemark.ops.parameters import encode_cursor, invalid
from tidemark.web.messages import Headers, Request, Response, json_response

FORMATS: Final = ("json", "csv")
CSV_TYPE: Final = "text/csv"
# What stands beside the entries of a list has no place in CSV but among the headers.
FRONTIER_HEADER: Final = "tidemark-frontier"
CURSOR_HEADER: Final = "tidemark-next-cursor"


class Listing(msgspec.Struct, frozen=True):
    """Entries of one kind, as of a sequence, and where the next page begins."""

    name: str
    kind: type[msgspec.Struct]
    entries: Sequence[msgspec.Struct]
    frontier: int
    next_position: object | None


def wants_csv(request: Request, query: dict[str, str]) -> bool:
    """Whether `format`, or else the `Accept` header, asks for CSV."""
    asked = query.get("format")
    if asked is not None and asked not in FORMATS:
        raise invalid("format", "is not possible", f"Give {' or '.join(FORMATS)}.")
    if asked is not None:
        return asked == "csv"
    weights = _weights(request.header(b"accept") or "")
    wanted = weights.get(CSV_TYPE, 0.0)
    return wanted > 0 and wanted >= weights.get("application/json", 0.0)


def listing_response(listing: Listing, query: dict[str, str], *, as_csv: bool) -> Response:
    position = listing.next_position
    cursor = None if position is None else encode_cursor(position, query)
    headers: Headers = [(b"vary", b"accept")]
    if not as_csv:
        return json_response(
            {
                listing.name: listing.entries,
                "frontier": str(listing.frontier),
                "nextCursor": cursor,
            },
            headers=headers,
        )
    headers.append((FRONTIER_HEADER.encode(), str(listing.frontier).encode()))
    if cursor is not None:
        headers.append((CURSOR_HEADER.encode(), cursor.encode()))
    body = _csv_text(listing.kind, listing.entries).encode()
    return Response(200, body, f"{CSV_TYPE}; charset=utf-8".encode(), headers)


def _csv_text(kind: type[msgspec.Struct], entries: Sequence[msgspec.Struct]) -> str:
    """RFC 4180 with a header; an absent value is empty."""
    fields = msgspec.structs.fields(kind)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([field.encode_name for field in fields])
    for entry in entries:
        writer.writerow([_cell(getattr(entry, field.name)) for field in fields])
    return text.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _weights(accept: str) -> dict[str, float]:
    """The media types of an `Accept` header with their weights; what cannot be read is 1."""
    weights = {}
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                try:
                    weight = float(value)
                except ValueError:
                    weight = 1.0
        weights[name] = weight
    return weights
