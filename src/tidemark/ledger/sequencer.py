"""The rule that gives events their place: pure, and the same for every store.

A store holds its lock, tells what it already has, and writes what `place` decides. Nothing here
reads a clock or a database, so every rule of identity and order can be tested by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from tidemark.errors import ImportRefused
from tidemark.ingress.drafts import (
    Correction,
    CorrectionResolver,
    Draft,
    Entry,
    Original,
    Outcome,
    Rejection,
    Submission,
)
from tidemark.ledger.refusals import content_conflict

GENESIS_CHAIN = bytes(32)
DIGEST_BYTES = 16
ORIGINAL_COLUMNS = "key_digest, tenant_id, idempotency_key, stream, metric, customer_ref, control"


class Head(msgspec.Struct, frozen=True, gc=False):
    """Where the ledger stands after its last commit."""

    last_sequence: int
    received_at: int
    chain: bytes


class Stored(msgspec.Struct, frozen=True, gc=False):
    """What the ledger already holds under one key digest."""

    tenant_id: str
    idempotency_key: str
    ingress_sequence: int
    received_at: int
    content_hash: bytes


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """A line of the `ingest_rejects` log."""

    request_id: str
    position: int
    status: str
    rejection: Rejection
    original_sequence: int | None = None


class Placement(msgspec.Struct, frozen=True, gc=False):
    """What to write: `drafts[i]` takes sequence `head.last_sequence - len(drafts) + 1 + i`."""

    head: Head
    drafts: list[Draft]
    digests: list[bytes]
    outcomes: list[list[Outcome]]
    refusals: list[Refusal]
    refused_at: int

    @property
    def first_sequence(self) -> int:
        return self.head.last_sequence - len(self.drafts) + 1

    def stored(self) -> Iterator[tuple[bytes, Stored]]:
        """What the ledger will hold under the new digests."""
        for sequence, (draft, digest) in enumerate(
            zip(self.drafts, self.digests, strict=True), self.first_sequence
        ):
            yield (
                digest,
                Stored(
                    draft.tenant_id,
                    draft.idempotency_key,
                    sequence,
                    self.head.received_at,
                    draft.content_hash,
                ),
            )


Decide: TypeAlias = Callable[
    [
        Sequence[Submission],
        Sequence[Sequence[bytes | None]],
        Mapping[bytes, Stored],
        Head,
    ],
    list[Placement],
]
"""What a store asks under its lock: `place` or `place_history`, with the time or times given."""


def key_digest(tenant_id: str, idempotency_key: str) -> bytes:
    """The ledger's primary identity. The length keeps `("a", "bc")` and `("ab", "c")` apart."""
    tenant = tenant_id.encode()
    return hashlib.sha256(b"%d:%b%b" % (len(tenant), tenant, idempotency_key.encode())).digest()[
        :DIGEST_BYTES
    ]


def next_received_at(now_us: int, head: Head) -> int:
    """Strictly increasing, whatever the clock does."""
    return max(now_us, head.received_at + 1)


def ledger_has_gone_on() -> ImportRefused:
    """A history cannot be put before commits that are there already."""
    return ImportRefused(
        "the ledger has already gone on beyond this time",
        hint="Import a history into a ledger before anything else is sent to it.",
    )


def extend_chain(chain: bytes, content_hashes: Iterable[bytes]) -> bytes:
    """The fingerprint of all history up to and including one commit."""
    return hashlib.sha256(chain + b"".join(content_hashes)).digest()


def place_tick(head: Head, now_us: int, silent_for_us: int) -> Head | None:
    """The commit without events that says that time passed, unless there was one so lately."""
    if now_us - head.received_at < silent_for_us:
        return None
    return Head(head.last_sequence, next_received_at(now_us, head), extend_chain(head.chain, ()))


def original_of(event: Draft) -> Original:
    """What a correction must know of this event."""
    return Original(event.stream, event.metric, event.customer_ref, event.control)


def correction_targets(entries: Iterable[Entry]) -> dict[bytes, Correction]:
    """The originals that must be looked up before the corrections among `entries` can be judged."""
    return {
        key_digest(entry.tenant_id, entry.target_key): entry
        for entry in entries
        if type(entry) is Correction
    }


def held_originals(
    targets: Mapping[bytes, Correction],
    rows: Iterable[Sequence[Any]],
) -> dict[bytes, Original]:
    """What a store found under the digests of the targets, without what is another key's.

    A row is `ORIGINAL_COLUMNS` of an event.
    """
    return {
        row[0]: Original(*row[3:])
        for row in rows
        if (row[1], row[2]) == (targets[row[0]].tenant_id, targets[row[0]].target_key)
    }


