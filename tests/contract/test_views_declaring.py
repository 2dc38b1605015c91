"""What a view may be, how its table comes about, and that its meaning cannot change unnoticed."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import msgspec
import pytest

from tests.contract.views_home import (
    POSITIONS,
    Views,
    ViewsHome,
    at,
    batch,
    changes,
    frontier,
    insertion,
    position,
    writes,
)
from tidemark.errors import SchemaMismatch
from tidemark.pipeline.output.errors import (
    BatchRefused,
    ChangesForgotten,
    DefinitionChanged,
    InvalidView,
    UnknownView,
)
from tidemark.pipeline.output.schema import Column, ViewSchema
from tidemark.views.port import RowFilter

pytest_plugins = ("tests.contract.views_fixtures",)

COLUMNS = (Column("id", "string"), Column("n", "int"))


def view(name: str = "trades", **fields: Any) -> ViewSchema:
    values: dict[str, Any] = {"columns": COLUMNS, "key": ("id",), "definition_hash": "one"}
    return ViewSchema(name, **(values | fields))


async def test_a_declared_view_has_a_table_with_a_column_of_its_type_for_each_of_its_columns(
    views_home: ViewsHome,
) -> None:
    views = await views_home.open()
    await views.declare([POSITIONS])
    if views_home.kind == "sqlite":
        rows = await views_home.sql("SELECT name, type FROM pragma_table_info('view_positions')")
        expected = {"quantity": "TEXT", "since": "INTEGER", "open": "INTEGER", "memory": "TEXT"}
    else:
        rows = await views_home.sql(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_name = 'view_positions'"
        )
        expected = {"quantity": "numeric", "since": "bigint", "open": "boolean", "memory": "text"}
    types = dict(rows)
    assert set(types) == {
        "row_key",
        "row_received_at",
        *(column.name for column in POSITIONS.columns),
    }
    assert {name: types[name] for name in expected} == expected


async def test_a_view_may_be_declared_again_and_stays_what_it_was(views_home: ViewsHome) -> None:
    views = await views_home.open()
    await views.declare([POSITIONS, view()])
    await views.commit(insertion(position()))
    await views.declare([view(), POSITIONS])
    assert await views.declared() == [POSITIONS, view()]
    other = await views_home.reopen()
    assert await other.declared() == [POSITIONS, view()]
    assert len((await other.read_rows("positions", RowFilter(), limit=9)).rows) == 1


async def test_a_changed_definition_is_refused_by_name_and_changes_nothing(
    views_home: ViewsHome,
) -> None:
    views = await views_home.open()
    await views.declare([view()])
    for changed in (
        view(definition_hash="two"),
        view(columns=(*COLUMNS, Column("m", "int"))),
        view(key=("id", "n")),
    ):
        with pytest.raises(DefinitionChanged, match="trades") as caught:
            await views.declare([view("another"), changed])
        assert caught.value.code == "definition_changed"
        assert caught.value.hint
        assert pickle.loads(pickle.dumps(caught.value)).as_dict() == caught.value.as_dict()
        assert await views.declared() == [view()]
    with pytest.raises(UnknownView):
        await views.read_rows("another", RowFilter(), limit=1)


async def test_processes_that_declare_the_same_views_at_once_do_not_disturb_each_other(
    views_home: ViewsHome,
) -> None:
    stores = [await views_home.open() for _ in range(3)]
    await asyncio.gather(*(store.declare([POSITIONS, view()]) for store in stores))
    assert await stores[0].declared() == [POSITIONS, view()]


async def test_names_that_differ_by_case_only_are_refused(views_home: ViewsHome) -> None:
    views = await views_home.open()
    await views.declare([view("trades")])
    with pytest.raises(InvalidView, match="trades already"):
        await views.declare([view("Trades")])
    with pytest.raises(InvalidView, match="already"):
        await views.declare([view("a"), view("A")])
    assert [schema.name for schema in await views.declared()] == ["trades"]


@pytest.mark.parametrize(
    ("fault", "fields"),
    [
        ("name", {"name": "no spaces"}),
        ("name", {"name": "x" * 59}),
        ("name", {"name": "changes"}),
        ("a;b", {"columns": (*COLUMNS, Column("a;b", "int"))}),
        ("row_key", {"columns": (*COLUMNS, Column("row_key", "int"))}),
        ("Row_Received_At", {"columns": (*COLUMNS, Column("Row_Received_At", "int"))}),
        ("ID", {"columns": (*COLUMNS, Column("ID", "int"))}),
        ("side", {"columns": (*COLUMNS, Column("side", "enum"))}),
        ("n", {"columns": (COLUMNS[0], Column("n", "int", values=("1",)))}),
        ("key", {"key": ()}),
        ("key", {"key": ("id", "id")}),
        ("m", {"key": ("m",)}),
        (
            "secret",
            {"columns": (*COLUMNS, Column("secret", "int", hidden=True)), "key": ("secret",)},
        ),
    ],
)
def test_a_view_that_no_store_could_keep_is_refused_when_it_is_made(
    fault: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidView) as caught:
        view(**fields)
    assert caught.value.field == fault


async def test_any_word_may_be_the_name_of_a_view_and_of_a_column(views_home: ViewsHome) -> None:
    views = await views_home.open()
    words = ("order", "SELECT", "group", "user", "row", "view", "excluded", "rowid")
    schemas = [view(word, columns=(Column(word, "string"),), key=(word,)) for word in words]
    await views.declare(schemas)
    await views.commit(
        batch(
            None,
            1,
            rows=[writes({s.name: "it"}, commit=1, schema=s) for s in schemas],
            changes=[changes((1, None, {s.name: "it"}), schema=s) for s in schemas],
        )
    )
    for word in words:
        page = await views.read_rows(word, RowFilter(equal={word: "it"}), limit=1)
        assert page.columns == (word,)
        assert [row.values for row in page.rows] == [("it",)]
        assert await views.rows_as_of(word, at(1)) == {'["it"]': ("it",)}


async def test_an_unknown_view_is_an_error_that_names_those_there_are(views: Views) -> None:
    with pytest.raises(UnknownView, match="nothing") as caught:
        await views.read_changes("nothing", 0, limit=1)
    assert "positions" in caught.value.hint
    with pytest.raises(UnknownView):
        await views.commit(
            batch(None, 1, rows=[writes({"id": "a", "n": 1}, commit=1, schema=view())])
        )
    assert await views.frontier() is None


async def test_a_view_that_another_process_declares_later_is_found(views_home: ViewsHome) -> None:
    reader = await views_home.open()
    with pytest.raises(UnknownView):
        await reader.read_rows("trades", RowFilter(), limit=1)
    await (await views_home.open()).declare([view()])
    assert (await reader.read_rows("trades", RowFilter(), limit=1)).rows == []


async def test_a_view_without_a_log_has_rows_and_no_past(views_home: ViewsHome) -> None:
    views = await views_home.open()
    silent = msgspec.structs.replace(POSITIONS, logged=False)
    await views.declare([silent])
    with pytest.raises(BatchRefused, match="without a log"):
        await views.commit(insertion(position()))
    await views.commit(batch(None, 1, rows=[writes(position(), commit=1)]))
    await views.commit(batch(1, 2))
    assert len(await views.rows_as_of("positions", at(2))) == 1
    for ask in (views.rows_as_of("positions", at(1)), views.read_changes("positions", 0, limit=1)):
        with pytest.raises(ChangesForgotten, match="positions"):
            await ask
    await views.declare([POSITIONS])
    await views.commit(batch(2, 3))
    assert len(await views.rows_as_of("positions", at(2))) == 1
    with pytest.raises(ChangesForgotten):
        await views.rows_as_of("positions", at(1))


async def test_a_view_that_comes_later_has_no_past_before_it(views: Views) -> None:
    await views.commit(insertion(position()))
    await views.declare([view()])
    await views.commit(batch(1, 2))
    assert await views.rows_as_of("trades", at(1)) == {}
    with pytest.raises(ChangesForgotten):
        await views.rows_as_of("trades", at(1) - 1)
    assert await views.frontier() == frontier(2)


async def test_migrations_run_once_even_if_several_processes_start_together(
    views_home: ViewsHome,
) -> None:
    assert [migration.version for migration in await views_home.migrate(dry_run=True)] == [1, 2]
    ran = await asyncio.gather(*(views_home.migrate() for _ in range(3)))
    assert sorted(len(migrations) for migrations in ran) == [0, 0, 2]
    assert await views_home.migrate(dry_run=True) == []


async def test_a_schema_of_a_newer_version_is_refused(views_home: ViewsHome) -> None:
    await views_home.migrate()
    await views_home.sql("INSERT INTO schema_migrations VALUES (9999, '9999_later.sql')")
    with pytest.raises(SchemaMismatch, match="views"):
        await views_home.open()
