"""The ledger in one SQLite file: the embedded default.

All writing is done by one thread, in transactions that take the database's write lock first, so
several processes on one file keep one order too. Reading has threads of its own: WAL lets them see
the last commit while the next one is written.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from tidemark.clock import Clock
from tidemark.crash import crash_point
from tidemark.errors import ClockLeap
from tidemark.ingress.drafts import (
    Correction,
    CorrectionResolver,
    Entry,
    Original,
    Outcome,
    Submission,
)
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
from tidemark.ledger.reading import LedgerReader, Row
from tidemark.ledger.rows import (
    COMMON_COLUMNS,
    EVENT_INSERT_COLUMNS,
    RARE_COLUMNS,
    REJECT_INSERT_COLUMNS,
    STORED_COLUMNS,
    CommitValues,
    commit_row,
    commit_rows,
    event_rows,
    rare_texts,
    reject_rows,
)
from tidemark.ledger.sequencer import (
    ORIGINAL_COLUMNS,
    Decide,
    Head,
    Placement,
    Stored,
    correction_targets,
    digests_of,
    held_originals,
    place,
    place_history,
    place_tick,
    resolve_corrections,
)
from tidemark.ledger.sortable import from_sortable, to_sortable
from tidemark.ledger.sqlite_connection import CONTENT_ERRORS, connect, transaction, translated
from tidemark.ledger.sqlite_migrate import migrate

READER_THREADS = 2
PARAMETERS_PER_QUERY = 500

_INSERT = (
    f"INSERT INTO events ({', '.join(EVENT_INSERT_COLUMNS)})"
    f" VALUES ({', '.join('?' * len(EVENT_INSERT_COLUMNS))})"
)
_REFUSE = (
    f"INSERT INTO ingest_rejects ({', '.join(REJECT_INSERT_COLUMNS)})"
    f" VALUES ({', '.join('?' * len(REJECT_INSERT_COLUMNS))})"
)


def _texts(columns: Sequence[str], *counts: str) -> str:
    """A query for counts and the texts of columns, as `EventText` has them, in one row: it is made
    without a pause.

    What is between texts stands in a table: any other way to write what is no UTF-8 takes twice as
    long.
    """
    texts = [
        f"group_concat(iif(length(content_hash) = {HASH_BYTES}, content_hash, ''), '')"
        if name == "content_hash"
        else f"group_concat(ifnull({name}, no_text), text_end)"
        for name in columns
    ]
    return (
        "WITH marks (text_end, no_text) AS MATERIALIZED"
        f" (SELECT CAST(x'{TEXT_END.hex()}' AS TEXT), CAST(x'{NO_TEXT.hex()}' AS TEXT))"
        f" SELECT {', '.join([*counts, *(f'CAST({text} AS BLOB)' for text in texts)])}"
        " FROM marks CROSS JOIN events WHERE ingress_sequence > ? AND ingress_sequence <= ?"
    )


_COMMON_TEXTS = _texts(COMMON_COLUMNS, "count(*)", f"count(coalesce({', '.join(RARE_COLUMNS)}))")
_RARE_TEXTS = _texts(("ingress_sequence", *RARE_COLUMNS))

T = TypeVar("T")


class SqliteLedger(LedgerReader, LedgerCopies):
    """A `LedgerStore`. Make one with `open`."""

    def __init__(
        self,
        path: Path,
        guard: ClockGuard,
        *,
        reject_log_size: int,
        global_numbers: GlobalNumbers,
    ) -> None:
        self.ledger_id = ""
        self.salt = ""
        self.writers = 1
        self._path = path
        self._guard = guard
        self._reject_log_size = reject_log_size
        self.global_numbers = global_numbers
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ledger-writer")
        self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="ledger-reader")
        self._connections: list[sqlite3.Connection] = []
        self._local = threading.local()
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(
        cls,
        path: Path,
        clock: Clock,
        *,
        salt: str | None = None,
        clock_leap_us: int,
        reject_log_size: int,
        global_numbers: GlobalNumbers | None = None,
    ) -> SqliteLedger:
        """Open or make the file, bring the schema up to date, found the ledger if it is new."""
        await asyncio.to_thread(migrate, path)
        ledger = cls(
            path,
            ClockGuard(clock, clock_leap_us),
            reject_log_size=reject_log_size,
            global_numbers=global_numbers or NoGlobalNumbers(),
        )
        try:
            founding = await ledger._write_in_thread(lambda c: ledger._found(c, salt, clock))
        except BaseException:
            await ledger.close()
            raise
        ledger.ledger_id, ledger.salt = founding.ledger_id, founding.salt
        return ledger

    async def append_group(
        self, submissions: Sequence[Submission], resolve: CorrectionResolver
    ) -> list[list[Outcome]]:
        def append(connection: sqlite3.Connection) -> list[Placement]:
            self._settle_clock(connection)
            with transaction(connection):
                placements = self._append(connection, submissions, resolve, self._place_now)
                crash_point("ledger.before_commit")
            crash_point("ledger.after_commit")
            return placements

        [placement] = await self._write_in_thread(append)
        return placement.outcomes

    async def refuses(self, submission: Submission, resolve: CorrectionResolver) -> list[bool]:
        def attempt(connection: sqlite3.Connection, entries: Sequence[Entry]) -> list[bool]:
            """Leave in the transaction what is taken, since later entries may correct it."""
            connection.execute("SAVEPOINT attempt")
            try:
                part = Submission(submission.request_id, entries)
                self._append(connection, [part], resolve, self._place_now)
            except CONTENT_ERRORS:
                connection.execute("ROLLBACK TO attempt")
                if len(entries) == 1:
                    return [True]
                half = len(entries) // 2
                return attempt(connection, entries[:half]) + attempt(connection, entries[half:])
            return [False] * len(entries)

        def find(connection: sqlite3.Connection) -> list[bool]:
            self._settle_clock(connection)
            connection.execute("BEGIN IMMEDIATE")
            try:
                return attempt(connection, submission.entries)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

        return await self._write_in_thread(find)

    async def append_history(
        self, commits: Sequence[HistoryCommit], resolve: CorrectionResolver
    ) -> list[list[Outcome]]:
        submissions = [commit.submission for commit in commits]
        decide = partial(place_history, received_at=[commit.received_at for commit in commits])

        def append(connection: sqlite3.Connection) -> list[Placement]:
            with transaction(connection):
                placements = self._append(connection, submissions, resolve, decide)
                crash_point("ledger.before_commit")
            crash_point("ledger.after_commit")
            return placements

        placements = await self._write_in_thread(append)
        return [outcomes for placement in placements for outcomes in placement.outcomes]

    async def tick(self, silent_for_us: int) -> Head | None:
        return await self._write_in_thread(lambda connection: self._tick(connection, silent_for_us))

    async def check_clock(self) -> None:
        # By the thread that writes: the guard is no thing for two.
        await self._write_in_thread(self._settle_clock)

    async def confirm_clock(self) -> None:
        def confirm(connection: sqlite3.Connection) -> None:
            anchor = self._guard.take_anchor()
            with transaction(connection):
                record = self._guard.confirmed(_clock_record(connection), anchor)
                _write_clock_record(connection, record)
            self._guard.restore(record)

        await self._write_in_thread(confirm)

    async def close(self) -> None:
        await self.global_numbers.close()
        for executor in (self._writer, self._readers):
            await asyncio.to_thread(executor.shutdown)
        while self._connections:
            self._connections.pop().close()

    def _append(
        self,
        connection: sqlite3.Connection,
        submissions: Sequence[Submission],
        resolve: CorrectionResolver,
        decide: Decide,
    ) -> list[Placement]:
        """Inside a transaction, and without its end."""
        crash_point("ledger.locked")
        targets = correction_targets(itertools.chain.from_iterable(s.entries for s in submissions))
        if targets:
            submissions = resolve_corrections(submissions, _originals(connection, targets), resolve)
        digests = [digests_of(submission) for submission in submissions]
        wanted = [d for group in digests for d in group if d is not None]
        placements = decide(submissions, digests, _known(connection, wanted), _head(connection))
        self._write(connection, placements)
        return placements

    def _place_now(
        self,
        submissions: Sequence[Submission],
        digests: Sequence[Sequence[bytes | None]],
        known: Mapping[bytes, Stored],
        head: Head,
    ) -> list[Placement]:
        return [place(submissions, digests, known, head, self._guard.now_us())]

    def _write(self, connection: sqlite3.Connection, placements: list[Placement]) -> None:
        count = sum(len(placement.drafts) for placement in placements)
        if count:
            numbers = self._take_global_numbers(count)
            connection.executemany(_INSERT, event_rows(placements, numbers, to_sortable))
            crash_point("ledger.events_written")
            _seal(connection, commit_rows(placements))
        if refused := reject_rows(placements):
            _log_refusals(connection, refused, self._reject_log_size)

    def _take_global_numbers(self, count: int) -> int | None:
        if isinstance(self.global_numbers, NoGlobalNumbers):
            return None
        taken = asyncio.run_coroutine_threadsafe(self.global_numbers.take(count), self._loop)
        return taken.result()

    def _tick(self, connection: sqlite3.Connection, silent_for_us: int) -> Head | None:
        self._settle_clock(connection)
        with transaction(connection):
            ticked = place_tick(_head(connection), self._guard.now_us(), silent_for_us)
            if ticked is not None:
                _seal(connection, [commit_row(ticked, ticked.last_sequence + 1)])
        return ticked

    def _settle_clock(self, connection: sqlite3.Connection) -> None:
        """Make a leap known to other processes, and notice when an operator has confirmed it."""
        try:
            self._guard.now_us()
            return
        except ClockLeap:
            pass
        with transaction(connection):
            record = self._guard.reconsider(_clock_record(connection))
            if record is not None:
                _write_clock_record(connection, record)
        if record is not None:
            self._guard.hold_was_stored()
        self._guard.now_us()

    def _found(self, connection: sqlite3.Connection, salt: str | None, clock: Clock) -> Founding:
        fresh = found_ledger(salt)
        with transaction(connection):
            connection.execute(
                "INSERT OR IGNORE INTO ledger (ledger_id, salt, created_at, last_sequence,"
                " received_at, chain) VALUES (?, ?, ?, 0, 0, ?)",
                (fresh.ledger_id, fresh.salt, clock.wall_us(), fresh.chain),
            )
            ledger_id, stored_salt = connection.execute(
                "SELECT ledger_id, salt FROM ledger"
            ).fetchone()
            check_salt(salt, stored_salt)
            record = _clock_record(connection)
            self._guard.restore(record)
            if self._guard.hold_us is None:
                _write_clock_record(connection, ClockRecord(self._guard.anchor, record.holds))
        return Founding(ledger_id, stored_salt, fresh.chain)

    async def _write_in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._loop.run_in_executor(self._writer, self._run, work)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with translated():
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = connect(self._path)
                self._local.connection = connection
                self._connections.append(connection)
            return work(connection)

    async def _fetch(self, sql: str, *values: object) -> list[Row]:
        return await self._loop.run_in_executor(
            self._readers,
            self._run,
            lambda connection: connection.execute(sql, values).fetchall(),
        )

    async def _execute(self, sql: str, *values: object) -> None:
        def execute(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                connection.execute(sql, values)

        await self._write_in_thread(execute)

    def _in_list(self, column: str, count: int) -> str:
        return f"{column} IN ({', '.join('?' * count)})"

    def _in_values(self, values: Sequence[object]) -> list[object]:
        return list(values)

    def _plain_quantity(self, stored: str) -> str:
        return from_sortable(stored)

    async def read_text(self, after: int, upto: int) -> EventText:
        def write_down(connection: sqlite3.Connection) -> EventText:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, reading.MOST_TEXT_BYTES)
            try:
                counted = connection.execute(_COMMON_TEXTS, (after, upto)).fetchone()
                event_count, rare_count, *texts = counted
                columns = dict(zip(COMMON_COLUMNS, texts, strict=True))
                if rare_count:
                    texts = connection.execute(_RARE_TEXTS, (after, upto)).fetchone()
                    columns |= rare_texts(texts, columns)
            except sqlite3.DataError as error:
                raise TextTooLarge from error
            # Some versions of SQLite make NULL of a single text that is empty.
            filled = {name: text or b"" for name, text in columns.items()}
            found = EventText(event_count, filled, from_sortable)
            # SQLite minds each column by itself.
            if found.size > reading.MOST_TEXT_BYTES:
                raise TextTooLarge
            return found

        return await self._loop.run_in_executor(self._readers, self._run, write_down)


def _head(connection: sqlite3.Connection) -> Head:
    return Head(
        *connection.execute("SELECT last_sequence, received_at, chain FROM ledger").fetchone()
    )


def _clock_record(connection: sqlite3.Connection) -> ClockRecord:
    return ClockRecord.from_texts(
        *connection.execute("SELECT clock_anchor, clock_hold FROM ledger").fetchone()
    )


def _write_clock_record(connection: sqlite3.Connection, record: ClockRecord) -> None:
    connection.execute("UPDATE ledger SET clock_anchor = ?, clock_hold = ?", record.texts())


def _known(connection: sqlite3.Connection, digests: Sequence[bytes]) -> dict[bytes, Stored]:
    found: dict[bytes, Stored] = {}
    for chunk in _chunks(digests):
        for row in connection.execute(
            f"SELECT {STORED_COLUMNS} FROM events"
            f" WHERE key_digest IN ({', '.join('?' * len(chunk))})",
            chunk,
        ):
            found[row[0]] = Stored(row[1], row[2], row[3], row[4], row[5])
    return found


def _originals(
    connection: sqlite3.Connection, targets: Mapping[bytes, Correction]
) -> dict[bytes, Original]:
    rows: list[Row] = []
    for chunk in _chunks(list(targets)):
        rows += connection.execute(
            f"SELECT {ORIGINAL_COLUMNS} FROM events"
            f" WHERE key_digest IN ({', '.join('?' * len(chunk))})",
            chunk,
        )
    return held_originals(targets, rows)


def _chunks(digests: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(digests), PARAMETERS_PER_QUERY):
        yield digests[start : start + PARAMETERS_PER_QUERY]


def _seal(connection: sqlite3.Connection, commits: Sequence[CommitValues]) -> None:
    connection.executemany("INSERT INTO commits VALUES (?, ?, ?, ?)", commits)
    received_at, _, last_sequence, chain = commits[-1]
    connection.execute(
        "UPDATE ledger SET last_sequence = ?, received_at = ?, chain = ?",
        (last_sequence, received_at, chain),
    )


def _log_refusals(
    connection: sqlite3.Connection, refused: Sequence[tuple[object, ...]], log_size: int
) -> None:
    connection.executemany(_REFUSE, refused)
    connection.execute(
        "DELETE FROM ingest_rejects"
        " WHERE reject_id <= (SELECT max(reject_id) FROM ingest_rejects) - ?",
        (log_size,),
    )
