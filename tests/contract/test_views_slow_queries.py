"""A query that takes long keeps nobody else waiting, and is ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import asyncpg
import pytest

from tests.contract.views_home import POSITIONS, Views, ViewsHome, frontier, insertion, position
from tidemark.live.filters import parse_filter, row_query
from tidemark.pipeline.output.errors import QueryTooSlow
from tidemark.views import matching, postgres, postgres_connection, querying
from tidemark.views.port import RowQuery
from tidemark.views.postgres import PostgresViews
from tidemark.views.querying import QUERIES_AT_ONCE
from tidemark.views.reading import ViewsReader
from tidemark.views.sqlite import SqliteViews

pytest_plugins = ("tests.contract.views_fixtures",)

# Minutes, if nobody ends them.
FOR_EVER: Final = {
    "sqlite": "(WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted"
    " WHERE n < 10000000000) SELECT count(*) FROM counted) > 0",
    "postgres": "(SELECT count(*) FROM (SELECT pg_sleep(600)) AS slept) > 0",
}


def endless(views: Views) -> RowQuery:
    return RowQuery((FOR_EVER[views.dialect], ()))


async def filled(home: ViewsHome) -> Views:
    views = await home.open()
    await views.declare([POSITIONS])
    await views.commit(insertion(position("a"), position("b")))
    return views


async def ended(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_log_is_read_beside_any_number_of_slow_queries(views_home: ViewsHome) -> None:
    views = await filled(views_home)
    condition = endless(views).condition
    tasks: list[asyncio.Task[Any]] = []
    for _ in range(QUERIES_AT_ONCE):
        tasks.append(asyncio.create_task(views.select("positions", endless(views))))
        counting = views.aggregate("positions", condition, [("count", "*")])
        tasks.append(asyncio.create_task(counting))
    await asyncio.sleep(0.3)
    async with asyncio.timeout(10):
        assert await views.frontier() == frontier(1)
        assert len((await views.read_changes("positions", 0, limit=10)).changes) == 2
        assert await views.commit(insertion(position("c"), commit=2))
    assert not any(task.done() for task in tasks)
    await ended(tasks)


async def test_a_query_that_takes_too_long_is_ended_and_the_next_is_answered(
    views_home: ViewsHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(querying, "QUERY_WITHIN_S", 0.3)
    views = await filled(views_home)
    for ask in (
        lambda: views.select("positions", endless(views)),
        lambda: views.aggregate("positions", endless(views).condition, [("count", "*")]),
    ):
        begun = time.monotonic()
        with pytest.raises(QueryTooSlow) as caught:
            await ask()
        assert 0.2 < time.monotonic() - begun < 10
        assert caught.value.code == "query_too_slow"
        assert "where" in caught.value.hint
    for _ in range(QUERIES_AT_ONCE + 1):
        assert len((await views.select("positions", RowQuery())).rows) == 2


async def test_who_does_not_wait_any_more_leaves_no_query_behind(views_home: ViewsHome) -> None:
    views = await filled(views_home)
    for _ in range(2):
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(views.select("positions", endless(views)))
            for _ in range(2 * QUERIES_AT_ONCE)
        ]
        await asyncio.sleep(0.3)
        await ended(tasks)
        async with asyncio.timeout(10):
            asked = (views.select("positions", RowQuery()) for _ in range(QUERIES_AT_ONCE))
            for found in await asyncio.gather(*asked):
                assert len(found.rows) == 2


async def test_a_store_is_closed_without_waiting_for_a_query(sqlite_views_home: ViewsHome) -> None:
    views = await filled(sqlite_views_home)
    asking = asyncio.create_task(views.select("positions", endless(views)))
    await asyncio.sleep(0.2)
    async with asyncio.timeout(10):
        await views.close()
        await asyncio.gather(asking, return_exceptions=True)


async def test_rows_are_read_while_the_event_loop_does_other_things(
    views_home: ViewsHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = await filled(views_home)
    rows = [position(f"tenant-{number}") for number in range(2_000)]
    await views.commit(insertion(*rows, commit=2))
    on_the_loop: list[bool] = []
    read: Callable[..., Any] = ViewsReader._rows

    def watched(self: ViewsReader, *arguments: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            on_the_loop.append(False)
        else:
            on_the_loop.append(True)
        return read(self, *arguments)

    kind = SqliteViews if views.dialect == "sqlite" else PostgresViews
    monkeypatch.setattr(kind, "_rows", watched)
    assert len((await views.select("positions", RowQuery())).rows) == 2_002
    assert on_the_loop == [False]


async def test_a_pattern_is_compiled_once_for_all_rows(
    sqlite_views_home: ViewsHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = await filled(sqlite_views_home)
    rows = [position(f"tenant-{number}") for number in range(300)]
    await views.commit(insertion(*rows, commit=2))
    compiled: list[str] = []
    really = matching.re2.compile

    def counting(pattern: str, options: Any) -> Any:
        compiled.append(pattern)
        return really(pattern, options)

    monkeypatch.setattr(matching.re2, "compile", counting)

    def query(name: str) -> RowQuery:
        patterns = [{"tenant_id": {"_regex": f"{name}{number}+"}} for number in range(200)]
        wanted = parse_filter(POSITIONS, {"_or": patterns})
        return row_query(POSITIONS, wanted, views.dialect)

    queries = query("one"), query("two")
    compiled.clear()
    found = await asyncio.gather(*(views.select("positions", query) for query in queries))
    assert [len(answer.rows) for answer in found] == [0, 0]
    assert len(compiled) <= 400


async def test_a_log_may_take_longer_to_compact_than_any_other_command(
    postgres_views_home: ViewsHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        postgres_connection, "pool_of", partial(postgres_connection.pool_of, within_s=1.0)
    )
    views = await postgres_views_home.open()
    await views.declare([POSITIONS])
    reader = await asyncpg.connect(postgres_views_home.url)
    async with reader.transaction():
        await reader.execute(f"LOCK TABLE {postgres.SCHEMA}.view_changes IN ACCESS SHARE MODE")
        compacting = asyncio.create_task(views.compact())
        done, _ = await asyncio.wait([compacting], timeout=1.5)
        assert not done
    await reader.close()
    await compacting
