"""Which names a schema may have, and who had one first.

GraphQL names are letters, digits and `_`, do not begin with a digit, and those that begin with `__`
belong to GraphQL. All types of a schema share one space of names, and so do its root fields; a view
adds several to each. What cannot be is a `ConfigError` at the start that says what to rename.
"""

from __future__ import annotations

import re
from typing import Final

from tidemark.errors import ConfigError

_NAME = re.compile(r"(?!__)[_A-Za-z][_0-9A-Za-z]*").fullmatch
# No enum value may be spelled like another literal.
_NO_ENUM_VALUE: Final = frozenset(("true", "false", "null"))


def is_name(text: str) -> bool:
    """Whether a type, a field or an argument may be called so."""
    return _NAME(text) is not None


def are_enum_values(values: tuple[str, ...]) -> bool:
    """Whether these can be the values of a GraphQL enum."""
    return all(is_name(value) and value not in _NO_ENUM_VALUE for value in values)


def check_column_name(view: str, column: str, reserved: frozenset[str]) -> None:
    """Refuses the name of a column that could not be a field."""
    if not is_name(column) or column in reserved:
        raise ConfigError(
            f"the view {view} has a column {column!r}, which GraphQL keeps for itself",
            hint="Rename the field of the stream or the calculated column: names that begin with "
            "`__` are taken, and so are `_and`, `_or` and `_not`.",
            field=f"views.{view}",
        )


class TakenNames:
    """Names that are in use, and what uses each."""

    def __init__(self, built_in: dict[str, str]) -> None:
        self._owners = dict(built_in)

    def take(self, name: str, view: str) -> str:
        """The name, which is the view's from now on; it must not be anybody else's."""
        if not is_name(name):
            raise ConfigError(
                f"the view {view} would be {name!r} in GraphQL, which is no name there",
                hint="Rename the view: letters, digits and `_`, not beginning with `__`.",
                field=f"views.{view}",
            )
        owner = self._owners.setdefault(name, f"the view {view}")
        if owner != f"the view {view}":
            raise ConfigError(
                f"the view {view} needs the name {name} in GraphQL, which {owner} already has",
                hint=f"Rename the view {view}.",
                field=f"views.{view}",
            )
        return name
