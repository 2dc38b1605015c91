"""How a ledger is read, written once: both dialects agree on every query here.

The work for one page is bounded. A filter that no index serves looks at no more than `SCAN_WINDOW`
sequences a page and says where to go on, so a rare tenant cannot make one request scan everything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

from tidemark.ledger.port import (
    CommitRow,
    Decision,
    EventFilter,
    EventPage,
    EventRow,
    KeySearch,
    RejectFilter,
    RejectRow,
    RunPart,
    RunSummary,
)
from tidemark.ledger.rows import EVENT_COLUMNS, REJECT_COLUMNS, STORED_COLUMNS
from tidemark.ledger.sequencer import Head, Stored, key_digest

SCAN_WINDOW = 100_000
# The most events of one run that are counted.
RUN_WINDOW = 100_000
# The most bytes that the texts of events have together.
MOST_TEXT_BYTES = 64 * 1024 * 1024

_CONTENT_HASH = EVENT_COLUMNS.index("content_hash")
_QUANTITY = EVENT_COLUMNS.index("quantity")

Row: TypeAlias = Any
"""A row that is read by position; the drivers have no type in common."""


class LedgerReader(ABC):
    """The reading half of a store. A dialect says how to fetch and how a quantity is spelt."""

    @abstractmethod
    async def _fetch(self, sql: str, *values: object) -> list[Row]:
        """Run a query whose placeholders are `?`."""

    @abstractmethod
    def _in_list(self, column: str, count: int) -> str:
        """A condition that `column` is one of `count` values."""

    @abstractmethod
    def _in_values(self, values: Sequence[object]) -> list[object]:
        """The parameters that belong to `_in_list`."""

    @abstractmethod
    def _plain_quantity(self, stored: Any) -> str:
        """The quantity as plain decimal text."""

    async def head(self) -> Head:
        rows = await self._fetch("SELECT last_sequence, received_at, chain FROM ledger")
        last_sequence, received_at, chain = rows[0]
        return Head(last_sequence, received_at, bytes(chain))

    async def lookup(self, digests: Sequence[bytes]) -> dict[bytes, Stored]:
        if not digests:
            return {}
        rows = await self._fetch(
            f"SELECT {STORED_COLUMNS} FROM events"
            f" WHERE {self._in_list('key_digest', len(digests))}",
            *self._in_values(list(digests)),
        )
        return {
            bytes(row[0]): Stored(row[1], row[2], row[3], row[4], bytes(row[5])) for row in rows
        }

    async def find_event(self, tenant_id: str, idempotency_key: str) -> EventRow | None:
        rows = await self._fetch(
            f"SELECT {', '.join(EVENT_COLUMNS)} FROM events WHERE key_digest = ?",
            key_digest(tenant_id, idempotency_key),
        )
        found = self._event(rows[0]) if rows else None
        # Two keys may have one digest.
        if found and (found.tenant_id, found.idempotency_key) == (tenant_id, idempotency_key):
            return found
        return None

    async def find_recent(self, idempotency_key: str, limit: int) -> KeySearch:
        # Keys are unique within a tenant, and only with it is there an index.
        first = max(1, (await self.head()).last_sequence - SCAN_WINDOW + 1)
        rows = await self._fetch(
            f"SELECT {', '.join(EVENT_COLUMNS)} FROM events"
            " WHERE ingress_sequence >= ? AND idempotency_key = ?"
            " ORDER BY ingress_sequence DESC LIMIT ?",
            first,
            idempotency_key,
            limit,
        )
        return KeySearch([self._event(row) for row in rows], first)

    async def find_corrections(self, tenant_id: str, target_key: str, limit: int) -> list[EventRow]:
        rows = await self._fetch(
            f"SELECT {', '.join(EVENT_COLUMNS)} FROM events"
            " WHERE tenant_id = ? AND target_key = ? ORDER BY ingress_sequence LIMIT ?",
            tenant_id,
            target_key,
            limit,
        )
        return [self._event(row) for row in rows]

    async def find_decisions(
        self, events: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], Decision]:
        if not events:
            return {}
        tenants = sorted({tenant for tenant, _ in events})
        keys = sorted({key for _, key in events})
        rows = await self._fetch(
            "SELECT tenant_id, target_key, control, min(ingress_sequence), max(ingress_sequence)"
            f" FROM events WHERE {self._in_list('tenant_id', len(tenants))}"
            f" AND {self._in_list('target_key', len(keys))}"
            " GROUP BY tenant_id, target_key, control",
            *self._in_values(tenants),
            *self._in_values(keys),
        )
        asked = set(events)
        decisions: dict[tuple[str, str], Decision] = {}
        for tenant, key, control, first, last in rows:
            event = (tenant, key)
            # Tenants and keys were asked for apart, so there may be pairs that nobody asked for.
            if event not in asked or (event in decisions and control != "void"):
                continue
            decisions[event] = Decision(control, first if control == "void" else last)
        return decisions

    async def summarise_run(
        self, causality_key: str, tenant_ids: tuple[str, ...] | None
    ) -> RunSummary:
        conditions, values = self._conditions(
            EventFilter(causality_key=causality_key, tenant_ids=tenant_ids)
        )
        rows = await self._fetch(
            "SELECT tenant_id, stream, count(*), min(ingress_sequence), max(ingress_sequence),"
            " min(received_at), max(received_at), min(occurred_at), max(occurred_at)"
            " FROM (SELECT tenant_id, stream, ingress_sequence, received_at, occurred_at"
            f" FROM events WHERE {' AND '.join(conditions)}"
            f" ORDER BY ingress_sequence LIMIT {RUN_WINDOW}) AS run"
            " GROUP BY tenant_id, stream ORDER BY tenant_id, stream",
            *values,
        )
        parts = [RunPart(*row) for row in rows]
        return RunSummary(parts, sum(part.count for part in parts) < RUN_WINDOW)

    async def read_events(self, event_filter: EventFilter, after: int, limit: int) -> EventPage:
        head = await self.head()
        first, last = await self._sequence_range(event_filter, head)
        after = max(after, first - 1)
        indexed = event_filter.causality_key is not None
        reach = last if indexed else min(last, after + SCAN_WINDOW)
        if after >= last:
            return EventPage([], min(after, head.last_sequence), True)
        conditions, values = self._conditions(event_filter)
        rows = await self._fetch(
            f"SELECT {', '.join(EVENT_COLUMNS)} FROM events"
            " WHERE ingress_sequence > ? AND ingress_sequence <= ?"
            + "".join(f" AND {condition}" for condition in conditions)
            + " ORDER BY ingress_sequence LIMIT ?",
            after,
            reach,
            *values,
            limit,
        )
        events = [self._event(row) for row in rows]
        scanned_to = events[-1].ingress_sequence if len(events) == limit else reach
        return EventPage(events, scanned_to, scanned_to >= last)

    async def read_commits(self, after_received_at: int, limit: int) -> list[CommitRow]:
        rows = await self._fetch(
            "SELECT received_at, first_sequence, last_sequence, chain FROM commits"
            " WHERE received_at > ? ORDER BY received_at LIMIT ?",
            after_received_at,
            limit,
        )
        return [_commit(row) for row in rows]

    async def last_commit(self, before_received_at: int) -> CommitRow | None:
        rows = await self._fetch(
            "SELECT received_at, first_sequence, last_sequence, chain FROM commits"
            " WHERE received_at < ? ORDER BY received_at DESC LIMIT 1",
            before_received_at,
        )
        return _commit(rows[0]) if rows else None

    async def read_rejects(self, reject_filter: RejectFilter, limit: int) -> list[RejectRow]:
        conditions = ["reject_id < ?"]
        before = reject_filter.before_id
        values: list[object] = [before if before is not None else 2**63 - 1]
        for column, value in (
            ("code", reject_filter.code),
            ("idempotency_key", reject_filter.idempotency_key),
        ):
            if value is not None:
                conditions.append(f"{column} = ?")
                values.append(value)
        if reject_filter.tenant_ids is not None:
            conditions.append(self._in_list("tenant_id", len(reject_filter.tenant_ids)))
            values += self._in_values(reject_filter.tenant_ids)
        rows = await self._fetch(
            f"SELECT {', '.join(REJECT_COLUMNS)} FROM ingest_rejects"
            f" WHERE {' AND '.join(conditions)} ORDER BY reject_id DESC LIMIT ?",
            *values,
            limit,
        )
        return [RejectRow(*row) for row in rows]

    def _event(self, row: Row) -> EventRow:
        values = list(row)
        values[_CONTENT_HASH] = bytes(values[_CONTENT_HASH])
        if values[_QUANTITY] is not None:
            values[_QUANTITY] = self._plain_quantity(values[_QUANTITY])
        return EventRow(*values)

    def _conditions(self, event_filter: EventFilter) -> tuple[list[str], list[object]]:
        conditions: list[str] = []
        values: list[object] = []
        for condition, value in (
            ("stream = ?", event_filter.stream),
            ("causality_key = ?", event_filter.causality_key),
            ("metric = ?", event_filter.metric),
            ("customer_ref = ?", event_filter.customer_ref),
            ("occurred_at >= ?", event_filter.occurred_from),
            ("occurred_at < ?", event_filter.occurred_to),
        ):
            if value is not None:
                conditions.append(condition)
                values.append(value)
        if event_filter.tenant_ids is not None:
            conditions.append(self._in_list("tenant_id", len(event_filter.tenant_ids)))
            values += self._in_values(event_filter.tenant_ids)
        return conditions, values

    async def _sequence_range(self, event_filter: EventFilter, head: Head) -> tuple[int, int]:
        """The first and last sequence the filter can reach."""
        first = max(1, event_filter.sequence_from or 1)
        last = head.last_sequence
        if event_filter.sequence_to is not None:
            last = min(last, event_filter.sequence_to - 1)
        if event_filter.received_from is not None:
            first = max(first, await self._first_sequence_at(event_filter.received_from, head))
        if event_filter.received_to is not None:
            last = min(last, await self._first_sequence_at(event_filter.received_to, head) - 1)
        return first, last

    async def _first_sequence_at(self, received_at: int, head: Head) -> int:
        rows = await self._fetch(
            "SELECT first_sequence FROM commits WHERE received_at >= ?"
            " ORDER BY received_at LIMIT 1",
            received_at,
        )
        return int(rows[0][0]) if rows else head.last_sequence + 1


def _commit(row: Row) -> CommitRow:
    return CommitRow(row[0], row[1], row[2], bytes(row[3]))
