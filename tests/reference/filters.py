"""What a `where` means, straight from the words of SQL: true, false, or unknown (None).

Slow and plain. Rows are dictionaries of Python values: timestamps are microseconds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

# Python's own can take longer than anybody waits for a pattern of a few letters.
import re2

from tests.reference.instants import parse_instant

Truth: TypeAlias = bool | None
Types: TypeAlias = Mapping[str, str | tuple[str, ...]]
"""The type of each column; that of an enum is its values in order."""

_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "_eq": operator.eq,
    "_neq": operator.ne,
    "_gt": operator.gt,
    "_lt": operator.lt,
    "_gte": operator.ge,
    "_lte": operator.le,
}


def wanted(types: Types, where: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether the row is one that `SELECT … WHERE` gives."""
    return truth(types, where, row) is True


def truth(types: Types, where: Mapping[str, Any], row: Mapping[str, Any]) -> Truth:
    return _all(_member(types, name, value, row) for name, value in where.items())


def _member(types: Types, name: str, value: Any, row: Mapping[str, Any]) -> Truth:
    if name == "_not":
        return _not(truth(types, value, row))
    if name == "_and":
        return _all(truth(types, part, row) for part in _listed(value))
    if name == "_or":
        return _not(_all(_not(truth(types, part, row)) for part in _listed(value)))
    kind, held = types[name], row[name]
    return _all(_operator(kind, held, sign, against) for sign, against in value.items())


def _operator(kind: str | tuple[str, ...], held: Any, sign: str, against: Any) -> Truth:
    if sign == "_is_null":
        return (held is None) is against
    if sign in ("_in", "_nin"):
        values = [_value(kind, item) for item in _listed(against)]
        if not values:
            return sign == "_nin"
        found = None if held is None else _value_of_row(kind, held) in values
        return found if sign == "_in" else _not(found)
    if held is None:
        return None
    if sign in _COMPARISONS:
        return _COMPARISONS[sign](_value_of_row(kind, held), _value(kind, against))
    if sign == "_regex":
        return re2.search(f"(?s){against}", held) is not None
    matches = like(against, held, fold="ilike" in sign)
    return matches if sign in ("_like", "_ilike") else not matches


def _value(kind: str | tuple[str, ...], value: Any) -> Any:
    """What a value in JSON stands for."""
    if isinstance(kind, tuple):
        return kind.index(value)
    match kind:
        case "bigint":
            return int(value)
        case "decimal":
            return Decimal(str(value))
        case "timestamp":
            return parse_instant(value)
        case _:
            return value


def _value_of_row(kind: str | tuple[str, ...], held: Any) -> Any:
    return kind.index(held) if isinstance(kind, tuple) else held


def like(pattern: str, text: str, *, fold: bool = False) -> bool:
    """LIKE by its definition; `fold` takes A to Z for a to z."""
    if fold:
        return like(_lower(pattern), _lower(text))
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(pattern[1:], text[start:]) for start in range(len(text) + 1))
    if pattern[0] == "_":
        return bool(text) and like(pattern[1:], text[1:])
    literal, rest = (pattern[1], pattern[2:]) if pattern[0] == "\\" else (pattern[0], pattern[1:])
    return text[:1] == literal and like(rest, text[1:])


def _lower(text: str) -> str:
    return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in text)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _not(value: Truth) -> Truth:
    return None if value is None else not value


def _all(values: Any) -> Truth:
    seen = list(values)
    if False in seen:
        return False
    return None if None in seen else True
