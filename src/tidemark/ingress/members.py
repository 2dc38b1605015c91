"""Careful access to the members of a JSON object: each fault has its code and its path."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from tidemark.canonical import Json, Number
from tidemark.config.suggestions import did_you_mean
from tidemark.decimals import normalise_decimal
from tidemark.errors import EventRejected
from tidemark.ingress.rejections import shown
from tidemark.ingress.trees import member_path
from tidemark.timestamps import normalise_timestamp

MAX_KEY_LENGTH: Final = 256
# Tenant, metric and customer stand together in an index of the ledger, and PostgreSQL's entries end
# at 2,704 bytes; a character is up to four.
MAX_NAME_LENGTH: Final = 200

# A longer name is no misspelling of ours, and comparing it would cost.
_MAX_COMPARED_CHARACTERS: Final = 64


def name_limit(max_string_length: int) -> int:
    """The most characters in `tenantId`, `metric` and `customerRef`."""
    return min(max_string_length, MAX_NAME_LENGTH)


class Members:
    """The members of one object. A member that is `null` counts as absent."""

    def __init__(self, tree: dict[str, Json], path: str = "") -> None:
        self._tree = tree
        self._path = path

    def path(self, name: str) -> str:
        return member_path(self._path, name)

    def has(self, name: str) -> bool:
        return self._tree.get(name) is not None

    def only(self, *names: str, hint: str = "") -> None:
        """Refuses members with other names, with the nearest of the right ones."""
        for name in self._tree:
            if name not in names:
                raise EventRejected(
                    f"the field {shown(name)} is not known here",
                    code="unknown_field",
                    field=self.path(name),
                    hint=hint or suggestion(name, names),
                )

    def value(self, name: str) -> Json:
        """The member as it is, or `missing_field`."""
        value = self._tree.get(name)
        if value is None:
            raise missing(self.path(name))
        return value

    def text(self, name: str, max_length: int, *, empty: bool = False) -> str:
        """A string of 1 (with `empty`: 0) to `max_length` characters."""
        return checked_text(self.value(name), self.path(name), max_length, empty=empty)

    def optional_text(self, name: str, max_length: int, *, empty: bool = False) -> str | None:
        return self.text(name, max_length, empty=empty) if self.has(name) else None

    def decimal(self, name: str) -> str:
        """A number, or a string that holds one, as canonical text."""
        return checked_decimal(self.value(name), self.path(name))

    def timestamp(self, name: str, *, truncate: bool) -> tuple[int, str]:
        """The time in microseconds and as normalised text."""
        return checked_timestamp(self.value(name), self.path(name), truncate=truncate)

    def object(self, name: str) -> dict[str, Json]:
        return checked_object(self.value(name), self.path(name))


def checked_text(value: Json, path: str, max_length: int, *, empty: bool = False) -> str:
    if not isinstance(value, str):
        raise wrong_type(value, path, "a string")
    if not value and not empty:
        raise EventRejected(
            f"`{path}` is empty",
            code="string_empty",
            field=path,
            hint="Give it at least one character, or leave the field out where it is optional.",
        )
    if len(value) > max_length:
        raise EventRejected(
            f"`{path}` has {len(value)} characters",
            code="string_too_long",
            field=path,
            hint=f"At most {max_length} characters are allowed.",
        )
    return value


def checked_decimal(value: Json, path: str) -> str:
    if isinstance(value, Number):
        text = value.text
    elif isinstance(value, str):
        text = value
    else:
        raise wrong_type(value, path, "a number, or a string that holds one")
    try:
        return normalise_decimal(text)
    except EventRejected as error:
        error.field = path
        raise


def checked_timestamp(value: Json, path: str, *, truncate: bool) -> tuple[int, str]:
    if not isinstance(value, str):
        raise wrong_type(value, path, "a string such as 2025-01-31T12:00:00Z")
    try:
        return normalise_timestamp(value, truncate=truncate)
    except EventRejected as error:
        error.field = path
        raise


def checked_object(value: Json, path: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise wrong_type(value, path, "an object")
    return value


def missing(path: str, hint: str = "") -> EventRejected:
    return EventRejected(
        f"`{path}` is missing", code="missing_field", field=path, hint=hint or "Add the field."
    )


def wrong_type(value: Json, path: str, expected: str) -> EventRejected:
    return EventRejected(
        f"`{path}` is {_kind(value)}",
        code="wrong_type",
        field=path,
        hint=f"It must be {expected}.",
    )


def suggestion(word: str, names: Iterable[str]) -> str:
    """The nearest of the names, or else all of them."""
    return _suggestion(word[:_MAX_COMPARED_CHARACTERS], tuple(names))


@lru_cache(maxsize=1024)
def _suggestion(word: str, names: tuple[str, ...]) -> str:
    # A sender who gets a name wrong gets it wrong in every event.
    return did_you_mean(word, names)


def _kind(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, Number | int):
        return "a number"
    if isinstance(value, dict):
        return "an object"
    return "null" if value is None else "an array"
