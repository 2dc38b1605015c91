"""What the source asks a ledger's database, written once where the two dialects agree.

Nothing here holds a snapshot for long: events and commits never change, so a reader asks for one
range after the other, and the log of the database does not grow behind it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias

from tidemark.ledger.port import PlacedEvents
from tidemark.pipeline.output.errors import LedgerRewound
from tidemark.pipeline.source.offsets import BEGINNING, Offset
from tidemark.pipeline.source.schema import EVENT_COLUMNS, Columns, CommitRow

Owner: TypeAlias = tuple[str, str, str]
"""Tenant, metric and customer."""
StreamOfTenant: TypeAlias = tuple[str, str]
"""A stream and a tenant."""

# The index of usage is kept in blocks of so many sequences, as a power of two.
BLOCK_BITS: Final = 16
# The time of the commit before that of an event.
PREVIOUS_COLUMN: Final = (
    "(SELECT max(before.received_at) FROM commits AS before"
    " WHERE before.received_at < events.received_at)"
)


class KnownPlaces(NamedTuple):
    """Where the mirror has put events, and the last event of which it was known then."""

    placed: Sequence[PlacedEvents]
    upto: int


class LedgerDatabase(ABC):
    """A connection for one thread that only reads. Every method may raise `LedgerUnavailable`."""

    def head(self) -> Offset:
        """The last commit there is."""
        rows = self._fetch(
            "SELECT received_at, last_sequence FROM commits ORDER BY received_at DESC LIMIT 1"
        )
        return Offset(*rows[0]) if rows else BEGINNING

    def require(self, offset: Offset) -> None:
        """Raise `LedgerRewound` unless the ledger has this very commit."""
        if offset == BEGINNING:
            return
        if self.at(offset.received_at) != offset:
            head = self.head()
            raise LedgerRewound(
                f"the ledger has no commit at {offset.received_at} that reaches sequence"
                f" {offset.ingress_sequence}; it ends at {head.received_at} with sequence"
                f" {head.ingress_sequence}",
                hint="What was read up to there came from another history: the ledger was restored"
                " from an older backup, or another ledger is configured. Bring back the ledger"
                " that belongs to these views, or build the views anew from this one.",
            )

    def at(self, received_at: int) -> Offset | None:
        """The commit of this time."""
        rows = self._fetch(
            "SELECT received_at, last_sequence FROM commits WHERE received_at = ?", received_at
        )
        return Offset(*rows[0]) if rows else None

    def time_of(self, sequence: int) -> int:
        """The time of the commit that an event is in."""
        rows = self._fetch("SELECT received_at FROM events WHERE ingress_sequence = ?", sequence)
        if not rows:
            raise events_missing(sequence, sequence)
        return int(rows[0][0])

    def marks(self, after: int, upto: int, limit: int) -> list[tuple[int, int, int]]:
        """Times and sequences of the commits in `(after, upto]`, the first `limit` of them."""
        return [
            (row[0], row[1], row[2])
            for row in self._fetch(
                "SELECT received_at, first_sequence, last_sequence FROM commits"
                " WHERE received_at > ? AND received_at <= ? ORDER BY received_at LIMIT ?",
                *(after, upto, limit),
            )
        ]

    def commits(self, after: int, upto: int, limit: int) -> list[CommitRow]:
        """The commits in `(after, upto]`, the first `limit` of them."""
        return [
            (row[0], row[1], row[2], row[3])
            for row in self._fetch(
                "SELECT received_at, first_sequence, last_sequence, chain FROM commits"
                " WHERE received_at > ? AND received_at <= ? ORDER BY received_at LIMIT ?",
                *(after, upto, limit),
            )
        ]

    def last_two(self, upto: int) -> list[CommitRow]:
        """The commit at or before this time, and the one before it."""
        return [
            (row[0], row[1], row[2], row[3])
            for row in self._fetch(
                "SELECT received_at, first_sequence, last_sequence, chain FROM commits"
                " WHERE received_at <= ? ORDER BY received_at DESC LIMIT 2",
                upto,
            )
        ]

    def mirrored_upto(self) -> int:
        """The last event of which it is known where the mirror has put it."""
        [row] = self._fetch("SELECT coalesce(max(last_sequence), 0) FROM mirrored")
        return int(row[0])

    def places(self, after: int, upto: int) -> KnownPlaces:
        """Where the mirror has put the events in `(after, upto]`, and some around them."""
        # In one query: all may be mirrored anew between two of them.
        (_, mirrored_upto, _), *rows = self._fetch(
            "SELECT first_sequence, last_sequence, places FROM mirrored"
            " WHERE last_sequence > ? AND first_sequence <= ? AND first_sequence >="
            " coalesce((SELECT max(first_sequence) FROM mirrored WHERE first_sequence <= ?), 0)"
            " UNION ALL SELECT 0, coalesce(max(last_sequence), 0), NULL FROM mirrored"
            " ORDER BY first_sequence",
            *(after, upto, after + 1),
        )
        placed = [PlacedEvents(first, last, bytes(places)) for first, last, places in rows]
        return KnownPlaces(placed, mirrored_upto)

    @abstractmethod
    def events(self, after: int, upto: int, streams: Sequence[StreamOfTenant] | None) -> Columns:
        """The events with sequences in `(after, upto]`, in order, of these streams only."""

    @abstractmethod
    def events_of(
        self, after: int, upto: int, owners: Sequence[Owner], rows: int
    ) -> Iterator[tuple[Columns, Any]]:
        """The events in `(after, upto]` of these owners, so many at a time, in any order, with
        the times of the commits before theirs."""

    @abstractmethod
    def _fetch(self, sql: str, *values: object) -> list[Any]:
        """Run a query whose placeholders are `?`."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def events_missing(first: int, last: int) -> LedgerRewound:
    return missing(f"all the events from {first} to {last} that its commits name")


def missing(what: str) -> LedgerRewound:
    return LedgerRewound(
        f"the ledger does not hold {what}",
        hint="Somebody has removed history, or replaced the ledger while it was being read. Bring"
        " back the ledger that belongs to these views.",
    )


def blocks_of(after: int, upto: int) -> list[int]:
    """The blocks of the index that hold the sequences in `(after, upto]`."""
    return list(range((after + 1) >> BLOCK_BITS, (upto >> BLOCK_BITS) + 1))


def event_columns(quantity: str = "quantity") -> str:
    """The columns of an event for a SELECT, with an expression of the quantity as text."""
    return ", ".join(quantity if name == "quantity" else f"events.{name}" for name in EVENT_COLUMNS)
