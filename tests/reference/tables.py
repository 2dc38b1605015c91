"""Tables, recomputed after each commit from all events known so far.

An event is in effect unless it was ever voided; the amend with the highest sequence says what it
is, else it is what was sent. A correction takes effect at its own commit. An amend that says no
time keeps that of the original, and every version of an event has the original's sequence.

After each commit a key shows the last, by time and then by sequence, of all events in effect under
it. If `delete_when` is true of that one, there is no row but a tombstone, so an older event does
not bring the row back. An event whose content cannot be decoded is no event of the table but an
error; an amend to such content leaves nothing in effect.

A value is read from its text: a JSON string's is itself, that of anything else is its JSON.

| type | what its text must be | in a row |
|---|---|---|
| `string`, `json` | anything | the string; the JSON |
| `enum` | one of its values | the string |
| `boolean` | `true` or `false` | as in JSON |
| `int`, `bigint` | a whole number of 32 or 64 bits | a number; a string |
| `decimal` | plain, at most 19 digits before the point and 9 after it | a string |
| `timestamp` | RFC 3339 with at most 6 fractional digits, of the years 1970 to 2261 | UTC text |
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, Literal, NamedTuple, TypedDict

from tests.reference.amounts import BILLION, format_amount
from tests.reference.instants import format_instant, parse_instant

Kind = Literal["string", "int", "bigint", "decimal", "boolean", "timestamp", "json", "enum"]
Values = Mapping[str, Any]
"""What is decoded: numbers exactly (a decimal is a `Fraction`), times in microseconds, JSON as its
text, null as None."""

MAX_KEY_BYTES: Final = 1024
_LAST_INSTANT: Final = parse_instant("2261-12-31T23:59:59.999999Z")
_PATTERNS: Final[Mapping[str, str]] = {
    "boolean": r"true|false",
    "int": r"-?(0|[1-9][0-9]*)",
    "bigint": r"-?(0|[1-9][0-9]*)",
    "decimal": r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,9})?",
    "timestamp": r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})",
}


class Content(TypedDict):
    """`data` is JSON text, or what stands in its place. `ts` is None where none was said."""

    data: str
    ts: int | None


class StreamEvent(Content):
    """One event in its place; `event` is what an amend puts in place of what was sent."""

    seq: int
    key: str
    tenant_id: str
    stream: str
    control: Literal["void", "amend", "end"] | None
    target: str | None
    event: Content | None


StreamCommit = tuple[int, Sequence[StreamEvent]]


@dataclass(frozen=True)
class Field:
    name: str
    type: Kind
    required: bool = True
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Calculated:
    """A further column. `text` says the same as `of` in SQL; an `ArithmeticError` is a failure."""

    name: str
    type: Kind
    text: str
    of: Callable[[Values], Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Condition:
    text: str
    holds: Callable[[Values], bool | None] = field(repr=False, compare=False)


@dataclass(frozen=True)
class EventTime:
    """The column that holds the time; `of` reads it in microseconds, None if there is none."""

    column: str
    type: str
    of: Callable[[Any], int | None] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Table:
    name: str
    stream: str
    key: tuple[str, ...]
    fields: tuple[Field, ...]
    calculated: tuple[Calculated, ...] = ()
    delete_when: Condition | None = None
    time: EventTime | None = None

    @property
    def columns(self) -> tuple[tuple[str, Kind], ...]:
        own = ((f.name, f.type) for f in self.fields)
        return (("tenant_id", "string"), *own, *((c.name, c.type) for c in self.calculated))


class Undecodable(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Version(NamedTuple):
    """What an event is to a table. `values` has all columns, also where the row is deleted."""

    ts: int
    seq: int
    key: str
    deleted: bool
    values: Values


class Row(NamedTuple):
    """`changed_at` is the last commit that changed its text."""

    text: str
    ts: int
    seq: int
    changed_at: int


class TableChange(NamedTuple):
    received_at: int
    key: str
    op: Literal["insert", "update", "delete"]
    old_row: str | None
    row: str | None
    changed: tuple[str, ...] | None


@dataclass
class TableResult:
    """Rows and tombstones after the last commit by key; errors as sequence and code."""

    rows: dict[str, Row] = field(default_factory=dict)
    tombstones: dict[str, tuple[int, int]] = field(default_factory=dict)
    changes: list[TableChange] = field(default_factory=list)
    errors: list[tuple[int, str]] = field(default_factory=list)


def fold_table(commits: Sequence[StreamCommit], table: Table) -> TableResult:
    result = TableResult()
    known: list[tuple[int, StreamEvent]] = []
    shown: dict[str, Version] = {}
    for received_at, events in commits:
        new = [event for event in events if event["stream"] == table.stream]
        known += ((received_at, event) for event in new)
        for event in new:
            result.errors += _errors(table, event, received_at)
        before, shown = shown, _shown(table, known)
        for key in sorted(before.keys() | shown.keys()):
            change = _change(table, received_at, key, before.get(key), shown.get(key))
            if change is not None:
                result.changes.append(change)
    changed_at = {change.key: change.received_at for change in result.changes}
    for key, version in shown.items():
        if version.deleted:
            result.tombstones[key] = (version.ts, version.seq)
        else:
            text = row_text(table, version.values)
            result.rows[key] = Row(text, version.ts, version.seq, changed_at[key])
    return result


def _shown(table: Table, known: Sequence[tuple[int, StreamEvent]]) -> dict[str, Version]:
    corrections: dict[tuple[str, str | None], list[StreamEvent]] = {}
    for _, event in known:
        if event["control"] in ("void", "amend"):
            corrections.setdefault((event["tenant_id"], event["target"]), []).append(event)
    shown: dict[str, Version] = {}
    for received_at, event in known:
        if event["control"] is not None:
            continue
        own = corrections.get((event["tenant_id"], event["key"]), [])
        if any(correction["control"] == "void" for correction in own):
            continue
        content: Content = event
        if own:
            amend = max(own, key=lambda correction: correction["seq"])["event"]
            assert amend is not None
            content = amend
        try:
            version = version_of(table, event, content, received_at)
        except Undecodable:
            continue
        best = shown.get(version.key)
        if best is None or (version.ts, version.seq) > (best.ts, best.seq):
            shown[version.key] = version
    return shown


def version_of(table: Table, original: StreamEvent, content: Content, received_at: int) -> Version:
    """What an event with this content is; raises `Undecodable`. `received_at` is the original's."""
    values = decode(table, original["tenant_id"], content["data"])
    sent = original["ts"] if original["ts"] is not None else received_at
    ts = content["ts"] if content["ts"] is not None else sent
    if table.time is not None:
        told = values[table.time.column]
        moment = None if told is None else table.time.of(told)
        if moment is None:
            raise Undecodable("invalid_event_time")
        ts = moment
    try:
        deleted = table.delete_when is not None and table.delete_when.holds(values) is True
        values |= {column.name: column.of(values) for column in table.calculated}
    except ArithmeticError:
        raise Undecodable("expression_failed") from None
    key = key_text(
        [(values[name], dict(table.columns)[name]) for name in ("tenant_id", *table.key)]
    )
    return Version(ts, original["seq"], key, deleted, values)


