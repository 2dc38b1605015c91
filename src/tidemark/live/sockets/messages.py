"""The messages of `graphql-transport-ws`, and the codes with which it closes a connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

import msgspec

SUBPROTOCOL: Final = "graphql-transport-ws"

# The codes of the protocol.
INVALID_MESSAGE: Final = 4400
UNAUTHORIZED: Final = 4401
FORBIDDEN: Final = 4403
WRONG_SUBPROTOCOL: Final = 4406
INIT_TIMEOUT: Final = 4408
SUBSCRIBER_EXISTS: Final = 4409
TOO_MANY_INITS: Final = 4429
# Those of websockets that clients of the protocol take as a reason to connect again.
GOING_AWAY: Final = 1001
TRY_AGAIN_LATER: Final = 1013
# And one that they do not.
TOO_LARGE: Final = 1009

MAX_ID_LENGTH: Final = 200


class ConnectionInit(msgspec.Struct, tag_field="type", tag="connection_init", frozen=True):
    payload: dict[str, Any] | None = None


class Ping(msgspec.Struct, tag_field="type", tag="ping", frozen=True):
    payload: dict[str, Any] | None = None


class Pong(msgspec.Struct, tag_field="type", tag="pong", frozen=True):
    payload: dict[str, Any] | None = None


class Subscribe(msgspec.Struct, tag_field="type", tag="subscribe", frozen=True):
    id: str
    payload: dict[str, Any]


class Complete(msgspec.Struct, tag_field="type", tag="complete", frozen=True):
    id: str


ClientMessage: TypeAlias = ConnectionInit | Ping | Pong | Subscribe | Complete

# Numbers are read without rounding, as those of requests over HTTP are, and go back as they came.
_decode = msgspec.json.Decoder(ClientMessage, float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode

CONNECTION_ACK: Final = b'{"type":"connection_ack"}'
NEXT_END: Final = b"}"


class InvalidMessage(Exception):
    """What a client said is no message of the protocol; the text is for its developer."""


def read_message(text: str | bytes) -> ClientMessage:
    """Raises `InvalidMessage`."""
    if isinstance(text, bytes):
        raise InvalidMessage("Messages are text, not binary")
    try:
        message: ClientMessage = _decode(text)
    except msgspec.DecodeError as error:
        # Validation errors are decode errors too, and say which member it is.
        raise InvalidMessage(f"Invalid message: {error}") from None
    except RecursionError:
        raise InvalidMessage("Invalid message: nested too deeply") from None
    if isinstance(message, Subscribe | Complete) and not 0 < len(message.id) <= MAX_ID_LENGTH:
        raise InvalidMessage(f"An id has 1 to {MAX_ID_LENGTH} characters")
    return message


def pong(payload: Mapping[str, Any] | None) -> bytes:
    return PONG_EMPTY if payload is None else _encode({"type": "pong", "payload": payload})


PONG_EMPTY: Final = b'{"type":"pong"}'


def next_start(operation_id: str) -> bytes:
    """What comes before a result in a `next`; `NEXT_END` comes after it."""
    return b'{"id":' + _encode(operation_id) + b',"type":"next","payload":'


def error(operation_id: str, errors: Sequence[Mapping[str, Any]]) -> bytes:
    return _encode({"id": operation_id, "type": "error", "payload": errors})


def complete(operation_id: str) -> bytes:
    return _encode({"id": operation_id, "type": "complete"})


def result(operation_id: str, payload: Mapping[str, Any]) -> bytes:
    """The `next` of a query or a mutation."""
    return next_start(operation_id) + _encode(payload) + NEXT_END
