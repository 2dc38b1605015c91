"""What must be true of every ledger, whatever was killed: judged from plain rows and answers.

Nothing here reads a database or a socket, so that each rule can be shown to fail on a history in
which it is broken.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

GENESIS: Final = bytes(32)
# A broken history breaks the same rule for every later event; the first few tell the story.
SHOWN_OF_A_KIND: Final = 5


class StoredEvent(NamedTuple):
    """A row of `events`. `mark` is what the sender knows the event by, whatever its key is."""

    sequence: int
    received_at: int
    content_hash: bytes
    tenant: str
    key: str
    mark: str


class StoredCommit(NamedTuple):
    """A row of `commits`."""

    received_at: int
    first: int
    last: int
    chain: bytes


class Head(NamedTuple):
    """Where the ledger says that it stands."""

    last: int
    received_at: int
    chain: bytes


class History(NamedTuple):
    """One consistent reading of a ledger, in order."""

    events: Sequence[StoredEvent]
    commits: Sequence[StoredCommit]
    head: Head


class Acknowledgement(NamedTuple):
    """What one answer said of one event; `answer` tells the answers apart."""

    answer: int
    mark: str
    status: str
    tenant: str
    key: str
    sequence: int
    received_at: int


def violations(
    history: History,
    acknowledged: Iterable[Acknowledgement] = (),
    *,
    sent: Collection[str] | None = None,
    all_answered: bool = False,
) -> list[str]:
    """Every broken rule, in words; an empty list is a history as it must be.

    `acknowledged` must have been received before the history was read. `sent` are the marks of all
    events that anybody sent; with `all_answered` each of them must be there.
    """
    answers = list(acknowledged)
    found: list[str] = []
    for rule in (
        _dense(history),
        _stored_once(history),
        _covered_by_commits(history),
        _stamped_by_their_commit(history),
        _time_moves_on(history),
        _chained(history),
        _head_is_the_last_commit(history),
        _as_acknowledged(history, answers),
        _accepted_once(answers),
        _answered_in_order(answers),
        _sent(history, sent, all_answered),
    ):
        broken = list(rule)
        found += broken[:SHOWN_OF_A_KIND]
        if len(broken) > SHOWN_OF_A_KIND:
            found.append(f"… and {len(broken) - SHOWN_OF_A_KIND} more of this kind")
    return found


def _dense(history: History) -> Iterator[str]:
    for place, event in enumerate(history.events, 1):
        if event.sequence != place:
            yield f"gap or reorder: place {place} has sequence {event.sequence}"


def _stored_once(history: History) -> Iterator[str]:
    for name, times in Counter((event.tenant, event.key) for event in history.events).items():
        if times > 1:
            yield f"stored {times} times: the event of tenant and key {name}"
    for mark, times in Counter(event.mark for event in history.events).items():
        if times > 1:
            yield f"stored {times} times: the event marked {mark}"


def _covered_by_commits(history: History) -> Iterator[str]:
    reached = 0
    for commit in history.commits:
        if commit.first != reached + 1 or commit.last < commit.first - 1:
            yield f"commit {commit.first}…{commit.last} does not go on from {reached}"
        reached = commit.last
    if reached != len(history.events):
        yield f"commits reach {reached}, but there are {len(history.events)} events"


def _stamped_by_their_commit(history: History) -> Iterator[str]:
    received_at = {event.sequence: event.received_at for event in history.events}
    for commit in history.commits:
        for sequence in range(commit.first, commit.last + 1):
            if received_at.get(sequence, commit.received_at) != commit.received_at:
                yield (
                    f"event {sequence} was received at {received_at[sequence]}, "
                    f"its commit at {commit.received_at}"
                )


def _time_moves_on(history: History) -> Iterator[str]:
    for earlier, later in pairwise(history.commits):
        if later.received_at <= earlier.received_at:
            yield (
                f"received_at {later.received_at} of commit {later.first}…{later.last} is not after"
                f" {earlier.received_at}"
            )


def _chained(history: History) -> Iterator[str]:
    hashes = {event.sequence: event.content_hash for event in history.events}
    chain = GENESIS
    for commit in history.commits:
        content = (hashes.get(sequence, b"") for sequence in range(commit.first, commit.last + 1))
        chain = hashlib.sha256(chain + b"".join(content)).digest()
        if commit.chain != chain:
            yield f"chain broken at commit {commit.first}…{commit.last}"


def _head_is_the_last_commit(history: History) -> Iterator[str]:
    last = Head(0, 0, GENESIS)
    if history.commits:
        commit = history.commits[-1]
        last = Head(commit.last, commit.received_at, commit.chain)
    if history.head != last:
        yield f"the head is {history.head}, the last commit {last}"


def _as_acknowledged(history: History, answers: Sequence[Acknowledgement]) -> Iterator[str]:
    stored = {event.mark: event for event in history.events}
    for said in answers:
        event = stored.get(said.mark)
        if event is None:
            yield f"lost: {said}"
        elif (event.sequence, event.received_at) != (said.sequence, said.received_at):
            yield (
                f"moved: {said}, but the ledger has it at {event.sequence}, "
                f"received at {event.received_at}"
            )
        elif (event.tenant, event.key) != (said.tenant, said.key):
            yield f"renamed: {said}, but the ledger has {event.tenant!r}, {event.key!r}"


def _accepted_once(answers: Sequence[Acknowledgement]) -> Iterator[str]:
    accepted = Counter(said.mark for said in answers if said.status == "accepted")
    for mark, times in accepted.items():
        if times > 1:
            yield f"accepted {times} times: the event marked {mark}"


def _answered_in_order(answers: Sequence[Acknowledgement]) -> Iterator[str]:
    """What one request added is one run of one commit, in the order of the request."""
    added: dict[int, list[Acknowledgement]] = {}
    for said in answers:
        if said.status == "accepted":
            added.setdefault(said.answer, []).append(said)
    for run in added.values():
        for earlier, later in pairwise(run):
            if (later.sequence, later.received_at) != (earlier.sequence + 1, earlier.received_at):
                yield f"one request, but not one run of one commit: {earlier}, then {later}"


def _sent(history: History, sent: Collection[str] | None, all_answered: bool) -> Iterator[str]:
    if sent is None:
        return
    stored = {event.mark for event in history.events}
    known = set(sent)
    for mark in sorted(stored - known):
        yield f"invented: nobody sent the event marked {mark}"
    if all_answered:
        for mark in sorted(known - stored):
            yield f"missing: the event marked {mark}"
