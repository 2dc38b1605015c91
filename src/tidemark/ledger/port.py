"""What a ledger store can do. SQLite and PostgreSQL do it; one suite of tests holds both to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from tidemark.clock import MICROS_PER_SECOND
from tidemark.errors import TidemarkError
from tidemark.ingress.drafts import CorrectionResolver, Outcome, Submission
from tidemark.ledger.global_sequence import GlobalNumbers
from tidemark.ledger.sequencer import Head, Stored


class EventRow(msgspec.Struct, frozen=True, gc=False):
    """One event as the ledger holds it. `quantity` is plain decimal text."""

    ingress_sequence: int
    received_at: int
    occurred_at: int
    content_hash: bytes
    tenant_id: str
    stream: str
    idempotency_key: str
    metric: str | None
    customer_ref: str | None
    resource_id: str | None
    quantity: str | None
    data: str | None
    causality_key: str | None
    source: str | None
    source_id: str | None
    control: str | None
    target_key: str | None
    global_sequence: int | None


TEXT_END: Final = b"\xff"
NO_TEXT: Final = b"\xfe"
"""No text has these bytes: they are not UTF-8."""
HASH_BYTES: Final = 32


class EventText(NamedTuple):
    """Events as a store writes them down by itself, so that none becomes a Python object.

    Each column of `EventRow` is one text: what the events have in it, with `TEXT_END` between them
    and `NO_TEXT` for what is not there. Hashes are as they are, with nothing between them; one that
    is no hash is left out. A column that no event has may be missing. `plain_quantity` makes plain
    text of a quantity, where it is not.
    """

    event_count: int
    columns: Mapping[str, bytes]
    plain_quantity: Callable[[str], str] | None

    @property
    def size(self) -> int:
        return sum(map(len, self.columns.values()))


class TextTooLarge(Exception):
    """So many events are not written down at once. Fewer may be."""


class CommitRow(msgspec.Struct, frozen=True, gc=False):
    """One group that became durable together; a tick has `last_sequence = first_sequence - 1`."""

    received_at: int
    first_sequence: int
    last_sequence: int
    chain: bytes


class RejectRow(msgspec.Struct, frozen=True, gc=False):
    """One line of the bounded log of refused events."""

    reject_id: int
    rejected_at: int
    request_id: str
    position: int
    status: str
    code: str
    message: str
    hint: str
    field: str | None
    tenant_id: str | None
    stream: str | None
    idempotency_key: str | None
    original_sequence: int | None
    body: str


class EventFilter(msgspec.Struct, frozen=True):
    """Which events to read; None means any. Ranges are half open: `from <= x < to`."""

    tenant_ids: tuple[str, ...] | None = None
    stream: str | None = None
    causality_key: str | None = None
    metric: str | None = None
    customer_ref: str | None = None
    sequence_from: int | None = None
    sequence_to: int | None = None
    received_from: int | None = None
    received_to: int | None = None
    occurred_from: int | None = None
    occurred_to: int | None = None


class EventPage(msgspec.Struct, frozen=True):
    """Some events in order. `scanned_to` is where to go on; `complete` says that nothing is left.

    A page may be short, even empty, before the end: the work for one page is bounded.
    """

    events: list[EventRow]
    scanned_to: int
    complete: bool


class KeySearch(msgspec.Struct, frozen=True):
    """Events with one key, newest first; only those from `searched_from` on were looked at."""

    events: list[EventRow]
    searched_from: int


class RunPart(msgspec.Struct, frozen=True, gc=False):
    """The events that a run has of one tenant in one stream: how many, and from when to when."""

    tenant_id: str
    stream: str
    count: int
    first_sequence: int
    last_sequence: int
    first_received_at: int
    last_received_at: int
    first_occurred_at: int
    last_occurred_at: int


class RunSummary(msgspec.Struct, frozen=True):
    """A run by tenants and streams, in their order.

    If it is not `complete`, the run may have more events than were counted: the first ones were.
    """

    parts: list[RunPart]
    complete: bool


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The correction that says what an event is: its first void, which is final, or last amend."""

    control: str
    ingress_sequence: int


class RejectFilter(msgspec.Struct, frozen=True):
    """Which refused events to read, newest first."""

    tenant_ids: tuple[str, ...] | None = None
    code: str | None = None
    idempotency_key: str | None = None
    before_id: int | None = None


