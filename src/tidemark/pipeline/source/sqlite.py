"""The ledger's SQLite file, read by the source."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tidemark.ledger.sqlite_connection import BUSY_TIMEOUT_S, translated
from tidemark.pipeline.source.database import (
    BLOCK_BITS,
    PREVIOUS_COLUMN,
    LedgerDatabase,
    Owner,
    StreamOfTenant,
    blocks_of,
    event_columns,
)
from tidemark.pipeline.source.schema import EVENT_COLUMNS, Columns, columns_of, sortable_to_decimal

_EVENTS = (
    f"SELECT {event_columns()} FROM events WHERE ingress_sequence > ? AND ingress_sequence <= ?"
)
# CROSS JOIN keeps the order of the loops: SQLite looks each owner up in the index of each block.
_EVENTS_OF = (
    f"SELECT {event_columns()}, {PREVIOUS_COLUMN} FROM json_each(?) AS block"
    " CROSS JOIN json_each(?) AS owner CROSS JOIN events"
    f" WHERE events.ingress_sequence >> {BLOCK_BITS} = block.value"
    " AND events.tenant_id = owner.value ->> 0 AND events.metric = owner.value ->> 1"
    " AND events.customer_ref = owner.value ->> 2 AND events.metric IS NOT NULL"
    " AND events.ingress_sequence > ? AND events.ingress_sequence <= ?"
)
_OF_STREAMS = " AND (stream, tenant_id) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))"


class SqliteLedgerDatabase(LedgerDatabase):
    """Beside the processes that write: a reader neither waits for them nor holds them up."""

    def __init__(self, path: Path) -> None:
        # Without `c`: where there is no ledger, none must be made.
        address = f"file:{quote(str(path.absolute()))}?mode=rw"
        with translated():
            self._connection = sqlite3.connect(
                address, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None
            )
            self._connection.execute("PRAGMA query_only = ON")

    def events(self, after: int, upto: int, streams: Sequence[StreamOfTenant] | None) -> Columns:
        sql, values = _EVENTS, [after, upto]
        if streams is not None:
            rows = self._fetch(
                f"{sql}{_OF_STREAMS} ORDER BY ingress_sequence", *values, json.dumps(streams)
            )
        else:
            rows = self._fetch(f"{sql} ORDER BY ingress_sequence", *values)
        return _columns(rows)

    def events_of(
        self, after: int, upto: int, owners: Sequence[Owner], rows: int
    ) -> Iterator[tuple[Columns, Any]]:
        names = (*EVENT_COLUMNS, "previous_received_at")
        with translated():
            cursor = self._connection.execute(
                _EVENTS_OF, (json.dumps(blocks_of(after, upto)), json.dumps(owners), after, upto)
            )
            while found := cursor.fetchmany(rows):
                columns = _columns(found, names)
                yield columns, columns.pop(names[-1])

    def explain(self, after: int, upto: int, owners: Sequence[Owner]) -> str:
        """How SQLite looks for the events of owners."""
        rows = self._fetch(
            f"EXPLAIN QUERY PLAN {_EVENTS_OF}",
            *(json.dumps(blocks_of(after, upto)), json.dumps(owners), after, upto),
        )
        return "\n".join(row[3] for row in rows)

    def _fetch(self, sql: str, *values: object) -> list[Any]:
        with translated():
            return self._connection.execute(sql, values).fetchall()

    def close(self) -> None:
        self._connection.close()


def _columns(rows: Sequence[Any], names: Sequence[str] = tuple(EVENT_COLUMNS)) -> Columns:
    columns = columns_of(rows, names)
    columns["quantity"] = sortable_to_decimal(columns["quantity"])
    return columns
