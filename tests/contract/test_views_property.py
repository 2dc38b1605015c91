"""Any story, cut into batches in any way, leaves a store equal to a plain dictionary."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.views_home import POSITIONS, Views, ViewsHome, all_rows, at, frontier
from tests.contract.views_model import STORIES, Commit, Line, Model
from tests.unit.planted import assert_catches
from tidemark.pipeline.output.batch import Frontier, ViewBatch
from tidemark.pipeline.output.encoding import decode_row
from tidemark.pipeline.output.errors import FrontierGap
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import Value
from tidemark.views import sqlite
from tidemark.views.port import ChangePage, RowFilter, RowPage
from tidemark.views.sqlite import SqliteViews

pytest_plugins = ("tests.contract.views_fixtures",)

T = TypeVar("T")
Check = Callable[[], None]
Attempts = Sequence[tuple[int, int]]

ATTEMPTS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)), max_size=5)


async def assert_equals_the_model(
    views: Views, story: list[Commit], attempts: Attempts, limit: int
) -> str:
    model = Model(story)
    current = 0
    for start, end in [*attempts, (None, model.last)]:
        start = current if start is None else start
        if not start < end <= model.last:
            continue
        outcome = await attempt(views, model.batch(start, end))
        assert outcome == model.outcome(current, start, end)
        if outcome == "applied":
            current = end
            assert await views.frontier() == frontier(current)
        await assert_rows(views, model, current)
    for number in range(model.last + 1):
        assert await views.rows_as_of("positions", at(number)) == model.rows(number)
    assert await all_lines(views, limit) == model.lines(0, model.last)
    assert (await views.read_pipeline_state())["commit"] == str(model.last).encode()
    return await views.fingerprint()


async def attempt(views: Views, work: ViewBatch) -> str:
    try:
        return "applied" if await views.commit(work) else "skipped"
    except FrontierGap:
        return "gap"


async def assert_rows(views: Views, model: Model, current: int) -> None:
    assert {row.row_key: row.values for row in await all_rows(views)} == model.rows(current)
    keys = {key for number in range(model.last + 1) for key in model.rows(number)}
    found = await views.read_state("positions", sorted(keys))
    assert {row.row_key: (row.received_at, row.values) for row in found} == model.hidden(current)


async def all_lines(views: Views, limit: int) -> list[Line]:
    """The log, page by page, each of whole commits."""
    lines: list[Line] = []
    position = 0
    while True:
        page = await views.read_changes("positions", position, limit=limit)
        for change in page.changes:
            assert position < change.received_at <= page.scanned_to
            old, new = (
                None if text is None else decode_row(POSITIONS, text)
                for text in (change.old_row, change.row)
            )
            if old is not None and new is not None:
                differ = [
                    i for i, pair in enumerate(zip(old, new, strict=True)) if len({*pair}) > 1
                ]
                assert change.changed == tuple(POSITIONS.visible[i].name for i in differ)
            lines.append((change.received_at, change.row_key, change.op, old, new))
        position = page.scanned_to
        if page.complete:
            return lines


class Bench:
    """Runs a property in a thread of its own and its stores on the loop of the test."""

    def __init__(self, home: ViewsHome) -> None:
        self._home = home
        self._loop = asyncio.get_running_loop()

    def holds(self, views: Views) -> Check:
        @given(STORIES, ATTEMPTS, st.integers(1, 5))
        def check(story: list[Commit], attempts: Attempts, limit: int) -> None:
            self._wait(self._home.empty())
            self._wait(assert_equals_the_model(views, story, attempts, limit))

        return check

    def independent(self, views: Views, other: tuple[ViewsHome, Views]) -> Check:
        """However it was cut, and in whatever store, one story has one fingerprint."""

        @given(STORIES, ATTEMPTS)
        def check(story: list[Commit], attempts: Attempts) -> None:
            self._wait(self._home.empty())
            cut = self._wait(assert_equals_the_model(views, story, attempts, 3))
            self._wait(other[0].empty())
            whole = self._wait(assert_equals_the_model(other[1], story, [], 3))
            assert cut == whole

        return check

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def fewer(share: int) -> settings:
    """Each case writes to a disk several times."""
    assert settings.default is not None
    return settings(max_examples=max(1, settings.default.max_examples // share))


async def open_with_positions(home: ViewsHome) -> Views:
    views = await home.open()
    await views.declare([POSITIONS])
    return views


async def test_any_story_leaves_a_store_equal_to_a_dictionary(views_home: ViewsHome) -> None:
    views = await open_with_positions(views_home)
    await asyncio.to_thread(fewer(4)(Bench(views_home).holds(views)))


async def test_a_story_has_one_fingerprint_however_it_is_cut_and_wherever_it_is_kept(
    sqlite_views_home: ViewsHome, postgres_views_home: ViewsHome
) -> None:
    here = await open_with_positions(sqlite_views_home)
    there = await open_with_positions(postgres_views_home)
    check = Bench(sqlite_views_home).independent(here, (postgres_views_home, there))
    await asyncio.to_thread(fewer(8)(check))


class ForgetsDeletes(SqliteViews):
    async def commit(self, batch: ViewBatch) -> bool:
        rows = [msgspec.structs.replace(writes, deleted=()) for writes in batch.rows]
        return await super().commit(msgspec.structs.replace(batch, rows=rows))


class UndoesTheLastChangeOnly(SqliteViews):
    async def rows_as_of(self, view: str, received_at: int) -> dict[str, tuple[Value, ...]]:
        rows = {row.row_key: row.values for row in await all_rows(self)}
        page = await self.read_changes(view, received_at, limit=1_000)
        for change in page.changes:
            if change.old_row is None:
                rows.pop(change.row_key, None)
            else:
                rows[change.row_key] = decode_row(POSITIONS, change.old_row)
        return dict(sorted(rows.items()))


class UndoesTheCommitItself(SqliteViews):
    async def rows_as_of(self, view: str, received_at: int) -> dict[str, tuple[Value, ...]]:
        return await super().rows_as_of(view, received_at - 1)


class CutsACommitInTwo(SqliteViews):
    async def read_changes(
        self, view: str, after_received_at: int, up_to: int | None = None, *, limit: int
    ) -> ChangePage:
        page = await super().read_changes(view, after_received_at, up_to, limit=limit)
        return msgspec.structs.replace(page, changes=page.changes[:limit])


class ShowsWhatIsHidden(SqliteViews):
    async def read_rows(
        self, view: str, row_filter: RowFilter, *, after: str | None = None, limit: int
    ) -> RowPage:
        page = await super().read_rows(view, row_filter, after=after, limit=limit)
        rows = await self.read_state(view, [row.row_key for row in page.rows])
        return msgspec.structs.replace(page, rows=rows)


class RoundsDecimals(SqliteViews):
    async def read_state(self, view: str, row_keys: Sequence[str]) -> list[ViewRow]:
        def rounded(value: Value) -> Value:
            return value if value is None or isinstance(value, (str, int)) else value + 0

        return [
            msgspec.structs.replace(row, values=tuple(map(rounded, row.values)))
            for row in await super().read_state(view, row_keys)
        ]


def always(frontier: Frontier | None, batch: ViewBatch) -> bool:
    return True


def never_complains(frontier: Frontier | None, batch: ViewBatch) -> bool:
    return frontier == batch.start


def goes_on_from_the_middle(frontier: Frontier | None, batch: ViewBatch) -> bool:
    return frontier is None or batch.end.received_at > frontier.received_at


@pytest.mark.parametrize(
    "broken",
    [
        ForgetsDeletes,
        UndoesTheLastChangeOnly,
        UndoesTheCommitItself,
        CutsACommitInTwo,
        ShowsWhatIsHidden,
        RoundsDecimals,
        always,
        never_complains,
        goes_on_from_the_middle,
    ],
)
async def test_a_store_with_a_bug_is_caught(
    sqlite_views_home: ViewsHome, monkeypatch: pytest.MonkeyPatch, broken: Any
) -> None:
    kind: Any = broken
    if not isinstance(broken, type):
        kind = SqliteViews
        monkeypatch.setattr(sqlite, "is_next", broken)
    views = await kind.open(sqlite_views_home.place)
    try:
        await views.declare([POSITIONS])
        await asyncio.to_thread(assert_catches, Bench(sqlite_views_home).holds, views)
    finally:
        await views.close()
