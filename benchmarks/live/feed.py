"""Plays the pipeline: rows and changes straight into a store of views, as fast as it takes them.

A view's rows are told by their number: row `n` belongs to account `n % accounts`. Every change is
an UPDATE of the quantity of the next row: no two soon after each other are of the same row.
`received_at` is the wall clock just before the commit begins: what a client finds in a message says
how long it has been under way, the commit included.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

from tidemark.pipeline.output.batch import UPDATE, Changes, Frontier, RowWrites, ViewBatch
from tidemark.pipeline.output.encoding import encode_names, encode_rows, row_keys
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.views.port import ViewsStore

LOADED_AT_ONCE: Final = 5_000
QUANTITIES: Final = 100
_CHANGED: Final = encode_names(["quantity"])
_ONE: Final = Decimal(1)


class FedRows:
    """The rows of one view and what they are changed to."""

    def __init__(self, schema: ViewSchema, rows: int, accounts: int) -> None:
        self.schema = schema
        self.rows = rows
        self.accounts = accounts
        self.quantities = [number % QUANTITIES for number in range(rows)]
        self._texts: list[str] = []
        self._keys: list[str] = []
        self._next = 0

    def loaded(self) -> Iterator[RowWrites]:
        """All rows as they are at first, in parts."""
        for first in range(0, self.rows, LOADED_AT_ONCE):
            numbers = range(first, min(first + LOADED_AT_ONCE, self.rows))
            columns = self._columns(numbers)
            self._keys += row_keys(self.schema, columns)
            self._texts += encode_rows(self.schema, columns)
            yield self._writes(numbers, columns, 1)

    def changed(self, count: int, received_at: int) -> tuple[RowWrites, Changes, list[range]]:
        """The next changes; of each the quantities from the lower to the higher of the two."""
        first = self._next
        self._next = (first + count) % self.rows
        numbers = [number % self.rows for number in range(first, first + count)]
        spans = []
        for number in numbers:
            old = self.quantities[number]
            new = self.quantities[number] = (old * 7 + 13) % QUANTITIES
            if old == new:
                new = self.quantities[number] = (old + 1) % QUANTITIES
            spans.append(range(min(old, new), max(old, new) + 1))
        columns = self._columns(numbers)
        before = [self._texts[number] for number in numbers]
        after = encode_rows(self.schema, columns)
        for number, text in zip(numbers, after, strict=True):
            self._texts[number] = text
        changes = Changes(
            self.schema.name,
            [received_at] * count,
            [self._keys[number] for number in numbers],
            [UPDATE] * count,
            before,
            after,
            [_CHANGED] * count,
        )
        return self._writes(numbers, columns, received_at), changes, spans

    def _columns(self, numbers: Sequence[int]) -> dict[str, list[Any]]:
        count = len(numbers)
        return {
            "tenant_id": ["acme"] * count,
            "trade_id": [f"trade-{number}" for number in numbers],
            "account": [account(number % self.accounts) for number in numbers],
            "symbol": [f"S{number % 97}" for number in numbers],
            "side": ["buy"] * count,
            "quantity": [_ONE * self.quantities[number] for number in numbers],
            "price": [Decimal("12.50")] * count,
            "executed_at": [1_762_776_000_000_000] * count,
            "row_ts": [1_762_776_000_000_000] * count,
            "row_seq": list(numbers),
        }

    def _writes(
        self, numbers: Sequence[int], columns: dict[str, list[Any]], received_at: int
    ) -> RowWrites:
        return RowWrites(
            self.schema.name,
            [self._keys[number] for number in numbers],
            [received_at] * len(numbers),
            [columns[column.name] for column in self.schema.columns],
        )


class Feed:
    """The views of one store; nobody else may feed it."""

    def __init__(self, store: ViewsStore, views: Sequence[FedRows]) -> None:
        self.views = list(views)
        self._store = store
        self._frontier: Frontier | None = None

    @property
    def received_at(self) -> int:
        """When the last commit was received; a client that resumes after it hears of the next."""
        return 0 if self._frontier is None else self._frontier.received_at

    async def load(self) -> None:
        """Declares the views and writes all their rows."""
        await self._store.declare([view.schema for view in self.views])
        for view in self.views:
            for writes in view.loaded():
                await self._commit(self._now(), [writes], [])

    async def change(self, view: FedRows, count: int) -> list[range]:
        """One commit with the next changes of a view; see `FedRows.changed`."""
        received_at = self._now()
        writes, changes, spans = view.changed(count, received_at)
        await self._commit(received_at, [writes], [changes])
        return spans

    def _now(self) -> int:
        return max(self.received_at + 1, time.time_ns() // 1_000)

    async def _commit(
        self, received_at: int, rows: Sequence[RowWrites], changes: Sequence[Changes]
    ) -> None:
        before = self._frontier
        number = 1 if before is None else before.ingress_sequence + 1
        end = Frontier(number, received_at, bytes(32), "fed")
        await self._store.commit(ViewBatch(before, end, rows=rows, changes=changes))
        self._frontier = end


def account(number: int) -> str:
    return f"account-{number}"
