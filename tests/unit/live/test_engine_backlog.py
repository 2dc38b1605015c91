"""A backlog forgets detail when it grows, but never what a subscriber must end up with."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.live.engine_models import (
    COMMITS,
    SCHEMA,
    Columns,
    Fields,
    Listener,
    State,
    Table,
    apply,
    changed_row,
    full_row,
)
from tidemark.live.engine import Backlog, BacklogLimits, Item, Progress, Source
from tidemark.live.filters import Filter, parse_filter

MANY = 1 << 40
POSITIVE = parse_filter(SCHEMA, {"qty": {"_gt": 0}})
SELECTED = frozenset(("qty", "sym"))


def limits(merge: int, close: int = MANY) -> BacklogLimits:
    return BacklogLimits(
        merge_above_items=merge,
        merge_above_bytes=MANY,
        close_above_items=close,
        close_above_bytes=MANY,
    )


class Client:
    """One who gets what a backlog hands out, and notes how new each row is."""

    def __init__(self) -> None:
        self.state: State = {}
        self.newest: dict[str, int] = {}
        self.last = -1
        self.progress = -1

    def receive(self, item: Item) -> None:
        assert item.received_at >= self.last, "timestamps never go back"
        assert item.received_at > self.progress, "nothing comes after the promise that all came"
        self.last = item.received_at
        apply(self.state, item)
        self.newest[item.row_key] = item.received_at

    def resumed(self, after: int, log: Sequence[Item]) -> State:
        """What the client has once it resumed: it drops, per row, what is not newer."""
        other = copy.deepcopy(self)
        for item in log:
            if item.received_at > max(after, other.newest.get(item.row_key, -1)):
                apply(other.state, item)
        return other.state


class Run:
    """A view, one subscriber with a backlog, and all that the backlog was ever given."""

    def __init__(self, of: BacklogLimits, row_filter: Filter) -> None:
        self.filter = row_filter
        self.table = Table()
        self.source = Source(SCHEMA)
        self.log = Listener()
        self.source.join(row_filter, Columns(*SELECTED), self)
        self.source.join(row_filter, Columns(*SELECTED), self.log)
        self.limits = of
        self.backlog = Backlog(of, -1)
        self.client = Client()
        self.past: dict[int, State] = {-1: {}}
        self.popped = False

    def take(self, received_at: int, items: Sequence[Item]) -> None:
        self.backlog.append(received_at, items)

    @property
    def rows(self) -> State:
        return self.table.visible(self.filter, SELECTED)

    def commit(self, received_at: int, wanted: dict[int, Fields | None], mark: bool) -> None:
        self.source.publish(received_at, self.table.commit(received_at, wanted))
        self.past[received_at] = self.rows
        if mark:
            self.backlog.mark(received_at)

    def pop(self, most: int | None) -> None:
        self.popped = True
        for entry in self.backlog.pop_ready(most):
            if isinstance(entry, Progress):
                assert entry.received_at > self.client.progress
                assert entry.received_at >= self.client.last
                self.client.progress = entry.received_at
                assert self.client.state == self.past[entry.received_at]
            else:
                self.client.receive(entry)

    def check(self) -> None:
        keys = {item.row_key for item in self.log.items}
        most = len(keys) + self.limits.merge_above_items
        assert len(self.backlog) <= (2 * most if self.popped else most)
        after = self.backlog.resume_after
        assert after >= self.client.progress
        assert self.client.resumed(after, self.log.items) == self.rows


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), COMMITS, st.booleans()),
        st.tuples(st.just("commit"), COMMITS, st.booleans()),
        st.tuples(st.just("pop"), st.one_of(st.none(), st.integers(0, 4)), st.none()),
    ),
    min_size=4,
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(
    STEPS,
    st.integers(0, 6),
    st.sampled_from([MANY, MANY, 2, 4]),
    st.sampled_from([POSITIVE, parse_filter(SCHEMA, None)]),
)
def test_however_it_merges_the_client_converges_and_may_resume(
    steps: list[tuple[str, Any, Any]], merge: int, close: int, row_filter: Filter
) -> None:
    run = Run(limits(merge, close), row_filter)
    for received_at, (step, what, how) in enumerate(steps):
        if step == "commit":
            run.commit(received_at, what, how)
        else:
            run.pop(what)
        run.check()
    if run.backlog.overflown:
        assert run.backlog.pop_ready() == []
    else:
        run.backlog.mark(len(steps))
        run.past[len(steps)] = run.rows
        run.pop(None)
        assert run.client.progress == run.backlog.resume_after == len(steps)
        assert run.client.state == run.rows


def items_of(*steps: Fields | None) -> list[Item]:
    """What the steps of one row are to one who sees only positive quantities; one a commit."""
    run = Run(limits(MANY), POSITIVE)
    for received_at, fields in enumerate(steps, start=1):
        run.commit(received_at, {1: fields}, mark=False)
    return run.log.items


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (({"qty": 1}, {"qty": 2}), [("INSERT", ("id", "qty", "sym"))]),
        (({"qty": 1}, None), []),
        (({"qty": 1}, {"qty": 0}), []),
        (({"qty": 1}, None, {"qty": 3}), [("INSERT", ("id", "qty", "sym"))]),
    ],
)
def test_changes_of_a_row_the_client_does_not_have_are_merged(
    steps: tuple[Fields | None, ...], expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    backlog = Backlog(limits(0), 0)
    for item in items_of(*steps):
        backlog.append(item.received_at, [item])
    merged = [entry for entry in backlog.pop_ready() if isinstance(entry, Item)]
    assert [(item.operation, item.fields) for item in merged] == expected
    assert all(item.received_at == len(steps) for item in merged)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (({"qty": 2}, {"qty": 2, "sym": "a"}), [("UPDATE", ("id", "qty", "sym"))]),
        (({"qty": 2}, {"qty": 3}), [("UPDATE", ("id", "qty"))]),
        (({"qty": 2}, None), [("DELETE", ("id",))]),
        ((None, {"qty": 3}), [("UPDATE", ("id", "qty", "sym"))]),
        ((None, {"qty": 3}, None), [("DELETE", ("id",))]),
    ],
)
def test_changes_of_a_row_the_client_has_are_merged(
    steps: tuple[Fields | None, ...], expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    known, *changes = items_of({"qty": 1}, *steps)
    backlog = Backlog(limits(0), known.received_at)
    for item in changes:
        backlog.append(item.received_at, [item])
    merged = [entry for entry in backlog.pop_ready() if isinstance(entry, Item)]
    assert [(item.operation, item.fields) for item in merged] == expected
    assert [item.since for item in merged] == [2]


def test_a_row_that_a_client_may_have_seen_before_it_resumed_is_taken_away_again() -> None:
    insert, delete = items_of({"qty": 1}, None)
    backlog = Backlog(limits(0), insert.received_at - 1, may_know_to=insert.received_at)
    for item in (insert, delete):
        backlog.append(item.received_at, [item])
    (merged,) = (entry for entry in backlog.pop_ready() if isinstance(entry, Item))
    assert (merged.operation, merged.received_at) == ("DELETE", delete.received_at)


def test_what_cannot_follow_is_not_merged_into_something() -> None:
    (insert,) = items_of({"qty": 1})
    with pytest.raises(ValueError, match="INSERT cannot follow INSERT"):
        insert.merged_with(insert)


def insert_of(received_at: int, id: int) -> Item:
    log, source = Listener(), Source(SCHEMA)
    source.join(POSITIVE, Columns(*SELECTED), log)
    source.publish(received_at, [changed_row(received_at, None, full_row(id, qty=1))])
    return log.items[0]


def test_below_the_bound_nothing_is_merged() -> None:
    items = items_of({"qty": 1}, {"qty": 2}, {"qty": 3})
    backlog = Backlog(limits(3), 0)
    for item in items:
        backlog.append(item.received_at, [item])
    assert backlog.pop_ready() == items


def test_a_progress_that_something_moved_across_is_not_promised() -> None:
    first, second = items_of({"qty": 1}, {"qty": 2})
    backlog = Backlog(limits(1), 0)
    backlog.append(1, [first])
    backlog.mark(1)
    backlog.append(2, [second])
    backlog.mark(2)
    assert [entry.received_at for entry in backlog.pop_ready()] == [2, 2]


def test_progress_alone_does_not_pile_up() -> None:
    backlog = Backlog(limits(10), 0)
    for received_at in range(1, 100):
        backlog.mark(received_at)
    assert backlog.pop_ready() == [Progress(99)]


def test_past_the_second_bound_it_lets_go_and_says_where_to_resume() -> None:
    backlog = Backlog(limits(0, close=2), 5)
    backlog.append(10, [insert_of(10, 1)])
    backlog.pop_ready()
    backlog.append(20, [insert_of(20, 2)])
    backlog.append(30, [insert_of(30, 3), insert_of(30, 4)])
    assert backlog.overflown
    assert backlog.resume_after == 19
    assert (len(backlog), backlog.size, backlog.pop_ready()) == (0, 0, [])
    backlog.append(40, [insert_of(40, 5)])
    backlog.mark(40)
    assert (len(backlog), backlog.resume_after) == (0, 19)


def test_bytes_count_as_items_do() -> None:
    size = insert_of(1, 1).size
    backlog = Backlog(
        BacklogLimits(
            merge_above_items=MANY,
            merge_above_bytes=0,
            close_above_items=MANY,
            close_above_bytes=2 * size,
        ),
        0,
    )
    for received_at in (1, 2):
        backlog.append(received_at, [insert_of(received_at, received_at)])
    assert (backlog.overflown, backlog.size) == (False, 2 * size)
    backlog.append(3, [insert_of(3, 3)])
    assert backlog.overflown


def test_rows_that_come_and_go_unheard_do_not_fill_it() -> None:
    backlog = Backlog(limits(10), 0)
    backlog.append(1, [insert_of(1, 0)])
    for step in range(1, 2_000):
        run = Run(limits(MANY), POSITIVE)
        run.commit(2 * step, {step: {"qty": 1}}, mark=False)
        run.commit(2 * step + 1, {step: None}, mark=False)
        for item in run.log.items:
            backlog.append(item.received_at, [item])
            backlog.mark(item.received_at)
    assert len(backlog) <= 12
    assert backlog.resume_after == 0
    assert len(backlog.pop_ready()) <= 30


def test_a_row_that_changes_all_the_time_reaches_one_who_is_always_behind() -> None:
    run = Run(limits(10), POSITIVE)
    heard = []
    for received_at in range(1, 1_000):
        rows: dict[int, Fields | None] = {0: {"qty": received_at}}
        rows |= {received_at * 3 % 50 + n: {"qty": received_at} for n in range(1, 4)}
        run.commit(received_at, rows, mark=True)
        run.pop(1)
        heard.append(run.client.newest.get("[0]"))
    run.check()
    assert max(heard.count(at) for at in set(heard)) < 150
    assert run.client.progress > 800


def test_commits_out_of_order_are_refused() -> None:
    backlog = Backlog(limits(10), 5)
    with pytest.raises(ValueError, match="5 is not after 5"):
        backlog.append(5, [])
    with pytest.raises(ValueError, match="4 is before 5"):
        backlog.mark(4)