class HistoryCommit(msgspec.Struct, frozen=True, gc=False):
    """A commit of a history, that keeps the time at which it was received."""

    received_at: int
    submission: Submission


TELL_EVERY_US: Final = MICROS_PER_SECOND
"""How often whoever keeps a copy tells of it, about."""


class CopyState(msgspec.Struct, frozen=True):
    """How far a copy is, when that was said, and what keeps it from going on."""

    name: str
    last_sequence: int
    received_at: int
    """Of the last commit that is in it as a whole."""
    told_at: int
    error: TidemarkError | None = None


class PlacedEvents(msgspec.Struct, frozen=True):
    """Where the events from one sequence to another are, both included."""

    first_sequence: int
    last_sequence: int
    places: bytes


class LedgerStore(Protocol):
    """The append-only store. Every method may raise `LedgerUnavailable`; retrying is then safe."""

    ledger_id: str
    salt: str
    writers: int
    """How many groups the store can have under way at once."""

    @property
    def global_numbers(self) -> GlobalNumbers: ...

    async def append_group(
        self, submissions: Sequence[Submission], resolve: CorrectionResolver
    ) -> list[list[Outcome]]:
        """Make a group durable as one commit; outcomes are aligned with the entries."""

    async def refuses(self, submission: Submission, resolve: CorrectionResolver) -> list[bool]:
        """Which entries the database refuses for their content. Nothing is stored."""

    async def append_history(
        self, commits: Sequence[HistoryCommit], resolve: CorrectionResolver
    ) -> list[list[Outcome]]:
        """Make several commits durable in one transaction: all of them or none.

        They are in the ledger what they would be if they were appended one by one. Each must be
        later than the one before it, and the first later than what is there: else `ImportRefused`.
        """

    async def tick(self, silent_for_us: int) -> Head | None:
        """Record that time passed, if nothing was committed for so long; None if something was."""

    async def lookup(self, digests: Sequence[bytes]) -> dict[bytes, Stored]:
        """What the ledger holds under these key digests."""

    async def head(self) -> Head: ...

    async def read_events(self, event_filter: EventFilter, after: int, limit: int) -> EventPage: ...

    async def read_text(self, after: int, upto: int) -> EventText:
        """The events with sequences in `(after, upto]`. Raises `TextTooLarge`."""

    async def find_event(self, tenant_id: str, idempotency_key: str) -> EventRow | None: ...

    async def find_recent(self, idempotency_key: str, limit: int) -> KeySearch:
        """The newest events with this key, of any tenant, as far back as one look may reach."""

    async def find_corrections(self, tenant_id: str, target_key: str, limit: int) -> list[EventRow]:
        """The first corrections that name an event, in order."""

    async def find_decisions(
        self, events: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], Decision]:
        """The corrections that decide about events, by tenant and key; most events have none."""

    async def summarise_run(
        self, causality_key: str, tenant_ids: tuple[str, ...] | None
    ) -> RunSummary:
        """How many events a run has of these tenants, and when, as far as one look reaches."""

    async def read_commits(self, after_received_at: int, limit: int) -> list[CommitRow]: ...

    async def last_commit(self, before_received_at: int) -> CommitRow | None:
        """The last commit before a time."""

    async def read_rejects(self, reject_filter: RejectFilter, limit: int) -> list[RejectRow]: ...

    async def tell_copy(self, copy: CopyState) -> None:
        """Whoever keeps a copy says how far it is; what it said before is forgotten."""

    async def copies(self) -> dict[str, CopyState]:
        """What was last said of each copy, by its name."""

    async def place_events(self, placed: PlacedEvents) -> None:
        """Where the mirror has put events."""

    async def places_of(self, sequence: int) -> PlacedEvents | None:
        """The events among which one is whose place is known; None if it is not."""

    async def placed_upto(self) -> int:
        """The last event whose place is known."""

    async def forget_places(self, after: int) -> None:
        """Where events after a sequence are is not known any more."""

    async def check_clock(self) -> None:
        """Raise `ClockLeap` while ingest is held; asks the ledger only then, if it still is."""

    async def confirm_clock(self) -> None:
        """The clock of this machine is right. What other machines are held for stays held."""

    async def close(self) -> None: ...