def resolve_corrections(
    submissions: Sequence[Submission],
    originals: Mapping[bytes, Original],
    resolve: CorrectionResolver,
) -> list[Submission]:
    """Judge every `void` and `amend` by its original: in the ledger, or earlier in this group.

    `originals` has the digests of the targets that the ledger holds under that very tenant and key.
    """
    earlier: dict[tuple[str, str], Original] = {}
    resolved = []
    for submission in submissions:
        entries: list[Entry] = []
        for entry in submission.entries:
            if type(entry) is Correction:
                original = originals.get(key_digest(entry.tenant_id, entry.target_key))
                if original is None:
                    original = earlier.get((entry.tenant_id, entry.target_key))
                entry = resolve(entry, original)
            if type(entry) is Draft:
                earlier.setdefault((entry.tenant_id, entry.idempotency_key), original_of(entry))
            entries.append(entry)
        resolved.append(Submission(submission.request_id, entries))
    return resolved


def digests_of(submission: Submission) -> list[bytes | None]:
    """The key digest of each entry; None where there is no finished draft."""
    return [
        key_digest(entry.tenant_id, entry.idempotency_key) if type(entry) is Draft else None
        for entry in submission.entries
    ]


def place(
    submissions: Sequence[Submission],
    digests: Sequence[Sequence[bytes | None]],
    stored: Mapping[bytes, Stored],
    head: Head,
    now_us: int,
) -> Placement:
    """Decide the fate of every entry of one group.

    `stored` must hold everything the ledger has under `digests`, as of the moment the lock was
    taken. The group becomes one commit, unless nothing in it is new: then there is none.
    """
    received_at = next_received_at(now_us, head)
    sequence = head.last_sequence
    seen: dict[bytes, Stored] = dict(stored)
    drafts: list[Draft] = []
    new_digests: list[bytes] = []
    refusals: list[Refusal] = []
    outcomes: list[list[Outcome]] = []
    for submission, submission_digests in zip(submissions, digests, strict=True):
        results: list[Outcome] = []
        for position, (entry, digest) in enumerate(
            zip(submission.entries, submission_digests, strict=True)
        ):
            if digest is None or type(entry) is not Draft:
                assert type(entry) is Rejection, "corrections are resolved before they are placed"
                refusals.append(Refusal(submission.request_id, position, "rejected", entry))
                results.append(Outcome("rejected", entry.idempotency_key, None, None, entry))
                continue
            earlier = seen.get(digest)
            if earlier is None:
                sequence += 1
                seen[digest] = Stored(
                    entry.tenant_id,
                    entry.idempotency_key,
                    sequence,
                    received_at,
                    entry.content_hash,
                )
                drafts.append(entry)
                new_digests.append(digest)
                results.append(Outcome("accepted", entry.idempotency_key, sequence, received_at))
            elif earlier.content_hash == entry.content_hash and _same_key(earlier, entry):
                results.append(
                    Outcome(
                        "duplicate",
                        entry.idempotency_key,
                        earlier.ingress_sequence,
                        earlier.received_at,
                    )
                )
            else:
                refusal = _conflict(submission.request_id, position, entry, earlier)
                refusals.append(refusal)
                results.append(
                    Outcome(
                        "conflict",
                        entry.idempotency_key,
                        earlier.ingress_sequence,
                        earlier.received_at,
                        refusal.rejection,
                    )
                )
        outcomes.append(results)
    if drafts:
        chain = extend_chain(head.chain, (draft.content_hash for draft in drafts))
        head = Head(sequence, received_at, chain)
    return Placement(head, drafts, new_digests, outcomes, refusals, now_us)


def place_history(
    submissions: Sequence[Submission],
    digests: Sequence[Sequence[bytes | None]],
    stored: Mapping[bytes, Stored],
    head: Head,
    received_at: Sequence[int],
) -> list[Placement]:
    """Decide several commits, each of one submission, as if each were stored before the next.

    Raises `ImportRefused` if a commit is not later than the one before it.
    """
    known = dict(stored)
    placements: list[Placement] = []
    for submission, of_commit, time in zip(submissions, digests, received_at, strict=True):
        if time <= head.received_at:
            raise ledger_has_gone_on()
        # Only what this commit asks for: `place` copies what it is given.
        asked = {d: known[d] for d in of_commit if d is not None and d in known}
        placement = place([submission], [of_commit], asked, head, time)
        known.update(placement.stored())
        head = placement.head
        placements.append(placement)
    return placements


def _same_key(earlier: Stored, entry: Draft) -> bool:
    return earlier.idempotency_key == entry.idempotency_key and earlier.tenant_id == entry.tenant_id


def _conflict(request_id: str, position: int, entry: Draft, earlier: Stored) -> Refusal:
    sequence = earlier.ingress_sequence
    rejection = content_conflict(entry, sequence, same_key=_same_key(earlier, entry))
    return Refusal(request_id, position, "conflict", rejection, sequence)
