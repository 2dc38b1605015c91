"""What a history will be in an empty ledger: every event's number and every commit's chain.

The plan is made by the very rules that the store applies (`sequencer`), before anything is
written. So every problem is known first, and an import that was interrupted can tell whether what
is there is its own beginning.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from tidemark.ingress.drafts import (
    Correction,
    CorrectionResolver,
    Draft,
    Rejection,
    Submission,
)
from tidemark.ledger.history import Place, pack, unpack, unpack_draft
from tidemark.ledger.port import CommitRow
from tidemark.ledger.rows import CommitValues, commit_row
from tidemark.ledger.sequencer import (
    GENESIS_CHAIN,
    Head,
    Stored,
    digests_of,
    key_digest,
    original_of,
    place,
    resolve_corrections,
)

# Commits are judged together up to so many lines, which saves most of the lookups.
JUDGED_TOGETHER: Final = 2_000
_PARAMETERS_PER_QUERY: Final = 500
# Events that are written and read as one row, since a row costs more than an event.
_BLOCK_EVENTS: Final = 64

_TABLES: Final = (
    "planned (first_sequence INTEGER PRIMARY KEY, events BLOB NOT NULL) STRICT",
    "planned_keys (digest BLOB PRIMARY KEY, sequence INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "planned_commits (received_at INTEGER PRIMARY KEY, first_sequence INTEGER NOT NULL,"
    " last_sequence INTEGER NOT NULL, chain BLOB NOT NULL) STRICT",
)

_Row: TypeAlias = tuple[int, int, bytes, str, int]
_pack_rows = msgspec.msgpack.Encoder().encode
_unpack_rows = msgspec.msgpack.Decoder(list[_Row]).decode


class Problem(msgspec.Struct, frozen=True):
    """A line that cannot be imported, and why."""

    file: str
    line: int
    status: Literal["rejected", "conflict"]
    rejection: Rejection


class Planned(msgspec.Struct, frozen=True, gc=False):
    """One event with the place that it will have, and the line that it comes from."""

    sequence: int
    received_at: int
    draft: Draft
    file: str
    line: int

    def stored(self) -> Stored:
        """What the ledger will say of it."""
        return Stored(
            self.draft.tenant_id,
            self.draft.idempotency_key,
            self.sequence,
            self.received_at,
            self.draft.content_hash,
        )


class Judged(msgspec.Struct):
    """What became of some of the lines."""

    accepted: int = 0
    duplicates: int = 0
    problems: list[Problem] = []


class HistoryPlan:
    """Judges a history in order and remembers what it will be."""

    def __init__(self, workspace: sqlite3.Connection, resolve: CorrectionResolver) -> None:
        self.head = Head(0, 0, GENESIS_CHAIN)
        self._workspace = workspace
        self._resolve = resolve
        self._new_events: list[_Row] = []
        self._new_keys: list[tuple[bytes, int]] = []
        self._new_commits: list[CommitValues] = []
        for table in _TABLES:
            workspace.execute(f"CREATE TABLE {table}")

    def judge(self, places: Iterable[Place]) -> Iterator[Judged]:
        """Plan every commit, some at a time. The places must be in order."""
        together: list[list[_Line]] = []
        count = 0
        for _, commit in groupby(places, attrgetter("received_at")):
            together.append([_line(place) for place in commit])
            count += len(together[-1])
            if count >= JUDGED_TOGETHER:
                yield self._judge(together)
                together, count = [], 0
        if together:
            yield self._judge(together)

    def commits(self, after_received_at: int = 0) -> Iterator[CommitRow]:
        """The commits in order."""
        rows = self._workspace.execute(
            "SELECT received_at, first_sequence, last_sequence, chain FROM planned_commits"
            " WHERE received_at > ? ORDER BY received_at",
            (after_received_at,),
        )
        return (CommitRow(*row) for row in rows)

    def events(self, first_sequence: int, last_sequence: int) -> Iterator[Planned]:
        """The events with these numbers, in order."""
        blocks = self._workspace.execute(
            "SELECT events FROM planned WHERE first_sequence > ? AND first_sequence <= ?"
            " ORDER BY first_sequence",
            (first_sequence - _BLOCK_EVENTS, last_sequence),
        )
        for (block,) in blocks:
            for sequence, received_at, body, file, line in _unpack_rows(block):
                if first_sequence <= sequence <= last_sequence:
                    yield Planned(sequence, received_at, unpack_draft(body), file, line)

    def _judge(self, commits: list[list[_Line]]) -> Judged:
        known = self._find({line.digest for commit in commits for line in commit})
        judged = Judged()
        for commit in commits:
            self._judge_commit(commit, known, judged)
        self._flush()
        return judged

    def _judge_commit(
        self, commit: list[_Line], known: dict[bytes, Planned], judged: Judged
    ) -> None:
        received_at = commit[0].place.received_at
        digests: list[bytes | None] = [line.digest for line in commit]
        submission = Submission("import", [line.entry for line in commit])
        if any(type(entry) is Correction for entry in submission.entries):
            commit = list(behind_their_targets(commit, known))
            submission = self._resolved(commit, known)
            digests = digests_of(submission)
            # Only now are the keys of the corrections themselves known.
            known |= self._find({d for d in digests if d is not None and d not in known})
        placement = place(
            [submission],
            [digests],
            {d: known[d].stored() for d in digests if d in known},
            self.head,
            received_at,
        )
        for line, entry, digest, outcome in zip(
            commit, submission.entries, digests, placement.outcomes[0], strict=True
        ):
            file, number = line.place.file, line.place.line
            if outcome.status == "duplicate":
                judged.duplicates += 1
            elif outcome.status == "accepted":
                assert type(entry) is Draft
                assert digest is not None
                assert outcome.ingress_sequence is not None
                sequence = outcome.ingress_sequence
                known[digest] = Planned(sequence, received_at, entry, file, number)
                body = line.place.body if entry is line.entry else pack(entry)
                self._new_events.append((sequence, received_at, body, file, number))
                self._new_keys.append((digest, sequence))
                judged.accepted += 1
            else:
                rejection = outcome.rejection
                assert rejection is not None
                if outcome.status == "conflict":
                    assert digest is not None
                    rejection = _conflict(rejection, known[digest])
                judged.problems.append(Problem(file, number, outcome.status, rejection))
        if placement.drafts:
            self.head = placement.head
            self._new_commits.append(commit_row(self.head, placement.first_sequence))

    def _resolved(self, commit: Iterable[_Line], known: Mapping[bytes, Planned]) -> Submission:
        originals = {
            line.digest: original_of(draft)
            for line in commit
            if type(line.entry) is Correction and line.digest in known
            for draft in [known[line.digest].draft]
            if (draft.tenant_id, draft.idempotency_key)
            == (line.entry.tenant_id, line.entry.target_key)
        }
        unresolved = Submission("import", [line.entry for line in commit])
        [submission] = resolve_corrections([unresolved], originals, self._resolve)
        return submission

    def _find(self, digests: Iterable[bytes]) -> dict[bytes, Planned]:
        """What is planned already under these key digests."""
        found: dict[bytes, Planned] = {}
        wanted = list(digests)
        for start in range(0, len(wanted), _PARAMETERS_PER_QUERY):
            some = wanted[start : start + _PARAMETERS_PER_QUERY]
            keys = self._workspace.execute(
                "SELECT digest, sequence FROM planned_keys"
                f" WHERE digest IN ({', '.join('?' * len(some))})",
                some,
            ).fetchall()
            for digest, sequence in keys:
                [found[digest]] = self.events(sequence, sequence)
        return found

    def _flush(self) -> None:
        events, self._new_events = self._new_events, []
        keys, self._new_keys = self._new_keys, []
        commits, self._new_commits = self._new_commits, []
        blocks = (
            (events[start][0], _pack_rows(events[start : start + _BLOCK_EVENTS]))
            for start in range(0, len(events), _BLOCK_EVENTS)
        )
        self._workspace.execute("BEGIN")
        self._workspace.executemany("INSERT INTO planned VALUES (?, ?)", blocks)
        self._workspace.executemany("INSERT INTO planned_keys VALUES (?, ?)", keys)
        self._workspace.executemany("INSERT INTO planned_commits VALUES (?, ?, ?, ?)", commits)
        self._workspace.execute("COMMIT")


class _Line(NamedTuple):
    """A line under judgement. The digest is of its own key; of a correction, of its target's."""

    place: Place
    entry: Draft | Correction
    digest: bytes


