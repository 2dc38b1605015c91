"""Whether the commits that Kafka tells of are those of the ledger: all of them, and no others.

Kafka cannot know. After a restore its topics may hold what the ledger has lost; and sequences show
no gap where a commit without events is gone, though windows may close by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Final, TypeAlias

from tidemark.ledger.port import CommitRow
from tidemark.mirror.messages import CommitRecord
from tidemark.pipeline.kafka.errors import KafkaDiffers
from tidemark.pipeline.kafka.planning import Told
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.output.errors import LedgerRewound
from tidemark.timestamps import format_timestamp

COMMITS_AT_ONCE: Final = 5_000
"""So many of the ledger's are held in memory."""
_BEFORE_ALL: Final = -1


CommitsAfter: TypeAlias = Callable[[int, int], Sequence[CommitRow]]
"""The commits of the ledger that were received after a time, at most so many."""


def require_same_commits(
    told: Sequence[Told], before: Frontier | None, commits_after: CommitsAfter
) -> None:
    """Holds commits that are to follow the frontier against those that do in the ledger.

    Raises `LedgerRewound` if the ledger has others, and `KafkaDiffers` if Kafka lacks one of them.
    """
    if before is None:
        ours = _commits(_BEFORE_ALL, len(told), commits_after)
    else:
        ours = _commits(before.received_at - 1, 1 + len(told), commits_after)
        first = next(ours, None)
        stands = None if first is None else Frontier(*_end(first), before.ledger_id)
        if stands != before:
            raise LedgerRewound(
                f"the commit at which the views stand ({before.ingress_sequence} events) is not in"
                " this ledger any more",
                hint="The ledger was restored from a backup or replaced while it was read. Restore"
                " the views too, or rebuild them from the ledger.",
            )
    for (offset, commit), our in zip_longest(told, ours):
        if our is None or not _is_same(commit, our):
            raise _difference(commit, offset, our, commits_after)


def _commits(after: int, wanted: int, commits_after: CommitsAfter) -> Iterator[CommitRow]:
    while wanted:
        limit = min(wanted, COMMITS_AT_ONCE)
        page = commits_after(after, limit)
        yield from page
        if len(page) < limit:
            return
        after, wanted = page[-1].received_at, wanted - limit


def _difference(
    commit: CommitRecord, offset: int, our: CommitRow | None, commits_after: CommitsAfter
) -> KafkaDiffers | LedgerRewound:
    """What to say of the first commit that is not the one that comes next in the ledger."""
    named = commits_after(commit.received_at_us - 1, 1)
    if our is None or not any(_is_same(commit, found) for found in named):
        return LedgerRewound(
            f"the commit at {commit.received_at} that Kafka tells of, at offset {offset} of the"
            f" topic of commits and up to event {commit.last}, is not in this ledger",
            hint="The ledger was restored from a backup, and Kafka holds what it has lost; or"
            " somebody else has written this record. Nothing of that is folded. Have the topics"
            " mirrored anew (docs/howto/kafka.md), or set pipeline.source to ledger.",
        )
    # The chain is that of all before it: they are the same, but Kafka does not have them all.
    return KafkaDiffers(
        f"the commit at {format_timestamp(our.received_at)} is missing in Kafka,"
        f" {_events_of(our)}: its record was before offset {offset} of the topic of commits",
        hint="Records of that topic were removed, by its retention or by somebody. Nothing behind"
        " them is folded. Have the topics mirrored anew (docs/howto/kafka.md), or set"
        " pipeline.source to ledger.",
    )


def _events_of(commit: CommitRow) -> str:
    if commit.last_sequence < commit.first_sequence:
        return f"one without events, after event {commit.last_sequence}"
    return f"with the events {commit.first_sequence} to {commit.last_sequence}"


def _is_same(commit: CommitRecord, our: CommitRow) -> bool:
    return int(commit.first) == our.first_sequence and (
        commit.last_sequence,
        commit.received_at_us,
        bytes.fromhex(commit.chain),
    ) == _end(our)


def _end(commit: CommitRow) -> tuple[int, int, bytes]:
    return commit.last_sequence, commit.received_at, commit.chain
