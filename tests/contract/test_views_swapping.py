"""A swap makes live views what others are that were built beside them, in one step."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.test_views_property import all_lines, fewer, open_with_positions
from tests.contract.views_home import (
    POSITIONS,
    SQLITE_SCHEME,
    Views,
    ViewsHome,
    all_rows,
    at,
    batch,
    changes,
    error,
    everything,
    frontier,
    key_of,
    position,
    writes,
)
from tests.contract.views_model import STORIES, Commit, Model, visible
from tests.contract.views_swapper import ANOTHER, FIRST, LATER, OLD, SECOND, SWAP_END, swapped
from tests.unit.planted import assert_catches
from tidemark.config.names import VIEW_NAME_PATTERN
from tidemark.ops import replaying
from tidemark.ops.replaying import Differences, differences
from tidemark.pipeline.output.batch import INSERT
from tidemark.pipeline.output.errors import ChangesForgotten, FrontierGap, ViewsUnavailable
from tidemark.pipeline.output.schema import Column
from tidemark.views.port import AdjustmentFilter, ErrorFilter, RowFilter, RowQuery
from tidemark.views.snapshot import LoggedChange
from tidemark.views.swapping import Swap, SwapPart

pytest_plugins = ("tests.contract.views_fixtures",)

T = TypeVar("T")
# The first is where the command line is killed.
SWAP_POINTS: Final = ("replay.recorded", "views.before_swap", "views.after_swap")
_definitions = itertools.count()


@pytest.fixture
async def beside(tmp_path: Path) -> AsyncIterator[ViewsHome]:
    home = ViewsHome(f"{SQLITE_SCHEME}{tmp_path / 'beside.db'}")
    yield home
    await home.close()


class Bench:
    """Runs a property in a thread of its own and its stores on the loop of the test."""

    def __init__(self, live: tuple[ViewsHome, Views], beside: tuple[ViewsHome, Views]) -> None:
        self._homes = live[0], beside[0]
        self._live, self._beside = live[1], beside[1]
        self._loop = asyncio.get_running_loop()

    def of_another_definition(self) -> Callable[[], None]:
        @given(STORIES, STORIES, st.integers(1, 3))
        def check(before: list[Commit], after: list[Commit], cut: int) -> None:
            # The replay goes on to a commit that the live views have not seen.
            story = [*after, *({} for _ in range(max(0, len(before) + 1 - len(after))))]
            self._wait(self._another_definition(Model(before), Model(story), cut))

        return check

    def of_the_same_definition(self) -> Callable[[], None]:
        @given(STORIES, st.data())
        def check(story: list[Commit], data: st.DataObject) -> None:
            model = Model([*story, {}])
            reached = data.draw(st.integers(1, model.last - 1))
            self._wait(self._same_definition(model, reached))

        return check

    async def _another_definition(self, before: Model, after: Model, cut: int) -> None:
        live, beside = self._live, self._beside
        await self._begin(f"definition {next(_definitions)}")
        await live.commit(before.batch(0, before.last))
        middle = min(cut, after.last - 1)
        for start, end in ((0, middle), (middle, after.last)):
            await beside.commit(after.batch(start, end))
        assert await swapped(live, beside, frontier(after.last)) is True
        assert await live.frontier() == frontier(after.last)
        keys = [row.row_key for row in await all_rows(live)]
        rows = await live.read_state("positions", keys)
        found = {row.row_key: (row.received_at, row.values) for row in rows}
        assert found == after.hidden(after.last)
        # The past is as it was, and what differs is one change of each row, at the swap.
        for number in range(before.last + 1):
            assert await live.rows_as_of("positions", at(number)) == before.rows(number)
        assert await live.rows_as_of("positions", at(after.last)) == after.rows(after.last)
        lines = await all_lines(live, 3)
        assert lines[: len(before.lines(0, before.last))] == before.lines(0, before.last)
        old, new = before.rows(before.last), after.rows(after.last)
        differing = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
        at_the_swap = lines[len(before.lines(0, before.last)) :]
        assert [line[0] for line in at_the_swap] == [at(after.last)] * len(differing)
        assert {line[1]: line[3:] for line in at_the_swap} == {
            key: (old.get(key), new.get(key)) for key in differing
        }
        assert await live.read_pipeline_state() == await beside.read_pipeline_state()
        [kept] = await live.old_views()
        assert (kept.view, kept.swapped_at) == ("positions", at(after.last))
        [[count]] = await self._homes[0].sql(f'SELECT count(*) FROM "{kept.table}"')
        assert count == len(old)
        assert await swapped(live, beside, frontier(after.last)) is False
        await live.drop_old([kept])
        assert await live.old_views() == []

    async def _same_definition(self, model: Model, reached: int) -> None:
        live, beside = self._live, self._beside
        await self._begin(None)
        await live.commit(model.batch(0, reached))
        await beside.commit(model.batch(0, reached))
        await beside.commit(model.batch(reached, model.last))
        assert await swapped(live, beside, frontier(model.last)) is True
        assert await live.old_views() == []
        assert await live.fingerprint() == await beside.fingerprint()
        assert await live.read_pipeline_state() == await beside.read_pipeline_state()

    async def _begin(self, definition: str | None) -> None:
        for home in self._homes:
            await home.empty()
        [[live]] = await self._homes[0].sql("SELECT definition_hash FROM views")
        await self._homes[1].sql(f"UPDATE views SET definition_hash = '{definition or live}'")
        for views in (self._live, self._beside):
            await views.declared()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def bench(live: ViewsHome, beside: ViewsHome) -> Bench:
    return Bench(
        (live, await open_with_positions(live)), (beside, await open_with_positions(beside))
    )


async def test_after_a_swap_the_views_are_those_beside_and_the_past_is_as_it_was(
    views_home: ViewsHome, beside: ViewsHome
) -> None:
    check = (await bench(views_home, beside)).of_another_definition()
    await asyncio.to_thread(fewer(5)(check))


async def test_a_swap_of_the_same_definition_is_no_more_than_catching_up(
    views_home: ViewsHome, beside: ViewsHome
) -> None:
    check = (await bench(views_home, beside)).of_the_same_definition()
    await asyncio.to_thread(fewer(5)(check))


def keeps_rows_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing_is_gone(*args: Any) -> AsyncIterator[SwapPart]:
        async for part in differing_rows(*args):
            rows = part.rows
            yield SwapPart(rows=None if rows is None else msgspec.structs.replace(rows, deleted=[]))

    differing_rows = replaying._differing_rows
    monkeypatch.setattr(replaying, "_differing_rows", nothing_is_gone)


def forgets_to_log_new_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    add = replaying._Log.add

    def add_some(log: replaying._Log, change: LoggedChange) -> None:
        if change.op != INSERT:
            add(log, change)

    monkeypatch.setattr(replaying._Log, "add", add_some)


@pytest.mark.parametrize(
    ("plant", "holds"),
    [
        (keeps_rows_that_are_gone, Bench.of_the_same_definition),
        (forgets_to_log_new_rows, Bench.of_another_definition),
    ],
)
async def test_a_swap_with_a_bug_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None],
    holds: Callable[[Bench], Callable[[], None]],
    sqlite_views_home: ViewsHome,
    beside: ViewsHome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    planted = await bench(sqlite_views_home, beside)
    await asyncio.to_thread(assert_catches, holds, planted)


async def both(live: Views, beside: Views) -> Differences:
    async with live.snapshot() as now, beside.snapshot() as anew:
        return await differences(now, anew, limit=1, on_progress=lambda done: None)


async def test_differences_are_counted_by_tenant_with_examples(
    views_home: ViewsHome, beside: ViewsHome
) -> None:
    live, other = await open_with_positions(views_home), await open_with_positions(beside)
    same, gone, new = position("a"), position("b", "eu"), position("c", rank=1)
    was = position("a", "us", quantity=Decimal("1.5"), memory="m")
    now = position("a", "us", quantity=Decimal(2), memory="n")
    await live.commit(batch(None, 1, rows=[writes(same, gone, was, commit=1)]))
    await other.commit(batch(None, 1, rows=[writes(same, new, now, commit=1)]))
    found = await both(live, other)
    [view] = found.views
    assert (view.definition, view.live_rows, view.replayed_rows) == ("same", 3, 3)
    assert (view.rows.added, view.rows.removed, view.rows.changed) == (1, 1, 1)
    by_tenant = {tenant: tally.total for tenant, tally in view.tenants.items()}
    assert by_tenant == {"a": 1, "b": 1, "c": 1}
    [example] = found.examples
    assert (example.key, example.live) == (key_of(was), {"quantity": "1.5"})
    assert example.replayed == {"quantity": "2"}
    assert found.count == 3
    # What is hidden is nobody's business.
    await views_home.sql("UPDATE view_positions SET memory = 'x'")
    assert (await both(live, other)).count == 3


async def test_a_view_with_other_columns_begins_its_log_at_the_swap(
    views_home: ViewsHome, beside: ViewsHome
) -> None:
    live = await open_with_positions(views_home)
    shape = msgspec.structs.replace(
        POSITIONS,
        columns=(*POSITIONS.columns, Column("total", "decimal")),
        definition_hash="with total",
    )
    other = await beside.open()
    await other.declare([shape])
    row = position("a", quantity=Decimal(1))
    await live.commit(
        batch(None, 1, rows=[writes(row, commit=1)], changes=[changes((1, None, row))])
    )
    wide = row | {"total": Decimal(3)}
    await other.commit(batch(None, 2, rows=[writes(wide, commit=2, schema=shape)]))
    found = await both(live, other)
    assert (found.views[0].definition, found.views[0].added_columns) == ("changed", ["total"])
    assert await swapped(live, other, frontier(2))
    assert await live.declared() == [shape]
    [kept] = await live.read_state("positions", [key_of(row)])
    assert kept.values[-1] == Decimal(3)
    assert await live.rows_as_of("positions", at(2)) != {}
    with pytest.raises(ChangesForgotten):
        await live.read_changes("positions", at(1), limit=10)
    # And it goes on from there, also in a process that knew the old columns.
    later = wide | {"total": Decimal(4)}
    assert await live.commit(
        batch(
            2,
            3,
            rows=[writes(later, commit=3, schema=shape)],
            changes=[changes((3, wide, later), schema=shape)],
        )
    )
    page = await live.read_changes("positions", at(2), limit=10)
    assert [change.changed for change in page.changes] == [("total",)]


async def test_who_knew_other_columns_is_told_so_once_and_reads_the_new_ones(
    views_home: ViewsHome, beside: ViewsHome
) -> None:
    live, reader = await open_with_positions(views_home), await views_home.open()
    await live.commit(FIRST)
    columns = [column for column in POSITIONS.columns if column.name != "note"]
    shape = msgspec.structs.replace(POSITIONS, columns=tuple(columns), definition_hash="short")
    assert len(columns) < len(POSITIONS.columns)
    row = {name: value for name, value in LATER.items() if name != "note"}
    other = await beside.open()
    await other.declare([shape])
    await other.commit(batch(None, 2, rows=[writes(row, commit=2, schema=shape)]))
    queries: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: reader.read_rows("positions", RowFilter(), limit=10),
        lambda: reader.select("positions", RowQuery()),
        lambda: reader.rows_as_of("positions", at(2)),
    ]
    for query in queries[:2]:
        await query()
    assert await swapped(live, other, SWAP_END)
    for query in queries:
        reader._schemas = {POSITIONS.name: POSITIONS}
        with pytest.raises(ViewsUnavailable):
            await query()
        assert "note" not in str(await query())
    assert await reader.frontier() == SWAP_END


async def test_views_with_names_as_long_as_may_be_are_swapped(
    views_home: ViewsHome, beside: ViewsHome
) -> None:
    longest = "v" * 47
    assert re.fullmatch(VIEW_NAME_PATTERN, longest)
    assert not re.fullmatch(VIEW_NAME_PATTERN, longest + "v")
    names = (longest, f"{longest}__members", f"{longest}__deleted")
    live, other = await views_home.open(), await beside.open()
    for views, meaning, content in ((live, "first", FIRST), (other, "second", SECOND)):
        await views.declare(
            [
                msgspec.structs.replace(ANOTHER, name=name, definition_hash=meaning)
                for name in (POSITIONS.name, *names)
            ]
        )
        await views.commit(content)
    assert await swapped(live, other, SWAP_END)
    assert {schema.definition_hash for schema in await live.declared()} == {"second"}
    kept = {old.table for old in await live.old_views()}
    assert kept == {f"view_{longest}__v1", "view_positions__v1"}


async def test_lists_of_a_view_that_is_not_replayed_stay(
    views_home: ViewsHome, beside: ViewsHome
) -> None:
    live, other = await views_home.open(), await open_with_positions(beside)
    left = msgspec.structs.replace(POSITIONS, name="left")
    await live.declare([POSITIONS, left])
    kept, wrong = error(1, stage="table left"), error(2, stage="table positions")
    await live.commit(batch(None, 1, errors=[kept, wrong]))
    right = error(3, stage="table positions", commit=2)
    await other.commit(batch(None, 2, errors=[right]))
    found = await both(live, other)
    assert found.left == ["left"]
    assert await swapped(live, other, frontier(2))
    page = await live.read_errors(ErrorFilter(), limit=10)
    assert page.errors == [kept, right]
    assert {schema.name for schema in await live.declared()} == {"left", "positions"}


async def test_nothing_is_written_of_a_swap_that_fails_or_comes_at_the_wrong_place(
    views_home: ViewsHome, beside: ViewsHome
) -> None:
    live = await open_with_positions(views_home)
    await live.commit(FIRST)
    before = await everything(live)
    schema = msgspec.structs.replace(POSITIONS, definition_hash="second")
    fresh = replaying.Rebuilt(schema, keeps_log=True, keeps_old=True)
    swap = Swap("try", frontier(1), frontier(3), [fresh], {})

    async def broken() -> AsyncIterator[SwapPart]:
        yield SwapPart(fresh=writes(LATER, commit=2, schema=fresh.fresh))
        raise ViewsUnavailable("gone", hint="")

    async def nothing() -> AsyncIterator[SwapPart]:
        for part in ():
            yield part

    with pytest.raises(ViewsUnavailable):
        await live.swap(swap, broken())
    with pytest.raises(FrontierGap):
        await live.swap(msgspec.structs.replace(swap, start=frontier(2)), nothing())
    assert await everything(live) == before
    assert await live.old_views() == []
    assert await live.swap(swap, nothing())


async def test_views_of_a_version_that_knew_no_swaps_go_on_and_can_be_swapped(
    views_home: ViewsHome, beside: ViewsHome
) -> None:
    old = await open_with_positions(views_home)
    await old.commit(FIRST)
    before = await everything(old)
    await old.close()
    await views_home.sql(
        "ALTER TABLE views DROP COLUMN swapped_at",
        "DROP TABLE old_views",
        "DELETE FROM schema_migrations WHERE version = 2",
    )
    live, other = await views_home.open(), await beside.open()
    assert await everything(live) == before
    assert await live.old_views() == []
    await live.declare([POSITIONS])
    await other.declare([ANOTHER])
    await other.commit(SECOND)
    assert await swapped(live, other, SWAP_END)
    assert [visible(LATER)] == [row.values for row in await all_rows(live)]


async def test_who_began_to_read_before_a_swap_reads_what_was_there(
    views_home: ViewsHome, beside: ViewsHome
) -> None:
    live, reader = await open_with_positions(views_home), await views_home.open()
    await live.commit(FIRST)
    other = await beside.open()
    await other.declare([ANOTHER])
    await other.commit(SECOND)
    async with reader.snapshot() as now:
        swapping = asyncio.create_task(swapped(live, other, SWAP_END))
        await asyncio.wait([swapping], timeout=1)
        rows = [row.values async for row in now.rows("positions")]
    assert (now.frontier, rows) == (frontier(1), [tuple(OLD.values())])
    assert await swapping
    assert [visible(LATER)] == [row.values for row in await all_rows(reader)]


async def test_views_that_were_not_replayed_up_to_the_swap_take_no_place(
    views_home: ViewsHome, beside: ViewsHome
) -> None:
    live, other = await open_with_positions(views_home), await beside.open()
    await live.commit(FIRST)
    before = await everything(live)
    await other.declare([ANOTHER])
    await other.commit(SECOND)
    with pytest.raises(FrontierGap):
        await swapped(live, other, frontier(3))
    assert await everything(live) == before
    assert await swapped(live, other, SWAP_END)


@pytest.mark.parametrize("point", SWAP_POINTS[1:])
async def test_a_swap_is_there_as_a_whole_or_not_at_all_after_a_kill(
    views_home: ViewsHome, beside: ViewsHome, point: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.contract.views_swapper", views_home.url, beside.url),
        env=os.environ | {"TIDEMARK_CRASH_AT": point},
    )
    assert await process.wait() == -signal.SIGKILL
    live, other = await views_home.open(), await beside.open()
    arrived = point == "views.after_swap"
    assert await live.frontier() == (SWAP_END if arrived else frontier(1))
    assert await swapped(live, other, SWAP_END) is not arrived
    assert [visible(LATER)] == [row.values for row in await all_rows(live)]
    assert len(await live.old_views()) == 1
    page = await live.read_adjustments(AdjustmentFilter(), limit=10)
    assert page.adjustments == list(SECOND.adjustments)