def _errors(table: Table, event: StreamEvent, received_at: int) -> list[tuple[int, str]]:
    content = event["event"] if event["control"] == "amend" else event
    if event["control"] in ("void", "end") or content is None:
        return []
    try:
        version_of(table, event, content, received_at)
    except Undecodable as error:
        return [(event["seq"], error.code)]
    return []


def _change(
    table: Table, received_at: int, key: str, old: Version | None, new: Version | None
) -> TableChange | None:
    was = None if old is None or old.deleted else old.values
    now = None if new is None or new.deleted else new.values
    if was == now:
        return None
    old_row = None if was is None else row_text(table, was)
    row = None if now is None else row_text(table, now)
    if was is None:
        return TableChange(received_at, key, "insert", None, row, None)
    if now is None:
        return TableChange(received_at, key, "delete", old_row, None, None)
    changed = tuple(name for name, _ in table.columns if was[name] != now[name])
    return TableChange(received_at, key, "update", old_row, row, changed)


def decode(table: Table, tenant_id: str, data: str) -> dict[str, Any]:
    """The values of the fields, or `Undecodable` for the first that has none."""
    try:
        members = json.loads(data, parse_int=_Spelled, parse_float=_Spelled)
    except ValueError:
        raise Undecodable("undecodable") from None
    if not isinstance(members, dict):
        raise Undecodable("undecodable")
    values: dict[str, Any] = {"tenant_id": tenant_id}
    for declared in table.fields:
        member = members.get(declared.name)
        if member is None and declared.required:
            raise Undecodable("missing_field")
        values[declared.name] = None if member is None else _value(declared, member)
    return values


def _value(declared: Field, member: Any) -> Any:
    if declared.type == "json":
        return compact_json(member)
    text = member if type(member) is str else compact_json(member)
    try:
        return _read(declared, text)
    except ValueError:
        raise Undecodable("invalid_field") from None


def _read(declared: Field, text: str) -> Any:
    pattern = _PATTERNS.get(declared.type)
    if pattern is not None and re.fullmatch(pattern, text) is None:
        raise ValueError(text)
    value: Any = text
    if declared.type == "boolean":
        value = text == "true"
    elif declared.type in ("int", "bigint"):
        value = int(text)
        half = 2 ** (31 if declared.type == "int" else 63)
        _require(-half <= value < half)
    elif declared.type == "decimal":
        value = Fraction(text)
    elif declared.type == "timestamp":
        value = parse_instant(text)
        _require(0 <= value <= _LAST_INSTANT)
    elif declared.type == "enum":
        _require(text in declared.values)
    return value


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError


class _Spelled(str):
    """A number as it was spelled."""


def compact_json(value: Any) -> str:
    """JSON without white space; numbers as they were spelled, members in their order."""
    if isinstance(value, _Spelled):
        return str(value)
    if isinstance(value, dict):
        members = (f"{_quoted(name)}:{compact_json(member)}" for name, member in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(compact_json, value)) + "]"
    return _quoted(value)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def row_text(table: Table, values: Values) -> str:
    """All columns, sorted by name."""
    members = (
        f'"{name}":{_shown_json(values[name], kind)}' for name, kind in sorted(table.columns)
    )
    return "{" + ",".join(members) + "}"


def key_text(values: Sequence[tuple[Any, Kind]]) -> str:
    """The values of the key as an array; one that is too long is cut and ends in its digest."""
    text = "[" + ",".join(_shown_json(value, kind) for value, kind in values) + "]"
    raw = text.encode()
    if len(raw) <= MAX_KEY_BYTES:
        return text
    digest = hashlib.sha256(raw).hexdigest()
    return raw[: MAX_KEY_BYTES - len(digest) - 1].decode(errors="ignore") + "#" + digest


def _shown_json(value: Any, kind: Kind) -> str:
    if value is None:
        return "null"
    if kind == "json":
        return str(value)
    if kind == "decimal":
        return _quoted(format_amount(round(value * BILLION)))
    if kind == "timestamp":
        return _quoted(format_instant(value))
    return _quoted(str(value) if kind == "bigint" else value)
