"""Some keys of a window folded anew from the beginning of the ledger, since events were corrected.

What a void takes away may have been the greatest value or the last one, so only all of a window's
events say what it then comes to. Up to where the views stand nothing is shown; from there on every
commit says what it changes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from tidemark.pipeline import facts
from tidemark.pipeline.fold.parts import CHANGES_SCHEMA, Change, rows_schema, table_of
from tidemark.pipeline.fold.tallies import Order, Tally, to_billionths, to_decimal
from tidemark.pipeline.output.encoding import row_key
from tidemark.pipeline.output.schema import Value
from tidemark.pipeline.windows.definition import WindowDefinition, late_schema, window_schema
from tidemark.pipeline.windows.lanes import NO_HISTORY, LaneHistory
from tidemark.pipeline.windows.refolded import (
    Event,
    Key,
    Place,
    Refolded,
    Row,
    aggregates_of,
    change_of,
    late_tables,
)


class _Side(NamedTuple):
    """What an event is as a fact, before or after a correction; the value is in billionths."""

    key: Key
    ts: int
    value: int


class _Original:
    __slots__ = ("amends", "effective", "event", "parted", "void")

    def __init__(self, event: Event, effective: _Side | None) -> None:
        self.event = event
        self.effective = effective
        # Once something of it was late, what is counted of it stays as it is.
        self.parted = False
        self.void: Event | None = None
        self.amends: list[Event] = []


class _Window:
    __slots__ = ("contents", "is_closed", "is_ended", "is_known", "shown", "tally", "was_shown")

    def __init__(self) -> None:
        # By the sequence of the original, its time and its value.
        self.contents: dict[int, tuple[int, int]] = {}
        # What they come to, where that is known: what is added to it is added here too.
        self.tally: Tally | None = None
        # By a watermark, or by the end of the stream, which nothing but this remembers.
        self.is_closed = False
        self.is_ended = False
        # What readers see of it, once that matters, and whether they saw anything before.
        self.is_known = False
        self.shown: Row | None = None
        self.was_shown = False


def fold_corrected(
    window: WindowDefinition,
    events: Sequence[Event],
    lanes: Mapping[str, LaneHistory] | LaneHistory,
    ends: Sequence[tuple[str, int]],
    *,
    start: int,
    end: int,
) -> Refolded:
    """What the keys of these events come to after `start`, up to `end`.

    `events` are all there are of these keys, and all corrections of them, by sequence.
    """
    return _Fold(window, lanes, ends, start, end).run(events)


class _Fold:
    def __init__(
        self,
        window: WindowDefinition,
        lanes: Mapping[str, LaneHistory] | LaneHistory,
        ends: Sequence[tuple[str, int]],
        start: int,
        end: int,
    ) -> None:
        self._window = window
        self._schema = window_schema(window)
        self._late_schema = late_schema(window) if window.late_view else None
        self._lanes = lanes
        self._ends: dict[int, set[str]] = {}
        for tenant, received_at in ends:
            self._ends.setdefault(received_at, set()).add(tenant)
        self._start = start
        self._end = end
        self._originals: dict[tuple[str, str], _Original] = {}
        self._keys: set[Key] = set()
        self._windows: dict[Place, _Window] = {}
        # The commits at which W closes windows.
        self._closing: dict[int, list[Place]] = {}
        self._timeline: list[int] = []
        self._received_at = 0
        self._touched: dict[Place, None] = {}
        self._changes: list[Change] = []
        self._changed_at: dict[Place, int] = {}
        self._late: list[tuple[int, Row]] = []

    def run(self, events: Sequence[Event]) -> Refolded:
        commits = {at: list(own) for at, own in groupby(events, key=lambda e: e.received_at)}
        self._timeline = sorted({*commits, *self._ends})
        done = -1
        while self._timeline:
            received_at = heapq.heappop(self._timeline)
            if received_at != done and received_at <= self._end:
                self._commit(received_at, commits.get(received_at, []))
                done = received_at
        return self._result()

    def _commit(self, received_at: int, events: Sequence[Event]) -> None:
        self._received_at = received_at
        self._touched = {}
        steps: dict[tuple[str, str], _Original] = {}
        for event in events:
            if event.target_key is None:
                name = (event.tenant_id, event.idempotency_key)
                self._originals[name] = original = _Original(event, self._side(event, event))
                self._take_fact(original)
        before: dict[tuple[str, str], Event | None] = {}
        for event in events:
            if event.target_key is None:
                continue
            name = (event.tenant_id, event.target_key)
            known = self._originals.get(name)
            if known is None:
                continue
            steps[name] = known
            before.setdefault(name, _deciding(known))
            if event.kind != facts.VOID:
                known.amends.append(event)
            elif known.void is None:
                known.void = event
        for name, original in steps.items():
            after = _deciding(original)
            if after is not None and after is not before[name]:
                self._correct(original, after)
        for place in self._closing.pop(received_at, ()):
            self._close(place)
        for tenant in self._ends.get(received_at, ()):
            for place, window in self._windows.items():
                if place[0][0] == tenant and window.contents:
                    self._close(place)
                    window.is_ended = True
        self._show()

    def _take_fact(self, original: _Original) -> None:
        side = original.effective
        if side is None:
            return
        for place in self._places(side):
            if self._is_late(side, place):
                original.parted = True
                self._write_late(place, side, 0, side.value, "late", original.event, None)
            else:
                self._add(place, original.event.ingress_sequence, side)

    def _correct(self, original: _Original, correction: Event) -> None:
        old, new = original.effective, None
        # An amend whose content cannot be decoded is one that leaves nothing.
        reason = facts.VOID if correction.kind == facts.VOID else facts.AMEND
        if reason == facts.AMEND:
            new = self._side(correction, original.event)
        original.effective = new
        sides = [side for side in (old, new) if side is not None]
        sequence = original.event.ingress_sequence
        if self._window.late != "refire" and (
            original.parted
            or any(self._is_late(side, place) for side in sides for place in self._places(side))
        ):
            original.parted = True
            for part, side in ((0, old), (1, new)):
                for place in self._places(side) if side is not None else ():
                    assert side is not None
                    amount = side.value if part else -side.value
                    self._write_late(place, side, part, amount, reason, correction, original.event)
            return
        for place in self._places(old) if old is not None else ():
            assert old is not None
            if not self._is_late(old, place):
                self._take_out(place, sequence)
        for place in self._places(new) if new is not None else ():
            assert new is not None
            if not self._is_late(new, place):
                self._add(place, sequence, new)

    def _side(self, event: Event, original: Event) -> _Side | None:
        if event.value is None:
            return None
        key = (event.tenant_id, *event.groups)
        self._keys.add(key)
        # Without event time it is the commit of the original that counts.
        ts = event.ts if event.ts is not None else original.received_at
        return _Side(key, ts, to_billionths(event.value))

    def _places(self, side: _Side) -> Iterator[Place]:
        start = side.ts // self._window.every_us * self._window.every_us
        while side.ts < start + self._window.size_us:
            yield side.key, start
            start -= self._window.every_us

    def _is_late(self, side: _Side, place: Place) -> bool:
        """Whether it would be late in this window if it were a fact of this commit."""
        reached = self._lane(place).before(self._received_at)
        if self._window.late == "refire":
            bound = place[1] + self._window.size_us + self._window.refire_for_us
            return reached is not None and reached >= bound
        window = self._windows.get(place)
        is_closed = window is not None and window.is_closed
        return is_closed or (reached is not None and reached >= side.ts)

    def _lane(self, place: Place) -> LaneHistory:
        if isinstance(self._lanes, LaneHistory):
            return self._lanes
        return self._lanes.get(str(place[0][0]), NO_HISTORY)

    def _add(self, place: Place, sequence: int, side: _Side) -> None:
        window = self._windows.get(place)
        if window is None:
            window = self._windows[place] = _Window()
            self._plan_closing(place, window)
        self._touch(place, window)
        if sequence in window.contents:
            window.tally = None
        elif window.tally is not None:
            window.tally.add(side.value, Order(side.ts, sequence))
        window.contents[sequence] = (side.ts, side.value)

    def _plan_closing(self, place: Place, window: _Window) -> None:
        reached_at = self._lane(place).reached_at(place[1] + self._window.size_us)
        if reached_at is None:
            return
        if reached_at < self._received_at:
            window.is_closed = True
        elif reached_at <= self._end:
            self._closing.setdefault(reached_at, []).append(place)
            heapq.heappush(self._timeline, reached_at)

    def _take_out(self, place: Place, sequence: int) -> None:
        window = self._windows.get(place)
        if window is not None and sequence in window.contents:
            self._touch(place, window)
            window.tally = None
            del window.contents[sequence]

    def _close(self, place: Place) -> None:
        window = self._windows[place]
        if not window.is_closed:
            self._touch(place, window)
            window.is_closed = True

    def _touch(self, place: Place, window: _Window) -> None:
        """Remember what was shown of a window, before it changes."""
        if self._received_at > self._start and place not in self._touched:
            self._touched[place] = None
            if not window.is_known:
                window.shown = self._row(place, window)
                window.was_shown = window.shown is not None
                window.is_known = True

    def _show(self) -> None:
        for place in self._touched:
            window = self._windows[place]
            old, new = window.shown, self._row(place, window)
            window.shown = new
            if old == new:
                continue
            self._changed_at[place] = self._received_at
            self._changes.append(
                change_of(self._schema, self._received_at, self._row_key(place), old, new)
            )

    def _row(self, place: Place, window: _Window) -> Row | None:
        """What readers see of a window; None if nothing."""
        if not window.contents or (self._window.emit == "close" and not window.is_closed):
            return None
        tally = self._tally(window)
        (key, start), end = place, place[1] + self._window.size_us
        value = to_decimal(tally.aggregate(self._window.aggregate))
        return (*key, start, end, *aggregates_of(tally), value, window.is_closed)

    def _tally(self, window: _Window) -> Tally:
        if window.tally is None:
            window.tally = Tally()
            if self._window.aggregate == "unique":
                window.tally.members = {}
            for sequence, (ts, value) in window.contents.items():
                window.tally.add(value, Order(ts, sequence))
        return window.tally

    def _row_key(self, place: Place) -> str:
        return row_key(self._schema, [*place[0], place[1]])

    def _write_late(
        self,
        place: Place,
        side: _Side,
        part: int,
        amount: int,
        reason: str,
        event: Event,
        original: Event | None,
    ) -> None:
        if self._late_schema is None or self._received_at <= self._start:
            return
        values = (
            *(*place[0], place[1], place[1] + self._window.size_us),
            *(event.ingress_sequence, part, side.ts, to_decimal(amount), reason),
            *(event.idempotency_key, None if original is None else original.idempotency_key),
        )
        self._late.append((self._received_at, values))

    def _result(self) -> Refolded:
        rows, gone = [], []
        for place, changed_at in self._changed_at.items():
            window = self._windows[place]
            if window.shown is not None:
                rows.append((self._row_key(place), changed_at, *window.shown))
            elif window.was_shown:
                gone.append(self._row_key(place))
        open_rows: list[Row] = []
        members: list[tuple[str, Value]] = []
        for place, window in self._windows.items():
            if self._is_final(place) or not (window.contents or window.is_ended):
                continue
            tally = self._tally(window)
            open_rows.append(self._open_row(place, window, tally))
            if self._window.aggregate == "unique":
                key = self._row_key(place)
                members += ((key, to_decimal(value)) for value in tally.members or ())
        late_rows, late_changes = late_tables(self._late_schema, self._late)
        return Refolded(
            keys=list(self._keys),
            rows=table_of(rows_schema(self._schema), rows),
            gone=gone,
            changes=table_of(CHANGES_SCHEMA, self._changes),
            late_rows=late_rows,
            late_changes=late_changes,
            open_rows=open_rows,
            members=members,
        )

    def _is_final(self, place: Place) -> bool:
        bound = place[1] + self._window.size_us + self._window.refire_for_us
        reached = self._lane(place).after(self._end)
        return reached is not None and reached >= bound

    def _open_row(self, place: Place, window: _Window, tally: Tally) -> Row:
        (key, start), last = place, tally.last_order
        is_unique = self._window.aggregate == "unique"
        return (
            *(*key, start, start + self._window.size_us, *aggregates_of(tally)),
            None if last is None else last.ts,
            None if last is None else last.sequence,
            tally.distinct if is_unique else None,
            window.is_closed,
        )


def _deciding(original: _Original) -> Event | None:
    """Which correction says what it is; None if none does."""
    if original.void is not None:
        return original.void
    return original.amends[-1] if original.amends else None
