"""What is to be mirrored next, read and made ready while what is before it is sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeAlias

from tidemark.errors import LedgerDamaged
from tidemark.ledger.port import CommitRow, EventText, LedgerStore, TextTooLarge
from tidemark.ledger.sequencer import Head
from tidemark.ledger.spelling import Spelling, spelling_of
from tidemark.mirror.chunks import Chunk
from tidemark.mirror.messages import MOST_COMMITS, Target
from tidemark.mirror.succession import (
    BEGINNING,
    head_after,
    require_chain,
    require_following,
    require_still_there,
)

# A transaction waits for the brokers three times, however large it is.
MOST_EVENTS: Final = 40_000
FIRST_COMMITS: Final = 400
SPARE_COMMITS: Final = 50
_GROWTH: Final = 4
CHUNKS_AHEAD: Final = 3
FIRST_PAGE_EVENTS: Final = 2_000
PAGE_BYTES: Final = 16 * 1024 * 1024
MOST_BYTES: Final = 4 * PAGE_BYTES

Partitions: TypeAlias = Mapping[str, Sequence[Target]]
"""Those of each stream, as far as they are known."""


class Read(NamedTuple):
    """Commits that follow one another, and the texts of their events and perhaps of some more."""

    commits: Sequence[CommitRow]
    texts: Sequence[EventText]
    after: int
    upto: int
    before: Head | None = None
    """What they must continue, if that is known."""

    def spelt(self) -> SpeltCommits:
        spelling = spelling_of(self.texts, self.after, self.upto)
        if self.before is not None:
            require_chain(self.before, self.commits, self.texts)
        return SpeltCommits(self.commits, spelling)

    def chunk(self, partitions: Partitions) -> Chunk:
        return self.spelt().chunk(partitions)

    @property
    def is_large(self) -> bool:
        """More than is read at once, but for a commit that is: it is not read in parts."""
        return sum(text.size for text in self.texts) > 2 * MOST_BYTES


class SpeltCommits(NamedTuple):
    """Commits that follow one another, and their events and perhaps some more."""

    commits: Sequence[CommitRow]
    spelling: Spelling

    def chunk(self, partitions: Partitions) -> Chunk:
        last = self.commits[-1].last_sequence if self.commits else 0
        return Chunk.of(self.commits, self.spelling.events().upto(last), partitions)


class CommitReader:
    """The next commits of a ledger, as many as are sent at once."""

    def __init__(self, ledger: LedgerStore, *, few_first: bool = False) -> None:
        """With `few_first` it begins with one, and takes more each time: if one of them cannot be
        sent, most before it are, and not much is sent in vain."""
        self._ledger = ledger
        self._at_most = 1 if few_first else MOST_COMMITS
        self._events_a_page = FIRST_PAGE_EVENTS
        self._commits_wanted = FIRST_COMMITS

    async def after(self, received_at: int) -> Read:
        """Those after a time, whatever is before it."""
        return await self._read(await self._ledger.read_commits(received_at, self._limit))

    async def behind(self, before: Head) -> Read:
        """Those that continue this. Raises `LedgerDamaged` if the ledger has it no more: it may be
        replaced while it is read."""
        if before == BEGINNING:
            found = await self._ledger.read_commits(before.received_at, self._limit)
        else:
            # With it, and so for no query more.
            there = await self._ledger.read_commits(before.received_at - 1, self._limit + 1)
            require_still_there(before, there[0] if there else None)
            found = there[1:]
        return (await self._read(found, before))._replace(before=before)

    @property
    def _limit(self) -> int:
        return min(self._commits_wanted, self._at_most)

    async def _read(self, found: Sequence[CommitRow], before: Head | None = None) -> Read:
        require_following(before, found)
        commits: list[CommitRow] = []
        for commit in found:
            if commits and commit.last_sequence - commits[0].first_sequence >= MOST_EVENTS:
                break
            commits.append(commit)
        if not commits:
            return Read([], [], 0, 0)
        # Hardly more than are taken: a row is read with Python's lock, which others want. Where all
        # were, soon as many as may be.
        growth = _GROWTH if len(commits) == self._limit else 1.25
        self._at_most = min(MOST_COMMITS, _GROWTH * self._at_most)
        self._commits_wanted = min(MOST_COMMITS, int(len(commits) * growth) + SPARE_COMMITS)
        after = position = commits[0].first_sequence - 1
        last = commits[-1].last_sequence
        texts: list[EventText] = []
        size = 0
        while position < last and (size < MOST_BYTES or position < commits[0].last_sequence):
            upto = min(last, position + self._events_a_page)
            try:
                text = await self._ledger.read_text(position, upto)
            except TextTooLarge as error:
                if upto == position + 1:
                    raise LedgerDamaged(
                        f"the event {upto:,} is too large to be mirrored",
                        hint="No event as large is let in. Look at who has written it.",
                    ) from error
                self._events_a_page = (upto - position) // 2
                continue
            read = max(1, text.size)
            # Events may be of any size: the next page is as large as the bytes of this one allow.
            self._events_a_page = max(1, min(MOST_EVENTS, PAGE_BYTES * (upto - position) // read))
            size += read
            texts.append(text)
            position = upto
        whole = [commit for commit in commits if commit.last_sequence <= position]
        return Read(whole, texts, after, position)


class Ahead:
    """The next commits of a ledger, until there are no more. Closed, it reads no further.

    What Arrow does, it does without Python's lock, and so in threads, beside whoever sends and
    whoever reads. What takes that lock is done by whoever sends: it would only wait for it
    meanwhile.
    """

    def __init__(
        self,
        reader: CommitReader,
        before: Head,
        partitions: Partitions,
        begun: Callable[[Coroutine[Any, Any, Any]], Future[Any]],
    ) -> None:
        """`before` is what was mirrored last. `begun` runs what it is given where the ledger
        lives."""
        self._reader = reader
        self._partitions = partitions
        self._begun = begun
        self._read: Future[Read] = begun(reader.behind(before))
        self._spelt: deque[Future[SpeltCommits]] = deque([begun(_spelt(self._read))])
        self._taken: deque[Future[None]] = deque([Future()])
        """Of each that was not: done once it is."""
        self._ready: Chunk | None = None
        self._read_ahead()

    def take(self) -> Chunk:
        """The next; it is empty if there are no more, and then the last."""
        chunk = self._ready or self._made()
        if not chunk.commits:
            self._ready = chunk
            return chunk
        self._ready = None
        self._taken.popleft().set_result(None)
        self._read_ahead()
        return chunk

    def _read_ahead(self) -> None:
        while len(self._spelt) < CHUNKS_AHEAD:
            self._read = self._begun(self._read_behind(self._read, self._taken[-1]))
            self._spelt.append(self._begun(_spelt(self._read)))
            self._taken.append(Future())

    def make_ready(self) -> None:
        """Takes a while, if there is something to be done for the next."""
        if self._ready is None and self._spelt[0].done():
            # What is wrong with the next is no matter of who is busy with the one before: it is
            # told when the next is taken.
            with contextlib.suppress(Exception):
                self._ready = self._made()

    def _made(self) -> Chunk:
        chunk = self._spelt[0].result().chunk(self._partitions)
        # What it was made of takes as much room again.
        self._spelt.popleft()
        return chunk

    def close(self) -> None:
        for unused in self._spelt:
            unused.cancel()
        for never in self._taken:
            never.cancel()

    async def _read_behind(self, before: Future[Read], taken: Future[None]) -> Read:
        read = await asyncio.wrap_future(before)
        if read.is_large:
            # There may be many of its kind, and room for one and the next.
            await asyncio.wrap_future(taken)
        return await self._reader.behind(head_after(read.commits[-1])) if read.commits else read


async def _spelt(read: Future[Read]) -> SpeltCommits:
    found = await asyncio.wrap_future(read)
    return await asyncio.to_thread(found.spelt)
