"""The two views of a window: their columns, their rows as text and what changes from commit to
commit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.reference.tables import Field, Table, TableChange, Values, key_text, row_text

WINDOW_COLUMNS: Final = (
    Field("window_start", "timestamp"),
    Field("window_end", "timestamp"),
    Field("agg_sum", "decimal"),
    Field("agg_max", "decimal"),
    Field("agg_min", "decimal"),
    Field("agg_count", "bigint"),
    Field("agg_last", "decimal"),
    Field("value", "decimal"),
    Field("is_closed", "boolean"),
)
LATE_COLUMNS: Final = (
    Field("window_start", "timestamp"),
    Field("window_end", "timestamp"),
    Field("ingress_sequence", "bigint"),
    Field("part", "int"),
    Field("event_ts", "timestamp"),
    Field("amount", "decimal"),
    Field("reason", "string"),
    Field("idempotency_key", "string"),
    Field("original_key", "string"),
)
OWN_COLUMNS: Final = ("tenant_id", *(f.name for f in (*WINDOW_COLUMNS, *LATE_COLUMNS)))


class ViewRow(NamedTuple):
    """`changed_at` is the last commit that changed its text."""

    text: str
    changed_at: int


@dataclass
class ViewResult:
    """Rows after the last commit by key; changes by commit and then by key."""

    rows: dict[str, ViewRow] = field(default_factory=dict)
    changes: list[TableChange] = field(default_factory=list)


@dataclass
class WindowResult(ViewResult):
    """The view, the view of what was late, and errors as sequence and code."""

    late: ViewResult = field(default_factory=ViewResult)
    errors: list[tuple[int, str]] = field(default_factory=list)


def window_view(name: str, groups: Sequence[Field]) -> Table:
    key = (*(group.name for group in groups), "window_start")
    return Table(name, "", key, (*groups, *WINDOW_COLUMNS))


def late_view(name: str, groups: Sequence[Field]) -> Table:
    key = ("ingress_sequence", "window_start", "part")
    return Table(f"{name}_late", "", key, (*groups, *LATE_COLUMNS))


def by_key(view: Table, rows: Sequence[Values]) -> dict[str, str]:
    """The texts of the rows by the texts of their keys, of which no two may be the same."""
    kinds = dict(view.columns)
    texts = {
        key_text([(row[name], kinds[name]) for name in ("tenant_id", *view.key)]): row
        for row in rows
    }
    if len(texts) < len(rows):
        raise ValueError(f"two rows of {view.name} have the same key")
    return {key: row_text(view, row) for key, row in texts.items()}


def show(view: Table, result: ViewResult, received_at: int, rows: Sequence[Values]) -> None:
    """Put these rows, all there are after a commit, in place of those before it."""
    after = by_key(view, rows)
    for key in sorted(result.rows.keys() | after.keys()):
        old = result.rows[key].text if key in result.rows else None
        new = after.get(key)
        if old == new:
            continue
        result.changes.append(_change(view, received_at, key, old, new))
        if new is None:
            del result.rows[key]
        else:
            result.rows[key] = ViewRow(new, received_at)


def _change(
    view: Table, received_at: int, key: str, old: str | None, new: str | None
) -> TableChange:
    if old is None:
        return TableChange(received_at, key, "insert", None, new, None)
    if new is None:
        return TableChange(received_at, key, "delete", old, None, None)
    was, now = _members(old), _members(new)
    changed = tuple(name for name, _ in view.columns if was[name] != now[name])
    return TableChange(received_at, key, "update", old, new, changed)


def _members(text: str) -> Mapping[str, object]:
    members: dict[str, object] = json.loads(text)
    return members
