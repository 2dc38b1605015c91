"""All that was ever committed to a view of positions, and what must follow from it.

The reference for whatever is live: it keeps every commit, and computes rows and the events of
triggers from the first one on, in plain Python.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias

from tests.reference.filters import Types, wanted

Key: TypeAlias = tuple[str, str]
"""Account and symbol. All rows are of one tenant, which begins the key of the view."""
Row: TypeAlias = Mapping[str, Any]
Where: TypeAlias = dict[str, Any]

TYPES: Final[Types] = {"account": "string", "symbol": "string", "quantity": "decimal"}
TENANT: Final = "acme"
SHOWN: Final = ("account", "symbol", "side", "quantity")


class Commit(NamedTuple):
    """The rows that a commit leaves under the keys it touches; None where there is none."""

    received_at: int
    rows: dict[Key, Row | None]


class Watch(NamedTuple):
    """A life of a trigger."""

    name: str
    match: Where
    unmatch: Where | None
    since: int = 0
    until: int | None = None


class Told(NamedTuple):
    """An event as a receiver must have it."""

    event_id: str
    event_type: str
    key: Key
    source_timestamp: int
    data: dict[str, Any]


class Past:
    """Commits in their order. One that is about to be stored may be here already."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.rows: dict[Key, Row] = {}

    def add(self, received_at: int, rows: dict[Key, Row | None]) -> None:
        self.commits.append(Commit(received_at, rows))
        apply(self.rows, rows)

    def events(self, watch: Watch) -> Iterator[Told]:
        """All that a trigger has to say about this past."""
        rows: dict[Key, Row] = {}
        matched: set[Key] | None = None
        for received_at, changed in self.commits:
            if matched is None and received_at > watch.since:
                matched = {key for key, row in rows.items() if wanted(TYPES, watch.match, row)}
            for key, new in changed.items():
                old = rows.get(key)
                if matched is not None and not (watch.until and received_at > watch.until):
                    is_matched = _is_matched(watch, new, key in matched)
                    if is_matched != (key in matched):
                        matched.symmetric_difference_update({key})
                        data = new or old
                        assert data is not None
                        kind = "MATCH" if is_matched else "UNMATCH"
                        identity = event_id(watch.name, key, received_at)
                        yield Told(identity, kind, key, received_at, shown(data))
            apply(rows, changed)


class Expected:
    """The rows that a filter lets through, as of a time that only moves on."""

    def __init__(self, past: Past, where: Where) -> None:
        self._past = past
        self._where = where
        self._next = 0
        self.rows: dict[Key, dict[str, Any]] = {}

    def at(self, received_at: int) -> dict[Key, dict[str, Any]]:
        commits = self._past.commits
        end = bisect_right(commits, received_at, key=lambda commit: commit.received_at)
        for commit in commits[self._next : end]:
            for key, row in commit.rows.items():
                if row is not None and wanted(TYPES, self._where, row):
                    self.rows[key] = shown(row)
                else:
                    self.rows.pop(key, None)
        self._next = max(end, self._next)
        return self.rows


def event_id(trigger: str, key: Key, received_at: int) -> str:
    text = json.dumps([TENANT, *key], separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(f"{trigger}:{text}:{received_at}".encode()).hexdigest()[:32]


def key_of(row: Row) -> Key:
    return row["account"], row["symbol"]


def shown(row: Row) -> dict[str, Any]:
    """What is compared of a row, whoever shows it."""
    values = {name: row[name] for name in SHOWN}
    return {**values, "quantity": Decimal(values["quantity"])}


def apply(rows: dict[Key, Row], changed: Mapping[Key, Row | None]) -> None:
    for key, row in changed.items():
        rows.pop(key, None)
        if row is not None:
            rows[key] = row


def _is_matched(watch: Watch, row: Row | None, was_matched: bool) -> bool:
    if row is None:
        return False
    if wanted(TYPES, watch.match, row):
        return True
    leaves = watch.unmatch is None or wanted(TYPES, watch.unmatch, row)
    return was_matched and not leaves
