"""What the PostgreSQL ledger says to its database, and what the driver's errors mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import asyncpg

from tidemark.errors import LedgerUnavailable, StorageRefused
from tidemark.ingress.drafts import Original
from tidemark.ledger.rows import CommitValues
from tidemark.ledger.sequencer import Head, Stored

_STORED = "key_digest, tenant_id, idempotency_key, ingress_sequence, received_at, content_hash"
# Each statement after the lock has a snapshot of its own, so it sees the commit before this one.
BEGIN = "BEGIN; "
LOCK = "SELECT FROM ledger FOR UPDATE"
HEAD = "SELECT last_sequence, received_at, chain FROM ledger"
_HEAD_AND_KNOWN = (
    "SELECT NULL, NULL, NULL, last_sequence, received_at, chain FROM ledger"
    f" UNION ALL SELECT {_STORED} FROM events WHERE key_digest = ANY($1::bytea[])"
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
    connection: Any, digests: list[bytes], timeout_s: float
) -> dict[bytes, Original]:
    rows = await connection.fetch(
        "SELECT key_digest, stream, metric, customer_ref, control FROM events"
        " WHERE key_digest = ANY($1::bytea[])",
        digests,
        timeout=timeout_s,
    )
    return {row[0]: Original(row[1], row[2], row[3], row[4]) for row in rows}


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
