"""One event's JSON text, read without loss and with the path of whatever is wrong in it.

This is the careful reading: slower than msgspec, but numbers keep their spelling, and what msgspec
can only refuse (bytes that are not UTF-8, lone surrogates, `NaN`, nesting without end) is found and
named here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tidemark.canonical import Json, Number, canonical_json
from tidemark.decimals import MAX_NUMBER_LENGTH, normalise_number
from tidemark.errors import EventRejected
from tidemark.ingress.rejections import shown


class NotJson:
    """`NaN`, `Infinity` or `-Infinity`: Python reads them, JSON has no such thing."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


_decoder = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=NotJson)


def read_tree(raw: bytes, *, max_depth: int, root: str = "") -> Json:
    """The checked value that the text stands for; `root` is the path of the value itself."""
    tree = parse_tree(raw, max_depth=max_depth)
    check_tree(tree, max_depth=max_depth, root=root)
    return tree


def parse_tree(raw: bytes, *, max_depth: int) -> Json:
    """The value that the text stands for, or `EventRejected` if it is no JSON.

    What is in it still has to be checked: it may hold what is no JSON in the strict sense.
    """
    # A byte that is not UTF-8 becomes a lone surrogate, which the check finds by its path.
    text = raw.decode("utf-8", "surrogateescape")
    try:
        tree: Json = _decoder.decode(text)
    except RecursionError:
        raise _too_deep(max_depth) from None
    except json.JSONDecodeError as error:
        at = len(text[: error.pos].encode("utf-8", "surrogateescape"))
        raise EventRejected(
            f"the event is not JSON: {error.msg} (byte {at})",
            code="malformed_event",
            hint="Send each event as one JSON object.",
        ) from None
    return tree


def check_tree(tree: Json, *, max_depth: int, root: str = "") -> None:
    """Refuses, with its path, text that is not Unicode or has a NUL, a number beyond all bounds,
    `NaN`, and what is nested deeper than `max_depth`."""
    try:
        _check(tree, 1, max_depth)
    except EventRejected as error:
        error.field = _joined(root, error.field) or None
        raise


def canonical_tree(value: Json, path: str) -> bytes:
    """The canonical text of a checked value, or `EventRejected` with the path of a wild number."""
    try:
        return canonical_json(value)
    except EventRejected:
        # Only now is it worth finding out which number it was.
        try:
            _check_numbers(value)
        except EventRejected as error:
            error.field = _joined(path, error.field)
            raise error from None
        raise


def member_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# The walks below put the path together on the way out of an error, step by step, because putting
# it together on the way in would cost far more than the event is long if its names are long.


def _check(value: Json | NotJson, depth: int, max_depth: int) -> None:
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, Number):
        if len(value.text) > MAX_NUMBER_LENGTH:
            raise EventRejected(
                f"a number of {len(value.text)} characters",
                code="decimal_too_long",
                hint=f"A number may have at most {MAX_NUMBER_LENGTH} characters.",
            )
    elif isinstance(value, NotJson):
        raise EventRejected(
            f"{value.text} is not a number in JSON",
            code="not_a_number",
            hint="Leave the field out, or send a number.",
        )
    elif isinstance(value, dict | list) and depth > max_depth:
        raise _too_deep(max_depth)
    for step, member in _members(value):
        # There may be many members, and most of them need no second look.
        if type(step) is int and type(member) is Number and len(member.text) < MAX_NUMBER_LENGTH:
            continue
        try:
            if type(step) is str:
                _check_text(step)
            _check(member, depth + 1, max_depth)
        except EventRejected as error:
            _step_out(error, step)
            raise


def _check_text(text: str) -> None:
    if "\0" in text:
        raise EventRejected(
            f"{shown(text)} contains a NUL character",
            code="nul_character",
            hint="Remove the character \\u0000: no store downstream can keep it.",
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise EventRejected(
                "not Unicode text: a lone surrogate, or bytes that are not UTF-8",
                code="invalid_unicode",
                hint="Encode strings as UTF-8; escapes from \\ud800 to \\udfff come in pairs.",
            ) from None


def _check_numbers(value: Json) -> None:
    if isinstance(value, Number):
        normalise_number(value.text)
    for step, member in _members(value):
        try:
            _check_numbers(member)
        except EventRejected as error:
            _step_out(error, step)
            raise


def _members(value: Json | NotJson) -> Iterable[tuple[str | int, Json]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def _step_out(error: EventRejected, step: str | int) -> None:
    error.field = _joined(f"[{step}]" if isinstance(step, int) else step, error.field)


def _joined(step: str, rest: str | None) -> str:
    if not step or not rest:
        return step or rest or ""
    return f"{step}{rest}" if rest.startswith("[") else f"{step}.{rest}"


def _too_deep(max_depth: int) -> EventRejected:
    return EventRejected(
        f"arrays and objects are nested deeper than {max_depth}",
        code="too_deep",
        hint="Flatten the event, or raise `ingest.max_json_depth`.",
    )
