"""From the body of a request to the JSON text of each of its events.

The body is cut by msgspec, which is quick but refuses the whole body for some faults of a single
event: a lone surrogate, `NaN`, nesting without end. Then it is cut again by a scanner that only
needs to find where each event ends, so that the fault stays with its own event.
"""

from __future__ import annotations

import json
import re
from typing import Final

import msgspec

from tidemark.errors import RequestError
from tidemark.ingress.rejections import printable

_BOM: Final = b"\xef\xbb\xbf"
_SHAPE: Final = 'Send {"events": [...]} with at least one event.'
_CLOUDEVENT_HINT: Final = "Send a CloudEvent with content type application/cloudevents+json."
_SHOWN_CHARACTERS: Final = 64
# More than events of the usual size have; a body with more is cut one event at a time.
_COMMAS_PER_EVENT: Final = 64

# More brackets than this in one event that is nested beyond reading are not counted to the end.
_MAX_BRACKET_RUNS: Final = 100_000

_WHITESPACE: Final = b" \t\n\r"
_opening = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*"events"[ \t\n\r]*:').match
_space = re.compile(r"[ \t\n\r]*").match
_brackets = re.compile(
    r'[^"\[\]{}]*+(?:"(?:[^"\\]++|\\.)*+"[^"\[\]{}]*+)*+([\[{]++|[\]}]++)', re.DOTALL
).match
# Only the end of a value matters here, so numbers are not built (and no digit limit is met).
_scanner = json.JSONDecoder(strict=False, parse_int=len, parse_float=len, parse_constant=len)


_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


def split_events(body: bytes, max_events: int) -> list[bytes]:
    """The text of each event of `{"events": [...]}`, or `RequestError` for the whole body."""
    body = body.removeprefix(_BOM)
    opening = _opening(body)
    if opening is not None:
        closed = body.rstrip(_WHITESPACE)
        if closed.endswith(b"}"):
            # The array by itself: if anything else stands in the object, this is no array.
            events = _cut_quickly(closed[opening.end() : -1], max_events)
            if events is not None:
                return _bounded(events, max_events)
    return _bounded(_Cutter(body, max_events).events(), max_events)


def split_array(body: bytes, max_events: int) -> list[bytes]:
    """The text of each element of a JSON array, or `RequestError` for the whole body."""
    body = body.removeprefix(_BOM)
    events = _cut_quickly(body, max_events)
    if events is None:
        events = _Cutter(body, max_events).array()
    return _bounded(events, max_events)


def single_event(body: bytes) -> bytes:
    """The text of a body that is one event; refused as a whole only if it is no JSON at all."""
    return _Cutter(body.removeprefix(_BOM), 1).single()


def _cut_quickly(array: bytes, max_events: int) -> list[bytes] | None:
    """The elements of an array, or None if that needs a closer look."""
    # There can be as many elements as commas, and cutting them all would cost memory.
    if array.count(b",") > _COMMAS_PER_EVENT * max_events:
        return None
    try:
        return [bytes(event) for event in _decode_array(array)]
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None


def _bounded(events: list[bytes], max_events: int) -> list[bytes]:
    if not events:
        raise RequestError("the request holds no events", code="no_events", hint=_SHAPE)
    if len(events) > max_events:
        raise _too_many(max_events)
    return events


