"""What one subscriber has not been sent yet: in order, merged when it grows, and bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from tidemark.live.engine.transitions import Item


class Progress(msgspec.Struct, frozen=True, gc=False):
    """Everything up to this time comes before it."""

    received_at: int


Entry: TypeAlias = Item | Progress

Span: TypeAlias = tuple[int, int]
"""From the first time to before the second."""


class BacklogLimits(msgspec.Struct, frozen=True):
    """Past `merge_above` the changes of one row are merged, past `close_above` it is given up."""

    merge_above_items: int = 1_000
    merge_above_bytes: int = 1 << 20
    close_above_items: int = 10_000
    close_above_bytes: int = 16 << 20


class Backlog:
    """The buffer of one subscriber that has everything up to `since` already.

    One that resumed may also have seen some of what came after that, up to `may_know_to`.

    Merged changes stand where the newest of them stood, so timestamps never go back. A subscriber
    who applies what comes (INSERT and UPDATE set the row, DELETE removes it) has, at every
    Progress, the rows as of then.

    What waits when the subscriber comes back is settled: it is handed out before anything is merged
    with it again, else a row that changes all the time would never reach one who is always behind.
    So there are at most twice as many items as rows that changed and `merge_above` together.
    """

    def __init__(self, limits: BacklogLimits, since: int, may_know_to: int = -1) -> None:
        self._limits = limits
        self._may_know_to = may_know_to
        self._entries: deque[Entry] = deque()
        self._items = 0
        self._bytes = 0
        # What the last merging could not remove: it would only be looked at in vain again.
        self._merged_items = 0
        self._merged_bytes = 0
        # How many of the first entries are settled.
        self._settled = 0
        # When there were rows that came and went without the subscriber hearing of them.
        self._unheard: list[Span] = []
        self._known_to = since
        self._given_up_at: int | None = None

    def __len__(self) -> int:
        """How many items wait."""
        return self._items

    @property
    def size(self) -> int:
        """About how many bytes the items keep in memory."""
        return self._bytes

    @property
    def overflown(self) -> bool:
        """Too much was waiting: it has let go of everything, and takes no more."""
        return self._given_up_at is not None

    @property
    def resume_after(self) -> int:
        """The latest time up to which everything was handed out, or merged with what was.

        Who resumes after it misses nothing, and may see again what it was handed out later than
        that: it drops, per row, what is not newer.
        """
        if self._given_up_at is not None:
            return self._given_up_at
        after = self._oldest_waiting() - 1
        for begins, ends in reversed(self._unheard):
            if begins <= after < ends:
                after = begins - 1
        return after

    def append(self, received_at: int, items: Iterable[Item]) -> None:
        """All that one commit has for this subscriber. Commits come in order, each but once."""
        if self.overflown:
            return
        if received_at <= self._known_to:
            raise ValueError(f"{received_at} is not after {self._known_to}")
        for item in items:
            self._entries.append(item)
            self._items += 1
            self._bytes += item.size
        self._known_to = received_at
        if self._much_is_new() or self._too_much():
            self._merge()
            if self._too_much():
                self._give_up()

    def mark(self, received_at: int) -> None:
        """Everything up to this time has been appended; the subscriber will be told."""
        if self.overflown:
            return
        if received_at < self._known_to:
            raise ValueError(f"{received_at} is before {self._known_to}")
        self._known_to = received_at
        if self._entries and isinstance(self._entries[-1], Progress):
            self._entries.pop()
        self._entries.append(Progress(received_at))

    def pop_ready(self, most: int | None = None) -> list[Entry]:
        """Hands out what is next, in order; what was handed out counts as sent."""
        entries = self._entries
        if most is None or most >= len(entries):
            ready = list(entries)
            self._forget()
            return ready
        ready = [entries.popleft() for _ in range(most)]
        for entry in ready:
            if isinstance(entry, Item):
                self._items -= 1
                self._bytes -= entry.size
        if self._settled > most:
            self._settled -= most
        else:
            self._settled = len(entries) if self._merged_items else 0
        self._merged_items = min(self._merged_items, self._items)
        self._merged_bytes = min(self._merged_bytes, self._bytes)
        return ready

    def _much_is_new(self) -> bool:
        return (
            self._items > self._merged_items + self._limits.merge_above_items
            or self._bytes > self._merged_bytes + self._limits.merge_above_bytes
        )

    def _too_much(self) -> bool:
        limits = self._limits
        return self._items > limits.close_above_items or self._bytes > limits.close_above_bytes

    def _merge(self) -> None:
        settled = [self._entries.popleft() for _ in range(self._settled)]
        self._entries, unheard = merged(self._entries, self._may_know_to)
        self._entries.extendleft(reversed(settled))
        items = [entry for entry in self._entries if isinstance(entry, Item)]
        self._items = self._merged_items = len(items)
        self._bytes = self._merged_bytes = sum(item.size for item in items)
        self._unheard = _joined((*self._unheard, *unheard))
        after = self.resume_after
        self._unheard = [span for span in self._unheard if span[1] > after]

    def _oldest_waiting(self) -> int:
        waiting = (entry.since for entry in self._entries if isinstance(entry, Item))
        return min(waiting, default=self._known_to + 1)

    def _give_up(self) -> None:
        self._given_up_at = self.resume_after
        self._forget()

    def _forget(self) -> None:
        self._entries.clear()
        self._unheard.clear()
        self._items = self._bytes = self._merged_items = self._merged_bytes = self._settled = 0


def merged(entries: Iterable[Entry], may_know_to: int) -> tuple[deque[Entry], list[Span]]:
    """At most one item per row, each where the newest of its row was; and when rows that are gone
    again were there.

    A Progress stays only if all that came before it still does: what was merged across it now comes
    later, or never.
    """
    newest: dict[str, Item | None] = {}
    place: dict[str, int] = {}
    kept: list[Entry | None] = []
    moved: list[Span] = []
    unheard: list[Span] = []
    for entry in entries:
        if isinstance(entry, Progress):
            kept.append(entry)
            continue
        row_key = entry.row_key
        item: Item | None = entry
        before = newest.get(row_key)
        if before is not None:
            item = before.merged_with(entry, may_be_known=before.since <= may_know_to)
            kept[place[row_key]] = None
            span = (before.since, entry.received_at)
            moved.append(span)
            if item is None:
                unheard.append(span)
        newest[row_key] = item
        place[row_key] = len(kept)
        kept.append(item)
    return _without_broken_promises(kept, sorted(moved)), unheard


def _without_broken_promises(
    entries: Iterable[Entry | None], moved: Sequence[Span]
) -> deque[Entry]:
    left: deque[Entry] = deque()
    upcoming = iter(moved)
    span = next(upcoming, None)
    not_before = -1
    for entry in entries:
        if isinstance(entry, Progress):
            while span is not None and span[0] <= entry.received_at:
                not_before = max(not_before, span[1])
                span = next(upcoming, None)
            if entry.received_at < not_before:
                continue
            if left and isinstance(left[-1], Progress):
                left.pop()
        if entry is not None:
            left.append(entry)
    return left


# Joining more of them than must be costs nothing but a resumption that begins earlier.
_MOST_SPANS: Final = 100


def _joined(spans: Iterable[Span]) -> list[Span]:
    """The same times, in order, in spans that do not overlap and are not many."""
    joined: list[Span] = []
    for begins, ends in sorted(spans):
        if joined and begins <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], ends))
        else:
            joined.append((begins, ends))
    while len(joined) > _MOST_SPANS:
        joined = [
            (first[0], second[1])
            for first, second in zip(joined[::2], [*joined[1::2], joined[-1]], strict=False)
        ]
    return joined
