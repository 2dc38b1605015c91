"""The database itself refuses to change history, whoever asks."""

from __future__ import annotations

import sqlite3

import asyncpg
import pytest

from tests.contract.events import SECOND, ManualClock, draft, drafts
from tests.contract.stores import Ledger, LedgerHome, all_commits, all_events, append

REFUSED = (sqlite3.IntegrityError, asyncpg.RaiseError)

CHANGES = {
    "update events": "UPDATE events SET quantity = NULL",
    "update one event": "UPDATE events SET tenant_id = 'globex' WHERE ingress_sequence = 1",
    "delete events": "DELETE FROM events",
    "delete one event": "DELETE FROM events WHERE ingress_sequence = 2",
    "update commits": "UPDATE commits SET last_sequence = last_sequence + 1",
    "delete commits": "DELETE FROM commits",
}
POSTGRES_ONLY = {
    "truncate events": "TRUNCATE events",
    "truncate commits": "TRUNCATE commits",
    "truncate everything": "TRUNCATE ledger, events, commits CASCADE",
    "upsert an event": "INSERT INTO events SELECT * FROM events"
    " ON CONFLICT (key_digest) DO UPDATE SET data = 'x'",
    "upsert a commit": "INSERT INTO commits SELECT * FROM commits"
    " ON CONFLICT (received_at) DO UPDATE SET first_sequence = 1",
    "merge into events": "MERGE INTO events USING commits ON true"
    " WHEN MATCHED THEN UPDATE SET data = 'x'",
}
SQLITE_ONLY = {
    "replace an event": "INSERT OR REPLACE INTO events SELECT * FROM events LIMIT 1",
    "replace an event by its number": "REPLACE INTO events"
    " (ingress_sequence, received_at, occurred_at, key_digest, content_hash, tenant_id, stream,"
    " idempotency_key) VALUES (1, 0, 0, x'00', x'00', 'acme', 'usage', 'mine')",
    "replace an event by its key": "REPLACE INTO events"
    " (ingress_sequence, received_at, occurred_at, key_digest, content_hash, tenant_id, stream,"
    " idempotency_key) SELECT 100, 0, 0, key_digest, x'00', 'acme', 'usage', 'mine' FROM events",
    "replace a commit": "INSERT OR REPLACE INTO commits SELECT received_at, 1, 99, chain"
    " FROM commits",
    "upsert an event": "INSERT INTO events SELECT * FROM events WHERE true"
    " ON CONFLICT (key_digest) DO UPDATE SET data = 'x'",
    "update or replace": "UPDATE OR REPLACE events SET ingress_sequence = 1",
    "insert before the end": "INSERT INTO commits SELECT received_at - 1, 1, 99, chain FROM commits"
    " LIMIT 1",
}


async def assert_refused(home: LedgerHome, ledger: Ledger, statement: str) -> None:
    events, commits = await all_events(ledger), await all_commits(ledger)
    with pytest.raises(REFUSED, match="append-only"):
        await home.sql(statement)
    assert await all_events(ledger) == events
    assert await all_commits(ledger) == commits


async def some_history(home: LedgerHome) -> Ledger:
    clock = ManualClock()
    ledger = await home.open(clock)
    await append(ledger, *drafts("a", "b", "c"))
    clock.pass_time(SECOND)
    await append(ledger, *drafts("d", "e"))
    return ledger


@pytest.mark.parametrize("change", CHANGES)
async def test_history_cannot_be_changed_by_sql(home: LedgerHome, change: str) -> None:
    await assert_refused(home, await some_history(home), CHANGES[change])


@pytest.mark.parametrize("change", POSTGRES_ONLY)
async def test_history_cannot_be_changed_by_what_only_postgres_has(
    postgres_home: LedgerHome, change: str
) -> None:
    await assert_refused(postgres_home, await some_history(postgres_home), POSTGRES_ONLY[change])


@pytest.mark.parametrize("change", SQLITE_ONLY)
async def test_history_cannot_be_changed_by_what_only_sqlite_has(
    sqlite_home: LedgerHome, change: str
) -> None:
    await assert_refused(sqlite_home, await some_history(sqlite_home), SQLITE_ONLY[change])


async def test_a_second_event_with_a_known_key_is_refused_by_the_database(
    home: LedgerHome,
) -> None:
    """So even a sequencer with a bug could not store an event twice."""
    ledger = await some_history(home)
    with pytest.raises((sqlite3.IntegrityError, asyncpg.UniqueViolationError)):
        await home.sql(
            "INSERT INTO events (ingress_sequence, received_at, occurred_at, key_digest,"
            " content_hash, tenant_id, stream, idempotency_key) SELECT 100, 0, 0, key_digest,"
            " content_hash, tenant_id, stream, idempotency_key FROM events WHERE"
            " ingress_sequence = 1"
        )
    assert len(await all_events(ledger)) == 5


async def test_a_refused_change_does_not_stop_ingest(home: LedgerHome) -> None:
    ledger = await some_history(home)
    with pytest.raises(REFUSED):
        await home.sql(CHANGES["delete events"])
    [outcome] = await append(ledger, draft("f"))
    assert outcome.ingress_sequence == 6
