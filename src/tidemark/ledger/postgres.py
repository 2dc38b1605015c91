"""The ledger on PostgreSQL: any number of API processes, one order.

The row of `ledger` is the sequencer. Whoever holds its lock gives the next numbers and keeps the
lock to the commit, so numbers are dense and become visible in order. What can be asked before the
lock is taken (which keys are known already) is asked before; under the lock only the commits that
came in between are looked at again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from decimal import Decimal
from typing import Any

import asyncpg
import msgspec

from tidemark.clock import Clock
from tidemark.crash import crash_point
from tidemark.errors import (
    ClockLeap,
    LedgerUnavailable,
    StorageRefused,
)
from tidemark.ingress.drafts import CorrectionResolver, Original, Outcome, Submission
from tidemark.ledger.clock_guard import ClockGuard, decode_anchor
from tidemark.ledger.founding import Founding, check_salt, found_ledger
from tidemark.ledger.global_sequence import GlobalNumbers, NoGlobalNumbers
from tidemark.ledger.migrations import Migration, pending
from tidemark.ledger.reading import LedgerReader, Row
from tidemark.ledger.rows import (
    EVENT_INSERT_COLUMNS,
    REJECT_INSERT_COLUMNS,
    event_rows,
    reject_rows,
)
from tidemark.ledger.sequencer import (
    Head,
    Placement,
    Stored,
    correction_targets,
    digests_of,
    extend_chain,
    ledger_has_gone_on,
    next_received_at,
    place,
    resolve_corrections,
)

SCHEMA = "tidemark"
WRITER_CONNECTIONS = 2
READER_CONNECTIONS = 4
CONNECT_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 30.0
# A process that hangs while it holds the sequencer's lock must not stop all others for good.
HUNG_AFTER_S = 20
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

_STORED = "key_digest, tenant_id, idempotency_key, ingress_sequence, received_at, content_hash"
# Each statement after the lock has a snapshot of its own, so it sees the commit before this one.
_BEGIN_AND_LOCK = "BEGIN; SELECT FROM ledger FOR UPDATE"
_HEAD = "SELECT last_sequence, received_at, chain FROM ledger"
_HEAD_AND_KNOWN = (
    "SELECT NULL, NULL, NULL, last_sequence, received_at, chain FROM ledger"
    f" UNION ALL SELECT {_STORED} FROM events WHERE key_digest = ANY($1::bytea[])"
)
# No timeout of PostgreSQL's ends a session whose client falls silent in the middle of a COPY.
_END_HUNG_SESSIONS = (
    "SELECT pg_terminate_backend(holder.pid) FROM pg_locks AS held"
    " JOIN pg_stat_activity AS holder USING (pid) WHERE held.relation = 'ledger'::regclass"
    " AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND held.granted AND held.mode = 'RowShareLock' AND holder.wait_event = 'ClientRead'"
    " AND holder.query_start < clock_timestamp() - make_interval(secs => $1)"
)
_PRUNE_REJECTS = (
    "DELETE FROM ingest_rejects WHERE reject_id <= (SELECT max(reject_id) FROM ingest_rejects) - $1"
)


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
        with _translated():
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
        self,
        submissions: Sequence[Submission],
        resolve: CorrectionResolver,
        *,
        received_at: int | None = None,
    ) -> list[list[Outcome]]:
        with _translated():
            async with (
                self._writers.acquire() as connection,
                self._locked(connection, received_at),
            ):
                crash_point("ledger.locked")
                targets = correction_targets(
                    itertools.chain.from_iterable(s.entries for s in submissions)
                )
                if targets:
                    originals = await _originals(connection, list(targets))
                    submissions = resolve_corrections(submissions, originals, resolve)
                digests = [digests_of(submission) for submission in submissions]
                wanted = [d for group in digests for d in group if d is not None]
                head, known = await _head_and_known(connection, wanted)
                now_us = self._time_of_commit(head, received_at)
                placement = place(submissions, digests, known, head, now_us)
                await self._write(connection, placement, now_us)
            crash_point("ledger.after_commit")
            return placement.outcomes

    async def tick(self, silent_for_us: int) -> Head | None:
        with _translated():
            async with self._writers.acquire() as connection, self._locked(connection, None):
                [row] = await connection.fetch(_HEAD)
                head = Head(row[0], row[1], row[2])
                now_us = self._guard.now_us()
                if now_us - head.received_at < silent_for_us:
                    return None
                ticked = Head(
                    head.last_sequence, next_received_at(now_us, head), extend_chain(head.chain, ())
                )
                await connection.execute(_seal(ticked, ticked.last_sequence + 1) + "COMMIT")
            return ticked

    def check_clock(self) -> None:
        self._guard.now_us()

    async def confirm_clock(self) -> None:
        anchor = self._guard.take_anchor()
        with _translated():
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

    @asynccontextmanager
    async def _locked(self, connection: Any, received_at: int | None) -> AsyncIterator[None]:
        """The sequencer's lock. The body commits; whatever it leaves uncommitted is rolled back."""
        if received_at is None:
            await self._settle_clock(connection)
        try:
            await connection.execute(_BEGIN_AND_LOCK)
            yield
        except asyncpg.LockNotAvailableError:
            await _roll_back(connection)
            await connection.execute(_END_HUNG_SESSIONS, HUNG_AFTER_S / 2)
            raise
        finally:
            await _roll_back(connection)

    def _time_of_commit(self, head: Head, received_at: int | None) -> int:
        if received_at is None:
            return self._guard.now_us()
        if received_at <= head.received_at:
            raise ledger_has_gone_on()
        return received_at

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

    async def _write(self, connection: Any, placement: Placement, now_us: int) -> None:
        """Write what was decided and commit it, in as few round trips as can be."""
        seal = ""
        if placement.drafts:
            numbers = await self.global_numbers.take(len(placement.drafts))
            await connection.copy_records_to_table(
                "events",
                records=event_rows(placement, numbers, Decimal),
                columns=EVENT_INSERT_COLUMNS,
            )
            crash_point("ledger.events_written")
            seal = _seal(placement.head, placement.first_sequence)
        if placement.refusals:
            await self._log_refusals(connection, placement, now_us)
        crash_point("ledger.before_commit")
        await connection.execute(seal + "COMMIT")

    async def _log_refusals(self, connection: Any, placement: Placement, now_us: int) -> None:
        await connection.copy_records_to_table(
            "ingest_rejects", records=reject_rows(placement, now_us), columns=REJECT_INSERT_COLUMNS
        )
        self._refused_since_prune += len(placement.refusals)
        if self._refused_since_prune * 10 >= self._reject_log_size:
            await connection.execute(_PRUNE_REJECTS, self._reject_log_size)
            self._refused_since_prune = 0

    async def _fetch(self, sql: str, *values: object) -> list[Row]:
        with _translated():
            return await self._readers.fetch(_numbered(sql), *values)

    def _in_list(self, column: str, count: int) -> str:
        return f"{column} = ANY(?)"

    def _in_values(self, values: Sequence[object]) -> list[object]:
        return [list(values)]

    def _plain_quantity(self, stored: Decimal) -> str:
        return format(stored, "f")


