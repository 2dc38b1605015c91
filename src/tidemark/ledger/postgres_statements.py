"""What the PostgreSQL ledger says to its database, and what the driver's errors mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import asyncpg

from tidemark.cancelling import cancellation_kept
from tidemark.errors import LedgerUnavailable, StorageRefused
from tidemark.ingress.drafts import Correction, Original
from tidemark.ledger.clock_guard import ClockRecord
from tidemark.ledger.rows import STORED_COLUMNS, CommitValues
from tidemark.ledger.sequencer import ORIGINAL_COLUMNS, Head, Stored, held_originals

# What the content of an event can be blamed for.
CONTENT_ERRORS = (asyncpg.DataError, asyncpg.ProgramLimitExceededError, UnicodeError)
# Each statement after the lock has a snapshot of its own, so it sees the commit before this one.
BEGIN = "BEGIN; "
LOCK = "SELECT FROM ledger FOR UPDATE"
HEAD = "SELECT last_sequence, received_at, chain FROM ledger"
_HEAD_AND_KNOWN = (
    "SELECT NULL, NULL, NULL, last_sequence, received_at, chain FROM ledger"
    f" UNION ALL SELECT {STORED_COLUMNS} FROM events WHERE key_digest = ANY($1::bytea[])"
)
# No timeout of PostgreSQL's ends a session whose client falls silent in the middle of a COPY.
END_HUNG_SESSIONS = (
    "SELECT pg_terminate_backend(holder.pid) FROM pg_locks AS held"
    " JOIN pg_stat_activity AS holder USING (pid) WHERE held.relation = 'ledger'::regclass"
    " AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND held.granted AND held.mode = 'RowShareLock' AND holder.wait_event = 'ClientRead'"
    " AND holder.query_start < clock_timestamp() - make_interval(secs => $1)"
)
PRUNE_REJECTS = (
    "DELETE FROM ingest_rejects WHERE reject_id <= (SELECT max(reject_id) FROM ingest_rejects) - $1"
)


async def head_and_known(
    connection: Any, wanted: list[bytes], timeout_s: float
) -> tuple[Head, dict[bytes, Stored]]:
    rows = await connection.fetch(_HEAD_AND_KNOWN, wanted, timeout=timeout_s)
    head = next(Head(row[3], row[4], row[5]) for row in rows if row[0] is None)
    known = {
        row[0]: Stored(row[1], row[2], row[3], row[4], row[5]) for row in rows if row[0] is not None
    }
    return head, known


async def originals(
    connection: Any, targets: Mapping[bytes, Correction], timeout_s: float
) -> dict[bytes, Original]:
    rows = await connection.fetch(
        f"SELECT {ORIGINAL_COLUMNS} FROM events WHERE key_digest = ANY($1::bytea[])",
        list(targets),
        timeout=timeout_s,
    )
    return held_originals(targets, map(tuple, rows))


async def lock_clock_record(connection: Any) -> ClockRecord:
    """What the ledger keeps of the clock, until the end of the transaction."""
    return ClockRecord.from_texts(
        *await connection.fetchrow("SELECT clock_anchor, clock_hold FROM ledger FOR UPDATE")
    )


async def write_clock_record(connection: Any, record: ClockRecord) -> None:
    await connection.execute(
        "UPDATE ledger SET clock_anchor = $1, clock_hold = $2", *record.texts()
    )


def seal(commits: Sequence[CommitValues]) -> str:
    """The end of a transaction, as text, so that it can go with COMMIT in one round trip."""
    rows = ", ".join(
        f"({received_at}, {first_sequence}, {last_sequence}, '\\x{chain.hex()}')"
        for received_at, first_sequence, last_sequence, chain in commits
    )
    received_at, _, last_sequence, chain = commits[-1]
    return (
        f"INSERT INTO commits VALUES {rows}; UPDATE ledger SET last_sequence = {last_sequence},"
        f" received_at = {received_at}, chain = '\\x{chain.hex()}'; "
    )


def numbered(sql: str) -> str:
    parts = sql.split("?")
    return parts[0] + "".join(f"${i}{part}" for i, part in enumerate(parts[1:], 1))


@contextmanager
def translated() -> Iterator[None]:
    """Turns what the driver raises into the two things a caller can act on."""
    try:
        with cancellation_kept():
            yield
    except CONTENT_ERRORS as error:
        raise StorageRefused(
            f"PostgreSQL refuses this content: {error}",
            hint="Send the event with other content.",
        ) from error
    except asyncpg.IntegrityConstraintViolationError as error:
        # The sequencer writes nothing that a constraint forbids, whatever an event says.
        raise LedgerUnavailable(
            f"the ledger's tables contradict each other: {error}",
            hint="Nothing of this request was acknowledged. Something else has written to this "
            "schema; look at it, or bring back a backup.",
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