def behind_their_targets(
    commit: Iterable[_Line], known: Mapping[bytes, Planned]
) -> Iterator[_Line]:
    """The lines of a commit, with a correction behind the line that it corrects.

    Only a correction that would come before its own target is moved. The order of times and keys
    does not know what corrects what.
    """
    lines = list(commit)
    to_come = {line.digest for line in lines if type(line.entry) is Draft} - known.keys()
    waiting: dict[bytes, list[_Line]] = {}
    for line in lines:
        if type(line.entry) is Draft:
            yield line
            to_come.discard(line.digest)
            yield from waiting.pop(line.digest, ())
        elif line.digest in to_come:
            waiting.setdefault(line.digest, []).append(line)
        else:
            yield line


def _line(place: Place) -> _Line:
    entry = unpack(place.body)
    key = entry.idempotency_key if isinstance(entry, Draft) else entry.target_key
    return _Line(place, entry, key_digest(entry.tenant_id, key))


def _conflict(rejection: Rejection, earlier: Planned) -> Rejection:
    """The same conflict in the words of a history, which has lines where a ledger has numbers."""
    return msgspec.structs.replace(
        rejection,
        message=f"{earlier.file}, line {earlier.line} has the same key and other content",
        hint="Remove one of the two, give it an idempotencyKey of its own, or make the later one "
        "an amend control event that names the earlier.",
    )