async def migrate(url: str, *, dry_run: bool = False) -> list[Migration]:
    """Run what is pending, once, under a lock; other processes wait and then find nothing to do."""
    with _translated():
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


async def _head_and_known(connection: Any, wanted: list[bytes]) -> tuple[Head, dict[bytes, Stored]]:
    rows = await connection.fetch(_HEAD_AND_KNOWN, wanted)
    head = next(Head(row[3], row[4], row[5]) for row in rows if row[0] is None)
    known = {
        row[0]: Stored(row[1], row[2], row[3], row[4], row[5]) for row in rows if row[0] is not None
    }
    return head, known


async def _originals(connection: Any, digests: list[bytes]) -> dict[bytes, Original]:
    rows = await connection.fetch(
        "SELECT key_digest, stream, metric, customer_ref, control FROM events"
        " WHERE key_digest = ANY($1::bytea[])",
        digests,
    )
    return {row[0]: Original(row[1], row[2], row[3], row[4]) for row in rows}


def _seal(head: Head, first_sequence: int) -> str:
    """The end of a commit, as text, so that it can go with the COMMIT in one round trip."""
    chain = f"'\\x{head.chain.hex()}'"
    return (
        f"INSERT INTO commits VALUES"
        f" ({head.received_at}, {first_sequence}, {head.last_sequence}, {chain});"
        f" UPDATE ledger SET last_sequence = {head.last_sequence},"
        f" received_at = {head.received_at}, chain = {chain}; "
    )


async def _roll_back(connection: Any) -> None:
    if not connection.is_closed() and connection.is_in_transaction():
        await connection.execute("ROLLBACK")


def _numbered(sql: str) -> str:
    parts = sql.split("?")
    return parts[0] + "".join(f"${i}{part}" for i, part in enumerate(parts[1:], 1))


@contextmanager
def _translated() -> Iterator[None]:
    """Turns what the driver raises into the two things a caller can act on."""
    try:
        yield
    except (
        asyncpg.DataError,
        asyncpg.IntegrityConstraintViolationError,
        asyncpg.ProgramLimitExceededError,
        UnicodeError,
    ) as error:
        raise StorageRefused(
            f"PostgreSQL refuses this content: {error}",
            hint="Send the events of this request one by one to find the one it refuses.",
        ) from error
    except (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        OSError,
        TimeoutError,
    ) as error:
        raise LedgerUnavailable(
            f"PostgreSQL failed: {type(error).__name__}: {error}",
            hint="Nothing of this request was acknowledged. Retry it with the same keys; "
            "what was stored all the same comes back as a duplicate.",
        ) from error
