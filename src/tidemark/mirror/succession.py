"""What is read of a ledger must continue what was read before: the ledger may be replaced under who
reads it, by a database that ends earlier and goes on in another way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tidemark.errors import LedgerDamaged
from tidemark.ledger.port import HASH_BYTES, CommitRow, EventText
from tidemark.ledger.sequencer import GENESIS_CHAIN, Head, extend_chain
from tidemark.timestamps import format_timestamp

BEGINNING: Final = Head(0, 0, GENESIS_CHAIN)
"""Of a ledger of which nothing was read."""
_PROVE_IT: Final = "Something else has written to it: `tidemark verify` says what is wrong."


def head_after(commit: CommitRow) -> Head:
    return Head(commit.last_sequence, commit.received_at, commit.chain)


def require_still_there(before: Head, found: CommitRow | None) -> None:
    """`found` is what the ledger has at this time, or next."""
    if found is None or head_after(found) != before:
        raise LedgerDamaged(
            f"the commit of {format_timestamp(before.received_at)} was in the ledger, and is not"
            " any more",
            hint="The ledger was replaced while it was read: by an older backup, or by a server"
            " that did not have all of it. What was mirrored is held against it anew.",
        )


def require_following(before: Head | None, commits: Iterable[CommitRow]) -> None:
    """No sequence is left out between commits, and none is there twice."""
    last = None if before is None else before.last_sequence
    for commit in commits:
        if last is not None and commit.first_sequence != last + 1:
            raise LedgerDamaged(
                f"a commit of the ledger begins with event {commit.first_sequence:,}, and the one"
                f" before it ends with {last:,}",
                hint=_PROVE_IT,
            )
        last = commit.last_sequence


def require_chain(before: Head, commits: Iterable[CommitRow], texts: Sequence[EventText]) -> None:
    """The events are those that were committed: commits and events are not read at once."""
    hashes = b"".join(text.columns["content_hash"] for text in texts)
    chain, begin = before.chain, 0
    for commit in commits:
        end = begin + HASH_BYTES * (commit.last_sequence - commit.first_sequence + 1)
        chain, begin = extend_chain(chain, [hashes[begin:end]]), end
        if chain != commit.chain:
            raise LedgerDamaged(
                f"the fingerprint of the commit of {format_timestamp(commit.received_at)} is not"
                " that of its events",
                hint=_PROVE_IT,
            )
