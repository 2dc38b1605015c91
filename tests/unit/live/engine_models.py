"""A view, its rows, and subscribers who check that what they are told fits what they know."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from hypothesis import strategies as st

from tidemark.live.engine import ChangedRow, Item
from tidemark.live.filters import Filter, compile_predicate
from tidemark.pipeline.output.encoding import decode_row, encode_row, row_key
from tidemark.pipeline.output.schema import Column, Value, ViewSchema

SCHEMA = ViewSchema(
    "orders",
    (
        Column("id", "int"),
        Column("sym", "string"),
        Column("secret", "string", hidden=True),
        Column("qty", "int"),
        Column("px", "decimal"),
        Column("big", "bigint"),
        Column("side", "enum", ("sell", "buy")),
        Column("at", "timestamp"),
        Column("ok", "boolean"),
        Column("class", "json"),
    ),
    ("id",),
    "",
)
NAMES = tuple(column.name for column in SCHEMA.visible)
VALUES: dict[str, list[Value]] = {
    "sym": [None, "a", "b", "é", "null"],
    "qty": [None, -1, 0, 1, 2],
    "px": [None, Decimal("0.1"), Decimal("1"), Decimal("10.25")],
    "big": [None, -(2**63), 0, 2**63 - 1],
    "side": [None, "sell", "buy"],
    "at": [None, 0, 1_700_000_000_000_001],
    "ok": [None, False, True],
    "class": [None, "1", '{"a":null}'],
}

Fields: TypeAlias = dict[str, Value]
State: TypeAlias = dict[str, dict[str, Any]]


class Columns:
    """The plainest projection: some columns, and what is said about them."""

    def __init__(self, *columns: str) -> None:
        self.columns = frozenset(columns)
        self.key = ",".join(sorted(columns))
        self.rendered = 0

    def render(
        self,
        operation: str,
        members: Mapping[str, bytes] | None,
        fields: Sequence[str],
        timestamp: int,
    ) -> bytes:
        self.rendered += 1
        data = {
            name: json.loads(text)
            for name, text in (members or {}).items()
            if name in self.columns or name in SCHEMA.key
        }
        return json.dumps(
            {"operation": operation, "data": data, "fields": fields, "ts": timestamp}
        ).encode()


class Listener:
    """Keeps what it takes."""

    def __init__(self) -> None:
        self.commits: list[tuple[int, list[Item]]] = []

    def take(self, received_at: int, items: Sequence[Item]) -> None:
        self.commits.append((received_at, list(items)))

    @property
    def items(self) -> list[Item]:
        return [item for _, items in self.commits for item in items]


def changed_row(received_at: int, old: Fields | None, new: Fields | None) -> ChangedRow:
    """What the log holds of a change."""
    row = old or new
    assert row is not None
    changed: tuple[str, ...] = ()
    if old is not None and new is not None:
        changed = tuple(sorted(name for name in NAMES if old[name] != new[name]))
    return ChangedRow(
        received_at,
        row_key(SCHEMA, [row["id"]]),
        None if old is None else encode_row(SCHEMA, old),
        None if new is None else encode_row(SCHEMA, new),
        changed,
    )


def full_row(id: int, /, **values: Value) -> Fields:
    return dict.fromkeys(NAMES) | {"id": id} | values


class Table:
    """The rows of the view, and the changes that commits make to them."""

    def __init__(self) -> None:
        self.rows: dict[int, Fields] = {}

    def commit(self, received_at: int, wanted: Mapping[int, Fields | None]) -> list[ChangedRow]:
        """Sets rows, or removes those that are None; gives what has changed by that."""
        changes = []
        for id, fields in wanted.items():
            old = self.rows.get(id)
            new = None if fields is None else full_row(id, **fields)
            if old == new:
                continue
            changes.append(changed_row(received_at, old, new))
            if new is None:
                del self.rows[id]
            else:
                self.rows[id] = new
        return changes

    def visible(self, row_filter: Filter, columns: frozenset[str]) -> State:
        """What a query with this filter would give now."""
        wanted = compile_predicate(SCHEMA, row_filter)
        state: State = {}
        for id, row in self.rows.items():
            text = encode_row(SCHEMA, row)
            if wanted(decode_row(SCHEMA, text)):
                members = json.loads(text)
                state[row_key(SCHEMA, [id])] = {
                    name: members[name] for name in {*columns, *SCHEMA.key}
                }
        return state


def apply(state: State, item: Item) -> None:
    """What a subscriber does with an item; it must fit what the subscriber has."""
    result = json.loads(item.payload)
    assert result["operation"] == item.operation
    assert result["ts"] == item.received_at
    assert result["fields"] == sorted(item.fields)
    data = result["data"]
    if item.operation == "INSERT":
        assert item.row_key not in state
        assert set(item.fields) == set(data)
        state[item.row_key] = data
    elif item.operation == "UPDATE":
        before = state[item.row_key]
        assert {name for name in data if data[name] != before[name]} <= set(item.fields)
        state[item.row_key] = data
    else:
        del state[item.row_key]
        assert set(data) == set(item.fields) == set(SCHEMA.key)


def _json_operand(column: Column, value: Value) -> Any:
    text = encode_row(SCHEMA, full_row(0, **{column.name: value}))
    return json.loads(text)[column.name]


# Some more often than others, so that filters meet in a column.
_ASKED_FOR = [
    column
    for column in SCHEMA.visible
    if column.type != "json"
    for _ in range(5 if column.name in ("qty", "sym", "px") else 1)
]


@st.composite
def _conditions(draw: st.DrawFn) -> dict[str, Any]:
    column = draw(st.sampled_from(_ASKED_FOR))
    name = column.name
    known = [v for v in VALUES.get(name, [0, 1, 2, 3]) if v is not None]
    operand = st.sampled_from(known).map(lambda value: _json_operand(column, value))
    operator = draw(
        st.sampled_from(["_eq", "_eq", "_in", "_gt", "_lte", "_lt", "_gte", "_neq", "_is_null"])
    )
    if operator == "_is_null":
        return {name: {operator: draw(st.booleans())}}
    if operator == "_in":
        return {name: {operator: draw(st.lists(operand, max_size=3))}}
    if column.type == "boolean":
        operator = draw(st.sampled_from(["_eq", "_neq"]))
    found = {operator: draw(operand)}
    if operator in ("_gt", "_gte") and draw(st.booleans()):
        found[draw(st.sampled_from(["_lt", "_lte"]))] = draw(operand)
    return {name: found}


WHERES: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.one_of(_conditions(), _conditions(), _conditions(), st.just({})),
    lambda inner: st.one_of(
        inner,
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: {"_and": parts}),
        st.lists(inner, max_size=3).map(lambda parts: {"_or": parts}),
        inner.map(lambda part: {"_not": part}),
    ),
    max_leaves=4,
)
ROWS: st.SearchStrategy[Fields] = st.fixed_dictionaries(
    {name: st.sampled_from(VALUES[name]) for name in ("qty", "sym", "px")},
    optional={name: st.sampled_from(VALUES[name]) for name in ("big", "side", "at", "ok", "class")},
)
COMMITS: st.SearchStrategy[dict[int, Fields | None]] = st.dictionaries(
    st.integers(0, 2), st.one_of(ROWS, ROWS, ROWS, st.none()), min_size=1, max_size=3
)
PROJECTIONS: st.SearchStrategy[tuple[str, ...]] = st.sampled_from(
    [NAMES, ("id", "qty"), ("qty", "sym"), ("px", "class"), ("id",)]
)
