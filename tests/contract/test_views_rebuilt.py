"""Views that were removed and built anew are seen by whoever had them open before."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.contract.views_home import (
    POSITIONS,
    Views,
    ViewsHome,
    all_rows,
    batch,
    changes,
    frontier,
    insertion,
    position,
    writes,
)
from tidemark.pipeline.output.errors import UnknownView, ViewsUnavailable
from tidemark.pipeline.output.schema import Column, ViewSchema
from tidemark.views.port import RowQuery
from tidemark.views.postgres import SCHEMA

pytest_plugins = ("tests.contract.views_fixtures",)

# Not one column is the same, and one has the same name.
OTHER: Final = ViewSchema(
    name="positions",
    columns=(Column("tenant_id", "string"), Column("quantity", "string"), Column("new", "int")),
    key=("tenant_id",),
    definition_hash="second",
)


async def remove(home: ViewsHome, *, beside: bool = True) -> None:
    """As the guide says: the file or the schema."""
    if home.kind == "postgres":
        await home.sql(f"DROP SCHEMA {SCHEMA} CASCADE")
        return
    for suffix in ("", "-wal", "-shm") if beside else ("",):
        os.unlink(f"{home.place}{suffix}")


async def build_anew(home: ViewsHome, commits: int = 1) -> Views:
    views = await home.open()
    await views.declare([OTHER])
    for number in range(1, commits + 1):
        row = {"tenant_id": f"new-{number}", "quantity": "many", "new": number}
        assert await views.commit(
            batch(
                None if number == 1 else number - 1,
                number,
                rows=[writes(row, commit=number, schema=OTHER)],
                changes=[changes((number, None, row), schema=OTHER)],
            )
        )
    return views


async def use(views: Views) -> None:
    """Everything that would be remembered is."""
    await views.commit(insertion(position("old"), position("older")))
    await views.commit(insertion(position("oldest"), commit=2))
    assert len(await all_rows(views)) == 3
    assert len((await views.select("positions", RowQuery())).rows) == 3
    await views.aggregate("positions", ("true", ()), [("max", "quantity")])
    await views.read_changes("positions", 0, limit=10)
    assert await views.frontier() == frontier(2)


async def assert_is_new(views: Views) -> None:
    assert await views.frontier() == frontier(1)
    assert await views.declared() == [OTHER]
    found = await views.select("positions", RowQuery())
    assert found.columns == ("tenant_id", "quantity", "new")
    assert [row.values for row in found.rows] == [("new-1", "many", 1)]
    # The statement is the same as before, the type of its answer is not.
    answer, _ = await views.aggregate("positions", ("true", ()), [("max", "quantity")])
    assert answer == ["many"]
    page = await views.read_changes("positions", 0, limit=10)
    assert [change.changed for change in page.changes] == [("tenant_id", "quantity", "new")]
    assert [row.values for row in await all_rows(views)] == [("new-1", "many", 1)]


@pytest.mark.parametrize("beside", [True, False])
async def test_a_store_that_is_open_shows_the_views_that_were_built_anew(
    views_home: ViewsHome, beside: bool
) -> None:
    views = await views_home.open()
    await views.declare([POSITIONS])
    await use(views)
    await remove(views_home, beside=beside)
    with pytest.raises(ViewsUnavailable):
        await views.frontier()
    await build_anew(views_home)
    await assert_is_new(views)


async def test_what_was_written_before_the_file_was_noticed_is_not_lost(
    sqlite_views_home: ViewsHome,
) -> None:
    views = await sqlite_views_home.open()
    await views.declare([POSITIONS])
    await use(views)
    await remove(sqlite_views_home, beside=False)
    other = await build_anew(sqlite_views_home, commits=3)
    # The old connections are closed while the new ones are in use.
    assert await views.frontier() == frontier(3)
    await views.close()
    row = {"tenant_id": "new-4", "quantity": "many", "new": 4}
    await other.commit(batch(3, 4, rows=[writes(row, commit=4, schema=OTHER)]))
    third = await sqlite_views_home.open()
    assert await third.frontier() == frontier(4)
    assert len(await all_rows(third)) == 4
    assert await sqlite_views_home.sql("PRAGMA integrity_check") == [("ok",)]


async def test_queries_go_by_the_file_that_is_there(sqlite_views_home: ViewsHome) -> None:
    views = await sqlite_views_home.open()
    await views.declare([POSITIONS])
    await use(views)
    await remove(sqlite_views_home)
    await build_anew(sqlite_views_home)
    # Nobody has asked what is declared.
    found = await views.select("positions", RowQuery())
    assert found.columns == ("tenant_id", "quantity", "new")


async def test_a_store_that_is_open_writes_to_the_file_that_is_there(
    sqlite_views_home: ViewsHome,
) -> None:
    views = await sqlite_views_home.open()
    await views.declare([POSITIONS])
    await use(views)
    await remove(sqlite_views_home)
    with pytest.raises(ViewsUnavailable, match="gone") as caught:
        await views.declare([OTHER])
    assert "pipeline" in caught.value.hint
    other = await build_anew(sqlite_views_home)
    row = {"tenant_id": "new-2", "quantity": "many", "new": 2}
    assert await views.commit(batch(1, 2, rows=[writes(row, commit=2, schema=OTHER)]))
    assert len(await all_rows(other)) == 2


async def test_a_file_that_is_gone_is_not_made_by_reading_it(sqlite_views_home: ViewsHome) -> None:
    views = await sqlite_views_home.open()
    assert await views.frontier() is None
    await remove(sqlite_views_home)
    for ask in (views.frontier(), views.declared(), views.select("positions", RowQuery())):
        with pytest.raises(ViewsUnavailable):
            await ask
    with pytest.raises(ViewsUnavailable):
        async with views.snapshot():
            pass
    assert not sqlite_views_home.place.exists()


async def test_a_view_that_is_not_among_the_new_ones_is_unknown(views_home: ViewsHome) -> None:
    views = await views_home.open()
    await views.declare([POSITIONS])
    await use(views)
    await remove(views_home)
    other = await views_home.open()
    others = ViewSchema("others", (Column("name", "string"),), ("name",), "others-1")
    await other.declare([others])
    await other.commit(batch(None, 3, rows=[]))
    with pytest.raises(UnknownView):
        await views.read_changes("positions", 0, limit=10)
    await views.declared()
    with pytest.raises(UnknownView):
        await views.select("positions", RowQuery())
