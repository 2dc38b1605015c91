"""The codes with which a whole request is refused, in one table: status and meaning.

Codes with which a single event is refused are not here: such a request is answered with 200.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple


class RequestCode(NamedTuple):
    """One way to refuse a request."""

    status: int
    meaning: str


REQUEST_CODES: Final[dict[str, RequestCode]] = {
    "malformed_json": RequestCode(400, "The body is not JSON."),
    "not_utf8": RequestCode(400, "The body is not UTF-8."),
    "invalid_body": RequestCode(400, 'The body is JSON, but not `{"events": [...]}`.'),
    "no_events": RequestCode(400, "There is not one event in the body."),
    "too_deep": RequestCode(400, "The body is nested too deep to find its events."),
    "invalid_path": RequestCode(400, "The path is not UTF-8, or holds a NUL character."),
    "invalid_query": RequestCode(400, "The query string cannot be read."),
    "unknown_parameter": RequestCode(400, "There is no such query parameter here."),
    "repeated_parameter": RequestCode(400, "A query parameter is given twice."),
    "invalid_parameter": RequestCode(400, "The value of a query parameter is not possible."),
    "unauthorized": RequestCode(401, "No API key, or none that is known."),
    "forbidden": RequestCode(403, "The key does not have the scope, or is not for the tenant."),
    "foreign_origin": RequestCode(
        403, "The request comes from a web page of another origin, which is not allowed."
    ),
    "unknown_meter": RequestCode(404, "No meter of this name is configured."),
    "unknown_sequence": RequestCode(404, "No event of this ledger has the sequence yet."),
    "not_found": RequestCode(404, "There is nothing at this path, or no such event."),
    "unknown_cursor": RequestCode(404, "The cursor was not given out for this query."),
    "method_not_allowed": RequestCode(405, "Another method is needed; `Allow` says which."),
    "body_timeout": RequestCode(408, "The body did not arrive within 30 s."),
    "ambiguous_key": RequestCode(409, "Several tenants have an event with this key."),
    "body_too_large": RequestCode(413, "The body is larger than `http.max_body_bytes`."),
    "too_many_events": RequestCode(413, "There are more events than `http.max_events`."),
    "unsupported_media_type": RequestCode(415, "The content type is none that is read here."),
    "unsupported_content_encoding": RequestCode(415, "The body is compressed."),
    "cloudevents_binary_mode": RequestCode(415, "A CloudEvent in binary mode (`ce-` headers)."),
    "foreign_host": RequestCode(
        421, "The `Host` header names neither this machine nor one of `http.allowed_hosts`."
    ),
    "websocket_only": RequestCode(426, "The address is that of a websocket."),
    "queue_full": RequestCode(429, "Too much waits for the ledger. Send the same again later."),
    "too_many_tails": RequestCode(429, "As many tails as one process serves are open."),
    "headers_too_large": RequestCode(431, "The address and the headers are larger than 64 KiB."),
    "internal_error": RequestCode(500, "An error of our own making; the log has its `requestId`."),
    "ledger_unavailable": RequestCode(
        503, "The database did not answer. Nothing was acknowledged; the same request may be sent."
    ),
    "clock_leap": RequestCode(
        503, "The clock leapt forward, and an operator has to say that it is right."
    ),
    "views_unavailable": RequestCode(
        503, "The database of the views did not answer. The same request may be sent."
    ),
    "definition_changed": RequestCode(
        503, "A meter is configured otherwise than it was counted, and was not rebuilt."
    ),
    "storage_refused": RequestCode(503, "The database refuses this very content."),
    "too_many_connections": RequestCode(
        503, "As many connections as one process serves are open. Try again later."
    ),
    "not_yet_folded": RequestCode(
        504, "The pipeline has not come to `minSequence` in time. The same request may be sent."
    ),
}


def by_status(codes: Iterable[str]) -> dict[int, list[str]]:
    """The codes under their statuses, both in order."""
    grouped: dict[int, list[str]] = {}
    for code in sorted(codes, key=list(REQUEST_CODES).index):
        grouped.setdefault(REQUEST_CODES[code].status, []).append(code)
    return dict(sorted(grouped.items()))
