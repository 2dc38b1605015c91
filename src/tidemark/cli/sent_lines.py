"""A line of a file → the event that is sent for it, to the digit what the file says.

An event is not read into numbers and written again: its JSON goes out as it stands. Only a usage
event without a `ts` is given one, because its time is part of what it is.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

import msgspec

from tidemark.clock import Clock
from tidemark.errors import EventRejected
from tidemark.event_files import EventLine
from tidemark.timestamps import format_timestamp

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
# What the server can tell apart from its neighbours, and so can judge, though it is no good JSON.
_lenient = json.JSONDecoder(strict=False, parse_int=len, parse_float=len)

_NULL = b"null"
# An event with one of these is no usage event.
_OTHER_KINDS = frozenset({"stream", "control", "specversion"})


class Stamps(Protocol):
    """What is added to a usage event that does not say when it happened."""

    def additions(self, line_number: int, members: dict[str, msgspec.Raw]) -> dict[str, str]: ...


class ReadingStamps:
    """The time at which the line was read; no two lines get the same."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_us = 0

    def additions(self, line_number: int, members: dict[str, msgspec.Raw]) -> dict[str, str]:
        self._last_us = max(self._clock.wall_us(), self._last_us + 1)
        return {"ts": format_timestamp(self._last_us)}


class RepeatableStamps:
    """The same time and key for a line whenever it is sent, so that a repeat is known as one.

    The time is that at which the sending began, and a microsecond for each line. Two files that
    are sent at once could meet in such a time, which is why a key tells them apart.
    """

    def __init__(self, began_us: int, sending_id: str) -> None:
        self._began_us = began_us
        self._sending_id = sending_id

    def additions(self, line_number: int, members: dict[str, msgspec.Raw]) -> dict[str, str]:
        found = {"ts": format_timestamp(self._began_us + line_number)}
        if _is_absent(members, "idempotencyKey"):
            found["idempotencyKey"] = f"{self._sending_id}:{line_number}"
        return found


class SentLine(dict[str, Any]):
    """An event as `Client.send` takes it, with the bytes that stand for it."""

    def __init__(self, number: int, body: bytes, *, is_stamped: bool = False) -> None:
        super().__init__()
        self.number = number
        self.body = body
        self.is_stamped = is_stamped


def sent_line(line: EventLine, stamps: Stamps) -> SentLine:
    """The event to send for a line. Raises `EventRejected` if there is none in it."""
    if line.fault is not None:
        raise line.fault
    try:
        members = _decode_members(line.raw)
    except msgspec.ValidationError:
        # Whatever it is, it is JSON, and the server says best what is wrong with it.
        return SentLine(line.number, line.raw)
    except (msgspec.DecodeError, RecursionError) as error:
        _check_separable(line.raw, str(error))
        return SentLine(line.number, line.raw)
    if _OTHER_KINDS.isdisjoint(members) and _is_absent(members, "ts"):
        added = stamps.additions(line.number, members)
        return SentLine(line.number, _with(line.raw, members, added), is_stamped=True)
    return SentLine(line.number, line.raw)


def _is_absent(members: dict[str, msgspec.Raw], name: str) -> bool:
    return name not in members or bytes(members[name]) == _NULL


def _with(raw: bytes, members: dict[str, msgspec.Raw], added: dict[str, str]) -> bytes:
    """The event with members before its own; a null that stands for one of them is left out."""
    if not members.keys().isdisjoint(added):
        members = {name: value for name, value in members.items() if name not in added}
        raw = _encode(members)
    start = _encode(added)[:-1]
    return start + b"," + raw[1:].lstrip() if members else start + b"}"


def _check_separable(raw: bytes, fault: str) -> None:
    """Refuse a line that would make the whole request unreadable."""
    text = raw.decode("utf-8")
    try:
        end = _lenient.raw_decode(text)[1]
    except (ValueError, RecursionError):
        end = -1
    if end != len(text):
        raise EventRejected(
            f"the line is not JSON: {fault}",
            code="malformed_event",
            hint="Each line holds one event as a JSON object, and nothing else.",
        )
