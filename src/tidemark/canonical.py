"""Canonical JSON: one text for one value, so that equal content has equal bytes.

Object keys are sorted by code point, there is no white space, strings are UTF-8 with only what
JSON demands escaped, and numbers are plain decimals as `tidemark.decimals` writes them. A value
that was read with a float in between would be another value, so floats never get this far:
numbers are `Number` or `int`.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final, TypeAlias

import msgspec

from tidemark.decimals import MAX_FREE_DIGITS, normalise_number

# What JSON text can hold, read without loss.
Json: TypeAlias = "dict[str, Json] | list[Json] | str | Number | int | bool | None"

CONTENT_HASH_BYTES: Final = 32


class Number:
    """A JSON number as it was spelled."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Number({self.text!r})"


def canonical_json(value: object) -> bytes:
    """The canonical text of a tree of dicts, lists, strings, `Number`, int, bool and None.

    A `msgspec.Raw` in the tree is taken as canonical already. Raises `EventRejected` for a number
    that is too long to be written out.
    """
    return _encoder.encode(value)


def canonical_text(raw: bytes | msgspec.Raw) -> tuple[Any, bytes]:
    """The value that JSON text stands for and its canonical text, in one quick pass.

    It is the text that `canonical_json` gives for the same value read as a tree. Raises a msgspec,
    Unicode, recursion or rejection error for what is better explained by reading the tree.
    """
    value = _decoder.decode(raw)
    text = _quick_encoder.encode(value)
    if len(text) >= MAX_FREE_DIGITS and _MANY_DIGITS(text) is not None:
        _refuse_long_integers(value)
    return value, text


def content_hash(content: object) -> bytes:
    """The SHA-256 of the canonical text of an event's content."""
    return hashlib.sha256(_encoder.encode(content)).digest()


def _write_number(value: object) -> msgspec.Raw:
    if isinstance(value, Number):
        return msgspec.Raw(normalise_number(value.text).encode())
    raise TypeError(f"{type(value).__name__} has no canonical JSON")


def _read_number(text: str) -> msgspec.Raw:
    return msgspec.Raw(normalise_number(text).encode())


def _refuse_long_integers(value: object) -> None:
    """Integers are the numbers that the quick pass does not see as text."""
    if isinstance(value, dict):
        for member in value.values():
            _refuse_long_integers(member)
    elif isinstance(value, list):
        for member in value:
            _refuse_long_integers(member)
    elif isinstance(value, int) and abs(value) >= _LONG_INTEGER:
        normalise_number(str(value))


_MANY_DIGITS = re.compile(rb"[0-9]{%d}" % MAX_FREE_DIGITS).search
_LONG_INTEGER: Final = 10 ** (MAX_FREE_DIGITS - 1)
_encoder = msgspec.json.Encoder(order="sorted", enc_hook=_write_number)
_quick_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(float_hook=_read_number)
