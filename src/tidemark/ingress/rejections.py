"""From an error about one event to the record of why it was refused."""

from __future__ import annotations

from typing import Final

from tidemark.canonical import Json
from tidemark.errors import EventRejected
from tidemark.ingress.drafts import Rejection

MAX_BODY_CHARACTERS: Final = 4_096

_MAX_TEXT_CHARACTERS: Final = 500
_MAX_FIELD_CHARACTERS: Final = 256
_MAX_CLAIM_CHARACTERS: Final = 256
_SHOWN_CHARACTERS: Final = 64
# Four bytes are the most that UTF-8 needs for a character.
_BODY_BYTES: Final = 4 * MAX_BODY_CHARACTERS


def reject(
    error: EventRejected, raw: bytes, event: Json = None, stream: str | None = None
) -> Rejection:
    """The rejection of the event with this text.

    `event` is its tree as far as it could be read, and `stream` the stream of an event that does
    not name one.

    Nothing in it is longer than its bound, and all of it can be stored and sent as text, whatever
    the event was.
    """
    claims = event if isinstance(event, dict) else {}
    named = claims.get("type" if "specversion" in claims else "stream", stream)
    return Rejection(
        code=error.code,
        message=printable(error.message, _MAX_TEXT_CHARACTERS),
        hint=printable(error.hint, _MAX_TEXT_CHARACTERS),
        field=None if error.field is None else printable(error.field, _MAX_FIELD_CHARACTERS),
        tenant_id=_claim(claims.get("tenantId", claims.get("tenantid"))),
        stream=_claim(named),
        idempotency_key=_claim(claims.get("idempotencyKey", claims.get("idempotencykey"))),
        body=printable(raw[:_BODY_BYTES].decode("utf-8", "replace"), MAX_BODY_CHARACTERS),
    )


def printable(text: str, limit: int) -> str:
    """The text without what no store and no JSON reader takes, cut to the limit."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return cut.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def shown(text: str) -> str:
    """A client's own text for use in a message: in quotes, cut if it is long."""
    cut = text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
    return f'"{cut}"'


def _claim(value: Json) -> str | None:
    """What the event says of itself, if that can be said again."""
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_CLAIM_CHARACTERS:
        return None
    return value if printable(value, _MAX_CLAIM_CHARACTERS) == value else None