class _Cutter:
    """Finds where the values of a JSON text begin and end, without judging what is in them."""

    def __init__(self, body: bytes, max_events: int) -> None:
        self._body = body
        # Bytes that are not UTF-8 stay with their event; between events they are no JSON.
        self._text = body.decode("utf-8", "surrogateescape")
        self._max_events = max_events
        self._at = 0

    def events(self) -> list[bytes]:
        self._skip_space()
        if not self._next_is("{"):
            self._skip_value()
            self._expect_end()
            raise _wrong_shape("the body is not an object")
        found: list[bytes] | None = None
        names: list[str] = []
        self._at += 1
        self._skip_space()
        while not (not names and self._next_is("}")):
            names.append(self._name())
            if names[-1] == "events" and self._next_is("["):
                found = self._elements()
            else:
                self._skip_value()
            if not self._another("}"):
                break
        else:
            self._at += 1
        self._expect_end()
        return _checked_members(names, found)

    def array(self) -> list[bytes]:
        self._skip_space()
        if not self._next_is("["):
            self._skip_value()
            self._expect_end()
            raise _wrong_shape("the body is not an array", "Send an array of CloudEvents.")
        found = self._elements()
        self._expect_end()
        return found

    def single(self) -> bytes:
        self._skip_space()
        start = self._at
        self._skip_value()
        event = self._slice(start)
        self._expect_end()
        return event

    def _elements(self) -> list[bytes]:
        """The elements of the array that begins here."""
        found: list[bytes] = []
        self._at += 1
        self._skip_space()
        if self._next_is("]"):
            self._at += 1
            return found
        while True:
            if len(found) == self._max_events:
                raise _too_many(self._max_events)
            start = self._at
            self._skip_value()
            found.append(self._slice(start))
            if not self._another("]"):
                return found

    def _name(self) -> str:
        """The name of the member that begins here, and on to its value."""
        if not self._next_is('"'):
            raise self._malformed("Expecting property name enclosed in double quotes", self._at)
        start = self._at
        self._skip_value()
        name: str = json.loads(self._text[start : self._at], strict=False)
        self._skip_space()
        if not self._next_is(":"):
            raise self._malformed("Expecting ':' delimiter", self._at)
        self._at += 1
        self._skip_space()
        return name

    def _another(self, close: str) -> bool:
        """Whether a comma and another value follow; else passes the closing bracket."""
        self._skip_space()
        more = self._next_is(",")
        if not more and not self._next_is(close):
            raise self._malformed(f"Expecting ',' or '{close}'", self._at)
        self._at += 1
        if more:
            self._skip_space()
        return more

    def _skip_value(self) -> None:
        try:
            self._at = _scanner.raw_decode(self._text, self._at)[1]
        except json.JSONDecodeError as error:
            raise self._malformed(error.msg, error.pos) from None
        except RecursionError:
            self._skip_brackets()

    def _skip_brackets(self) -> None:
        """Passes a value too deep to be read, by counting its brackets outside of strings."""
        depth = 0
        at = self._at
        for _ in range(_MAX_BRACKET_RUNS):
            match = _brackets(self._text, at)
            if match is None:
                raise self._malformed("Unexpected end", len(self._text))
            at = match.end()
            count = at - match.start(1)
            if self._text[at - 1] in "[{":
                depth += count
            elif depth > count:
                depth -= count
            else:
                self._at = match.start(1) + depth
                return
        raise RequestError(
            "the body is nested too deep to be read",
            code="too_deep",
            hint="Flatten the events, or send the deep one by itself.",
        )

    def _skip_space(self) -> None:
        match = _space(self._text, self._at)
        assert match is not None  # it matches the empty string
        self._at = match.end()

    def _next_is(self, character: str) -> bool:
        return self._text.startswith(character, self._at)

    def _expect_end(self) -> None:
        self._skip_space()
        if self._at != len(self._text):
            raise self._malformed("Extra data", self._at)

    def _slice(self, start: int) -> bytes:
        return self._text[start : self._at].encode("utf-8", "surrogateescape")

    def _malformed(self, message: str, position: int) -> RequestError:
        try:
            self._body.decode()
        except UnicodeDecodeError as error:
            return RequestError(
                f"the body is not UTF-8 (byte {error.start})",
                code="not_utf8",
                hint="Encode the body as UTF-8.",
            )
        at = len(self._text[:position].encode())
        return RequestError(
            f"the body is not JSON: {message} (byte {at})",
            code="malformed_json",
            hint="Check the body with a JSON parser; byte positions count from 0.",
        )


def _checked_members(names: list[str], events: list[bytes] | None) -> list[bytes]:
    for name in names:
        if name != "events":
            raise _wrong_shape(
                f'the body has the field "{printable(name, _SHOWN_CHARACTERS)}"',
                _CLOUDEVENT_HINT if "specversion" in names else "",
                field=printable(name, _SHOWN_CHARACTERS),
            )
    if len(names) > 1:
        raise _wrong_shape("the body has the field `events` twice", field="events")
    if not names:
        raise _wrong_shape("the body has no field `events`", field="events")
    if events is None:
        raise _wrong_shape("`events` is not an array", field="events")
    return events


def _wrong_shape(message: str, hint: str = "", field: str | None = None) -> RequestError:
    return RequestError(message, code="invalid_body", hint=hint or _SHAPE, field=field)


def _too_many(max_events: int) -> RequestError:
    return RequestError(
        f"the request holds more than {max_events} events",
        status=413,
        code="too_many_events",
        hint="Send them in several requests (`http.max_events`).",
    )
