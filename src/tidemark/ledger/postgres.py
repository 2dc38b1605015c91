"""The ledger on PostgreSQL: any number of API processes, one order.

The row of `ledger` is the sequencer. Whoever holds its lock gives the next numbers and keeps the
lock to the commit, so numbers are dense and become visible in order. Every statement after the
lock has a snapshot of its own, so it sees the commit before this one, whichever process made it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from functools import partial
from typing import Any

import asyncpg

from tidemark.clock import Clock
from tidemark.crash import crash_point
from tidemark.errors import ClockLeap
from tidemark.ingress.drafts import CorrectionResolver, Entry, Outcome, Submission
from tidemark.ledger import reading
from tidemark.ledger.clock_guard import ClockGuard, ClockRecord
from tidemark.ledger.copies import LedgerCopies
from tidemark.ledger.founding import Founding, check_salt, found_ledger
from tidemark.ledger.global_sequence import GlobalNumbers, NoGlobalNumbers
from tidemark.ledger.port import (
    HASH_BYTES,
    NO_TEXT,
    TEXT_END,
    EventText,
    HistoryCommit,
    TextTooLarge,
)
from tidemark.ledger.postgres_migrate import CONNECT_TIMEOUT_S, SCHEMA, migrate
from tidemark.ledger.postgres_statements import (
    BEGIN,
    CONTENT_ERRORS,
    END_HUNG_SESSIONS,
    HEAD,
    LOCK,
    PRUNE_REJECTS,
    head_and_known,
    lock_clock_record,
    numbered,
    originals,
    seal,
    translated,
    write_clock_record,
)
from tidemark.ledger.reading import LedgerReader, Row
from tidemark.ledger.rows import (
    COMMON_COLUMNS,
    EVENT_COLUMNS,
    EVENT_INSERT_COLUMNS,
    LONG_COLUMNS,
    RARE_COLUMNS,
    REJECT_INSERT_COLUMNS,
    commit_row,
    commit_rows,
    event_rows,
    rare_texts,
    reject_rows,
)
from tidemark.ledger.sequencer import (
    Decide,
    Head,
    Placement,
    Stored,
    correction_targets,
    digests_of,
    place,
    place_history,
    place_tick,
    resolve_corrections,
)

WRITER_CONNECTIONS = 2
READER_CONNECTIONS = 4
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
# Without statistics the planner prefers to scan a table that has just begun to grow; and to collect
# the rows of a page in the order of the disk, to sort them then.
READER_SETTINGS = SESSION_SETTINGS | {"enable_seqscan": "off", "enable_bitmapscan": "off"}
WRITER_SETTINGS = SESSION_SETTINGS | {"enable_seqscan": "off", "synchronous_commit": "on"}

_PAGE = "FROM events WHERE ingress_sequence > ? AND ingress_sequence <= ?"


def _texts(columns: Sequence[str]) -> list[str]:
    """What is selected for the texts of columns, as `EventText` has them."""
    no_text, text_end = (f"'\\x{mark.hex()}'::bytea" for mark in (NO_TEXT, TEXT_END))
    is_hash = f"octet_length(content_hash) = {HASH_BYTES}"
    return [
        f"string_agg(CASE WHEN {is_hash} THEN content_hash ELSE '' END, '')"
        if name == "content_hash"
        else f"string_agg(coalesce(textsend({name}::text), {no_text}), {text_end})"
        for name in columns
    ]


# How long a text is, is known without reading it.
_SIZE = " + ".join(f"coalesce(octet_length({name}), 0)" for name in LONG_COLUMNS)
_IS_RARE = f"num_nonnulls({', '.join(RARE_COLUMNS)}) > 0"
_COMMON_TEXTS = (
    f"WITH texts AS MATERIALIZED (SELECT coalesce(sum({_SIZE}), 0) AS size {_PAGE})"
    f" SELECT (SELECT size FROM texts), count(*), count(*) FILTER (WHERE {_IS_RARE}),"
    f" {', '.join(_texts(COMMON_COLUMNS))} FROM (SELECT {', '.join(EVENT_COLUMNS)} {_PAGE}"
    " AND (SELECT size FROM texts) <= ? ORDER BY ingress_sequence) AS page"
)
_RARE_TEXTS = (
    f"SELECT {', '.join(_texts(('ingress_sequence', *RARE_COLUMNS)))}"
    f" FROM (SELECT ingress_sequence, {', '.join(RARE_COLUMNS)} {_PAGE}"
    " ORDER BY ingress_sequence) AS page"
)


class PostgresLedger(LedgerReader, LedgerCopies):
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
            guard = ClockGuard(clock, clock_leap_us)
            async with AsyncExitStack() as opened:
                writers = await _pool(url, WRITER_CONNECTIONS, WRITER_SETTINGS)
                opened.push_async_callback(writers.close)
                readers = await _pool(url, READER_CONNECTIONS, READER_SETTINGS)
                opened.push_async_callback(readers.close)
                async with writers.acquire() as connection, connection.transaction():
                    founding = await _found(connection, clock.wall_us(), salt, guard)
                opened.pop_all()
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
                [placement] = await self._append(connection, submissions, resolve, self._place_now)
        return placement.outcomes

    async def refuses(self, submission: Submission, resolve: CorrectionResolver) -> list[bool]:
        async def attempt(entries: Sequence[Entry]) -> list[bool]:
            """Leave in the transaction what is taken, since later entries may correct it."""
            await connection.execute("SAVEPOINT attempt")
            try:
                part = Submission(submission.request_id, entries)
                decided = await self._decide(connection, [part], resolve, self._place_now)
                await self._write(connection, decided, end="RELEASE attempt")
            except CONTENT_ERRORS:
                await connection.execute("ROLLBACK TO attempt")
                if len(entries) == 1:
                    return [True]
                half = len(entries) // 2
                return await attempt(entries[:half]) + await attempt(entries[half:])
            return [False] * len(entries)

        with translated():
            async with self._writers.acquire() as connection:
                await self._settle_clock(connection)
                async with _locked(connection):
                    return await attempt(submission.entries)

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

    async def check_clock(self) -> None:
        try:
            self._guard.now_us()
        except ClockLeap:
            with translated():
                async with self._readers.acquire() as connection:
                    await self._settle_clock(connection)

    async def confirm_clock(self) -> None:
        anchor = self._guard.take_anchor()
        with translated():
            async with self._readers.acquire() as connection, connection.transaction():
                record = self._guard.confirmed(await lock_clock_record(connection), anchor)
                await write_clock_record(connection, record)
        self._guard.restore(record)

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
            placements = await self._decide(connection, submissions, resolve, decide, timeout_s)
            await self._write(connection, placements, timeout_s)
        crash_point("ledger.after_commit")
        return placements

    async def _decide(
        self,
        connection: Any,
        submissions: Sequence[Submission],
        resolve: CorrectionResolver,
        decide: Decide,
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> list[Placement]:
        crash_point("ledger.locked")
        targets = correction_targets(itertools.chain.from_iterable(s.entries for s in submissions))
        if targets:
            known_targets = await originals(connection, targets, timeout_s)
            submissions = resolve_corrections(submissions, known_targets, resolve)
        digests = [digests_of(submission) for submission in submissions]
        wanted = [d for group in digests for d in group if d is not None]
        head, known = await head_and_known(connection, wanted, timeout_s)
        return decide(submissions, digests, known, head)

    def _place_now(
        self,
        submissions: Sequence[Submission],
        digests: Sequence[Sequence[bytes | None]],
        known: Mapping[bytes, Stored],
        head: Head,
    ) -> list[Placement]:
        return [place(submissions, digests, known, head, self._guard.now_us())]

    async def _tick(self, connection: Any, silent_for_us: int) -> Head | None:
        [row] = await connection.fetch(HEAD)
        ticked = place_tick(Head(row[0], row[1], row[2]), self._guard.now_us(), silent_for_us)
        if ticked is not None:
            sealed = seal([commit_row(ticked, ticked.last_sequence + 1)])
            await connection.execute(sealed + "COMMIT")
        return ticked

    async def _settle_clock(self, connection: Any) -> None:
        """Make a leap known to other processes, and notice when an operator has confirmed it."""
        try:
            self._guard.now_us()
            return
        except ClockLeap:
            pass
        async with connection.transaction():
            record = self._guard.reconsider(await lock_clock_record(connection))
            if record is not None:
                await write_clock_record(connection, record)
        if record is not None:
            self._guard.hold_was_stored()
        self._guard.now_us()

    async def _write(
        self,
        connection: Any,
        placements: Sequence[Placement],
        timeout_s: float = COMMAND_TIMEOUT_S,
        end: str = "COMMIT",
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
        await connection.execute(sealed + end, timeout=timeout_s)

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

    async def _execute(self, sql: str, *values: object) -> None:
        with translated():
            await self._readers.execute(numbered(sql), *values)

    def _in_list(self, column: str, count: int) -> str:
        return f"{column} = ANY(?)"

    def _in_values(self, values: Sequence[object]) -> list[object]:
        return [list(values)]

    def _plain_quantity(self, stored: Decimal) -> str:
        return format(stored, "f")

    async def read_text(self, after: int, upto: int) -> EventText:
        most_bytes = reading.MOST_TEXT_BYTES
        [found] = await self._fetch(_COMMON_TEXTS, after, upto, after, upto, most_bytes)
        size, event_count, rare_count, *texts = found
        if size > most_bytes:
            raise TextTooLarge
        if not event_count:
            return EventText(0, {}, None)
        columns = dict(zip(COMMON_COLUMNS, texts, strict=True))
        if rare_count:
            [texts] = await self._fetch(_RARE_TEXTS, after, upto)
            columns |= rare_texts(texts, columns)
        return EventText(event_count, columns, None)


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
    record = await lock_clock_record(connection)
    row = await connection.fetchrow("SELECT ledger_id, salt FROM ledger")
    check_salt(salt, row["salt"])
    guard.restore(record)
    if guard.hold_us is None:
        await write_clock_record(connection, ClockRecord(guard.anchor, record.holds))
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
