"""The ledger on PostgreSQL: any number of API processes, one order.

The row of `ledger` is the sequencer. Whoever holds its lock gives the next numbers and keeps the
lock to the commit, so numbers are dense and become visible in order. Every statement after the
lock has a snapshot of its own, so it sees the commit before this one, whichever process made it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from functools import partial
from typing import Any

import asyncpg
import msgspec

from tidemark.clock import Clock
from tidemark.crash import crash_point
from tidemark.errors import ClockLeap
from tidemark.ingress.drafts import CorrectionResolver, Outcome, Submission
from tidemark.ledger.clock_guard import ClockGuard, decode_anchor
from tidemark.ledger.founding import Founding, check_salt, found_ledger
from tidemark.ledger.global_sequence import GlobalNumbers, NoGlobalNumbers
from tidemark.ledger.migrations import Migration, pending
from tidemark.ledger.port import HistoryCommit
from tidemark.ledger.postgres_statements import (
    BEGIN,
    END_HUNG_SESSIONS,
    HEAD,
    LOCK,
    PRUNE_REJECTS,
    head_and_known,
    numbered,
    originals,
    seal,
    translated,
)
from tidemark.ledger.reading import LedgerReader, Row
from tidemark.ledger.rows import (
    EVENT_INSERT_COLUMNS,
    REJECT_INSERT_COLUMNS,
    commit_row,
    commit_rows,
    event_rows,
    reject_rows,
)
from tidemark.ledger.sequencer import (
    Decide,
    Head,
    Placement,
    correction_targets,
    digests_of,
    extend_chain,
    next_received_at,
    place,
    place_history,
    resolve_corrections,
)

SCHEMA = "tidemark"
WRITER_CONNECTIONS = 2
READER_CONNECTIONS = 4
CONNECT_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 30.0
# A process that hangs while it holds the sequencer's lock must not stop all others for good.
HUNG_AFTER_S = 20
# A commit of a history may be of any size: both limits grow with it.
PATIENCE_PER_EVENT_S = 0.001
SESSION_SETTINGS = {
    "search_path": SCHEMA,
    "timezone": "UTC",
    "jit": "off",
    # What waited for the sequencer's lock must then see what the one before it committed.
    "default_transaction_isolation": "read committed",
    "lock_timeout": f"{HUNG_AFTER_S}s",
    "idle_in_transaction_session_timeout": f"{HUNG_AFTER_S}s",
}
# Without statistics the planner prefers to scan a table that has just begun to grow.
WRITER_SETTINGS = SESSION_SETTINGS | {"enable_seqscan": "off", "synchronous_commit": "on"}
# Advisory lock that only one migrating process holds; the number spells "tide".
MIGRATION_LOCK = 0x74696465


class PostgresLedger(LedgerReader):
    """A `LedgerStore`. Make one with `open`."""

    def __init__(
        self,
        writers: asyncpg.Pool,
        readers: asyncpg.Pool,
        guard: ClockGuard,
        founding: Founding,
        *,
        reject_log_size: int,
        global_numbers: GlobalNumbers,
    ) -> None:
        self.ledger_id = founding.ledger_id
        self.salt = founding.salt
        self.writers = WRITER_CONNECTIONS
        self._writers = writers
        self._readers = readers
        self._guard = guard
        self._reject_log_size = reject_log_size
        # So that the first refusal prunes: what earlier processes left is not known.
        self._refused_since_prune = reject_log_size
        self.global_numbers = global_numbers

    @classmethod
    async def open(
        cls,
        url: str,
        clock: Clock,
        *,
        salt: str | None = None,
        clock_leap_us: int,
        reject_log_size: int,
        global_numbers: GlobalNumbers | None = None,
    ) -> PostgresLedger:
        """Connect, bring the schema up to date, found the ledger if it is new."""
        with translated():
            await migrate(url)
            writers = await _pool(url, WRITER_CONNECTIONS, WRITER_SETTINGS)
            readers = await _pool(url, READER_CONNECTIONS, SESSION_SETTINGS)
            guard = ClockGuard(clock, clock_leap_us)
            try:
                async with writers.acquire() as connection, connection.transaction():
                    founding = await _found(connection, clock.wall_us(), salt, guard)
            except BaseException:
                await writers.close()
                await readers.close()
                raise
        return cls(
            writers,
            readers,
            guard,
            founding,
            reject_log_size=reject_log_size,
            global_numbers=global_numbers or NoGlobalNumbers(),
        )

    async def append_group(
        self, submissions: Sequence[Submission], resolve: CorrectionResolver
    ) -> list[list[Outcome]]:
        with translated():
            async with self._writers.acquire() as connection:
                await self._settle_clock(connection)
                [placement] = await self._append(
                    connection,
                    submissions,
                    resolve,
                    lambda new, digests, known, head: [
                        place(new, digests, known, head, self._guard.now_us())
                    ],
                )
        return placement.outcomes

    async def append_history(
        self, commits: Sequence[HistoryCommit], resolve: CorrectionResolver
    ) -> list[list[Outcome]]:
        submissions = [commit.submission for commit in commits]
        decide = partial(place_history, received_at=[commit.received_at for commit in commits])
        patience_s = sum(len(s.entries) for s in submissions) * PATIENCE_PER_EVENT_S
        with translated():
            async with self._writers.acquire() as connection:
                placements = await self._append(
                    connection, submissions, resolve, decide, patience_s
                )
        return [outcomes for placement in placements for outcomes in placement.outcomes]

    async def tick(self, silent_for_us: int) -> Head | None:
        with translated():
            async with self._writers.acquire() as connection:
                await self._settle_clock(connection)
                async with _locked(connection):
                    return await self._tick(connection, silent_for_us)

    def check_clock(self) -> None:
        self._guard.now_us()

    async def confirm_clock(self) -> None:
        anchor = self._guard.take_anchor()
        with translated():
            await self._readers.execute(
                "UPDATE ledger SET clock_hold = NULL, clock_anchor = $1",
                msgspec.json.encode(anchor).decode(),
            )
        self._guard.confirm(anchor)

    async def close(self) -> None:
        await self.global_numbers.close()
        for pool in (self._writers, self._readers):
            try:
                await asyncio.wait_for(pool.close(), timeout=CONNECT_TIMEOUT_S)
            except TimeoutError:
                pool.terminate()

    async def _append(
        self,
        connection: Any,
        submissions: Sequence[Submission],
        resolve: CorrectionResolver,
        decide: Decide,
        patience_s: float = 0,
    ) -> list[Placement]:
        timeout_s = COMMAND_TIMEOUT_S + patience_s
        async with _locked(connection, patience_s):
            crash_point("ledger.locked")
            targets = correction_targets(
                itertools.chain.from_iterable(s.entries for s in submissions)
            )
            if targets:
                known_targets = await originals(connection, list(targets), timeout_s)
                submissions = resolve_corrections(submissions, known_targets, resolve)
            digests = [digests_of(submission) for submission in submissions]
            wanted = [d for group in digests for d in group if d is not None]
            head, known = await head_and_known(connection, wanted, timeout_s)
            placements = decide(submissions, digests, known, head)
            await self._write(connection, placements, timeout_s)
        crash_point("ledger.after_commit")
        return placements

    async def _tick(self, connection: Any, silent_for_us: int) -> Head | None:
        [row] = await connection.fetch(HEAD)
        head = Head(row[0], row[1], row[2])
        now_us = self._guard.now_us()
        if now_us - head.received_at < silent_for_us:
            return None
        ticked = Head(
            head.last_sequence, next_received_at(now_us, head), extend_chain(head.chain, ())
        )
        await connection.execute(seal([commit_row(ticked, ticked.last_sequence + 1)]) + "COMMIT")
        return ticked

    async def _settle_clock(self, connection: Any) -> None:
        """Make a leap known to other processes, and notice when an operator has confirmed it."""
        try:
            self._guard.now_us()
            return
        except ClockLeap:
            pass
        async with connection.transaction():
            anchor, hold = await connection.fetchrow(
                "SELECT clock_anchor, clock_hold FROM ledger FOR UPDATE"
            )
            leap_us = self._guard.reconsider(decode_anchor(anchor), hold)
            if leap_us is not None:
                await connection.execute("UPDATE ledger SET clock_hold = $1", leap_us)
        if leap_us is not None:
            self._guard.hold_was_stored()
        self._guard.now_us()

    async def _write(
        self, connection: Any, placements: Sequence[Placement], timeout_s: float
    ) -> None:
        """Write what was decided and commit it, in as few round trips as can be."""
        sealed = ""
        count = sum(len(placement.drafts) for placement in placements)
        if count:
            numbers = await self.global_numbers.take(count)
            await connection.copy_records_to_table(
                "events",
                records=event_rows(placements, numbers, Decimal),
                columns=EVENT_INSERT_COLUMNS,
                timeout=timeout_s,
            )
            crash_point("ledger.events_written")
            sealed = seal(commit_rows(placements))
        if refused := reject_rows(placements):
            await self._log_refusals(connection, refused)
        crash_point("ledger.before_commit")
        await connection.execute(sealed + "COMMIT", timeout=timeout_s)

    async def _log_refusals(self, connection: Any, refused: Sequence[tuple[object, ...]]) -> None:
        await connection.copy_records_to_table(
            "ingest_rejects", records=refused, columns=REJECT_INSERT_COLUMNS
        )
        self._refused_since_prune += len(refused)
        if self._refused_since_prune * 10 >= self._reject_log_size:
            await connection.execute(PRUNE_REJECTS, self._reject_log_size)
            self._refused_since_prune = 0

    async def _fetch(self, sql: str, *values: object) -> list[Row]:
        with translated():
            return await self._readers.fetch(numbered(sql), *values)

    def _in_list(self, column: str, count: int) -> str:
        return f"{column} = ANY(?)"

    def _in_values(self, values: Sequence[object]) -> list[object]:
        return [list(values)]

    def _plain_quantity(self, stored: Decimal) -> str:
        return format(stored, "f")


async def migrate(url: str, *, dry_run: bool = False) -> list[Migration]:
    """Run what is pending, once, under a lock; other processes wait and then find nothing to do."""
    with translated():
        connection = await asyncpg.connect(
            url, timeout=CONNECT_TIMEOUT_S, server_settings={"search_path": SCHEMA}
        )
        try:
            await connection.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
            exists = await connection.fetchval(
                "SELECT to_regclass($1) IS NOT NULL", f"{SCHEMA}.schema_migrations"
            )
            applied: set[int] = set()
            if exists:
                rows = await connection.fetch("SELECT version FROM schema_migrations")
                applied = {row["version"] for row in rows}
            todo = pending("postgres", applied)
            if dry_run:
                return todo
            for migration in todo:
                async with connection.transaction():
                    await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
                    await connection.execute(
                        "CREATE TABLE IF NOT EXISTS schema_migrations"
                        " (version integer PRIMARY KEY, name text NOT NULL)"
                    )
                    await connection.execute(migration.sql)
                    await connection.execute(
                        "INSERT INTO schema_migrations VALUES ($1, $2)",
                        migration.version,
                        migration.name,
                    )
                    crash_point("migrate.before_commit")
            return todo
        finally:
            await connection.close(timeout=CONNECT_TIMEOUT_S)


async def _pool(url: str, size: int, settings: dict[str, str]) -> asyncpg.Pool:
    return await asyncpg.create_pool(
        url,
        min_size=1,
        max_size=size,
        timeout=CONNECT_TIMEOUT_S,
        command_timeout=COMMAND_TIMEOUT_S,
        server_settings=settings,
        # Our sessions keep their settings, so the usual reset would only cost a round trip.
        reset=_roll_back,
    )


async def _found(connection: Any, now_us: int, salt: str | None, guard: ClockGuard) -> Founding:
    fresh = found_ledger(salt)
    await connection.execute(
        "INSERT INTO ledger (ledger_id, salt, created_at, last_sequence, received_at, chain)"
        " VALUES ($1, $2, $3, 0, 0, $4) ON CONFLICT DO NOTHING",
        fresh.ledger_id,
        fresh.salt,
        now_us,
        fresh.chain,
    )
    row = await connection.fetchrow(
        "SELECT ledger_id, salt, clock_anchor, clock_hold FROM ledger FOR UPDATE"
    )
    check_salt(salt, row["salt"])
    guard.restore(decode_anchor(row["clock_anchor"]), row["clock_hold"])
    if guard.hold_us is None:
        await connection.execute(
            "UPDATE ledger SET clock_anchor = $1", msgspec.json.encode(guard.anchor).decode()
        )
    return Founding(row["ledger_id"], row["salt"], fresh.chain)


@asynccontextmanager
async def _locked(connection: Any, patience_s: float = 0) -> AsyncIterator[None]:
    """The sequencer's lock. The body commits; whatever it leaves uncommitted is rolled back."""
    begin = BEGIN
    if patience_s:
        idle_ms = round((HUNG_AFTER_S + patience_s) * 1000)
        begin += f"SET LOCAL idle_in_transaction_session_timeout = {idle_ms}; "
    try:
        await connection.execute(begin + LOCK)
        yield
    except asyncpg.LockNotAvailableError:
        await _roll_back(connection)
        await connection.execute(END_HUNG_SESSIONS, HUNG_AFTER_S / 2)
        raise
    finally:
        await _roll_back(connection)


async def _roll_back(connection: Any) -> None:
    if not connection.is_closed() and connection.is_in_transaction():
        await connection.execute("ROLLBACK")
