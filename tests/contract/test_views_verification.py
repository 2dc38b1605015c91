"""Live views held against the same made anew: each fault is found, and named, in both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from tests.contract.views_home import (
    POSITIONS,
    SQLITE_SCHEME,
    Views,
    ViewsHome,
    adjustment,
    at,
    batch,
    changes,
    error,
    key_of,
    position,
    writes,
)
from tidemark.ops.verification import Verification, compare, require_same_definitions
from tidemark.pipeline.output.batch import ViewBatch
from tidemark.pipeline.output.errors import DefinitionChanged
from tidemark.views.snapshot import Snapshot

pytest_plugins = ("tests.contract.views_fixtures",)

OLD = position("a", quantity=Decimal("1.5"), note='{"x":1}', open=True, since=at(1))
NEW = position("a", quantity=Decimal("2"), note='{"x":1}', open=True, since=at(1), memory="m")
OTHER = position("b", quantity=Decimal("7"), side="buy")
KEY = key_of(NEW)


def content() -> ViewBatch:
    return batch(
        None,
        3,
        rows=[writes(NEW, OTHER, commit=2)],
        changes=[changes((1, None, OLD), (1, None, OTHER), (2, OLD, NEW))],
        adjustments=[adjustment(1, view="positions"), adjustment(2, view="positions")],
        errors=[error(3, stage="table positions")],
    )


@pytest.fixture
async def recomputed(tmp_path: Path) -> AsyncIterator[Views]:
    home = ViewsHome(f"{SQLITE_SCHEME}{tmp_path / 'recomputed.db'}")
    opened = await home.open()
    await opened.declare([POSITIONS])
    await opened.commit(content())
    yield opened
    await home.close()


@pytest.fixture
async def live(views: Views) -> Views:
    await views.commit(content())
    return views


async def verified(live: Views, recomputed: Views, limit: int = 10) -> Verification:
    async with live.snapshot() as now, recomputed.snapshot() as anew:
        require_same_definitions(now.views, anew.views)
        return await compare(now, anew, limit=limit, on_progress=lambda done: None)


def named(found: Verification) -> list[tuple[object, ...]]:
    return [
        (each.part, each.view, each.key, each.column, each.live, each.recomputed)
        for each in found.differences
    ]


async def test_views_of_the_same_content_do_not_differ(live: Views, recomputed: Views) -> None:
    found = await verified(live, recomputed)
    assert (found.difference_count, found.differences, found.unchecked) == (0, [], [])
    counts = {part.part: (part.live_count, part.recomputed_count) for part in found.compared}
    assert counts == {"rows": (2, 2), "changes": (3, 3), "adjustments": (2, 2), "errors": (1, 1)}
    assert all(part.live_hash == part.recomputed_hash for part in found.compared)


@pytest.mark.parametrize(
    ("column", "value", "difference"),
    [
        ("quantity", "1.9", ("1.9", "2")),
        ("memory", "'n'", ("n", "m")),
        ("note", "NULL", (None, '{"x":1}')),
        ("row_received_at", str(at(3)), None),
    ],
)
async def test_a_tampered_row_is_named_by_key_and_column_hidden_ones_too(
    live: Views,
    recomputed: Views,
    views_home: ViewsHome,
    column: str,
    value: str,
    difference: tuple[object, object] | None,
) -> None:
    if column == "quantity" and views_home.kind == "sqlite":
        from tidemark.views.sortable import to_sortable

        value = f"'{to_sortable(Decimal(value))}'"
    where = f"WHERE row_key = '{KEY}'"
    await views_home.sql(f"UPDATE view_positions SET {column} = {value} {where}")
    found = await verified(live, recomputed)
    [(part, view, key, named_column, now, anew)] = named(found)
    assert (part, view, key) == ("rows", "positions", [KEY])
    if difference is None:
        assert named_column == "source_timestamp"
        assert str(now) > str(anew)
    else:
        assert (named_column, now, anew) == (column, *difference)
    [rows] = [part for part in found.compared if part.part == "rows"]
    assert rows.live_hash != rows.recomputed_hash


@pytest.mark.parametrize(
    ("statement", "part", "key", "column", "is_live"),
    [
        (f"DELETE FROM view_positions WHERE row_key = '{KEY}'", "rows", [KEY], None, False),
        (
            "INSERT INTO view_positions (row_key, row_received_at) VALUES ('[\"c\",null]', 1)",
            "rows",
            ['["c",null]'],
            None,
            True,
        ),
        (
            f"UPDATE view_changes SET old_row = '{{}}' WHERE op = 'update' AND row_key = '{KEY}'",
            "changes",
            [at(2), KEY],
            "old_row",
            True,
        ),
        (
            "DELETE FROM view_changes WHERE op = 'update'",
            "changes",
            [at(2), KEY],
            None,
            False,
        ),
        (
            f"INSERT INTO view_changes VALUES ('positions', {at(3)}, 'k', 'insert', NULL, '{{}}',"
            " NULL)",
            "changes",
            [at(3), "k"],
            None,
            True,
        ),
        (
            f"INSERT INTO view_changes SELECT * FROM view_changes WHERE received_at = {at(2)}",
            "changes",
            [at(2), KEY],
            None,
            True,
        ),
        (
            "DELETE FROM adjustments WHERE ingress_sequence = 1",
            "adjustments",
            [1, "positions", 0],
            None,
            False,
        ),
        (
            "UPDATE adjustments SET reason = 'closed' WHERE ingress_sequence = 2",
            "adjustments",
            [2, "positions", 0],
            "reason",
            True,
        ),
        ("DELETE FROM pipeline_errors", "errors", [3, "table positions"], None, False),
    ],
)
async def test_what_is_missing_too_much_or_changed_is_named(
    live: Views,
    recomputed: Views,
    views_home: ViewsHome,
    statement: str,
    part: str,
    key: list[object],
    column: str | None,
    is_live: bool,
) -> None:
    await views_home.sql(statement)
    found = await verified(live, recomputed)
    [difference] = found.differences
    assert (difference.part, difference.key, difference.column) == (part, key, column)
    assert (difference.live is not None) == is_live
    if column is None:
        assert (difference.recomputed is None) == is_live


async def test_changes_that_the_live_log_has_forgotten_are_not_missed(
    live: Views, recomputed: Views
) -> None:
    await live.prune_changes(at(2))
    found = await verified(live, recomputed)
    [log] = [part for part in found.compared if part.part == "changes"]
    assert (found.difference_count, log.live_count, log.recomputed_count) == (0, 1, 1)


async def test_all_differences_are_counted_and_the_first_are_kept(
    live: Views, recomputed: Views, views_home: ViewsHome
) -> None:
    await views_home.sql("UPDATE view_positions SET rank = 5, trades = 6")
    found = await verified(live, recomputed, limit=3)
    assert (found.difference_count, len(found.differences)) == (4, 3)


async def test_views_that_are_not_configured_any_more_are_named_and_left_alone(
    live: Views, recomputed: Views, views_home: ViewsHome
) -> None:
    await live.declare([msgspec.structs.replace(POSITIONS, name="gone")])
    await views_home.sql(
        "INSERT INTO adjustments SELECT 9, 'gone', part, received_at, tenant_id, metric,"
        " customer_ref, group_values, period_start, amount, reason, idempotency_key, NULL, NULL"
        " FROM adjustments WHERE ingress_sequence = 1",
        "INSERT INTO pipeline_errors SELECT 9, 'table gone', received_at, code, message, tenant_id,"
        " stream, idempotency_key FROM pipeline_errors",
    )
    found = await verified(live, recomputed)
    assert (found.unchecked, found.difference_count) == (["gone"], 0)


async def test_another_definition_is_refused_because_everything_would_differ(
    live: Views, recomputed: Views
) -> None:
    async with live.snapshot() as now, recomputed.snapshot() as anew:
        changed = {
            name: msgspec.structs.replace(
                view, schema=msgspec.structs.replace(view.schema, definition_hash="second")
            )
            for name, view in anew.views.items()
        }
        with pytest.raises(DefinitionChanged, match="positions"):
            require_same_definitions(now.views, changed)


async def test_a_snapshot_stays_as_it_was_while_the_store_goes_on(
    live: Views, recomputed: Views
) -> None:
    async with live.snapshot() as now, recomputed.snapshot() as anew:
        later = position("a", quantity=Decimal("99"))
        await live.commit(
            batch(3, 4, rows=[writes(later, commit=4)], changes=[changes((4, NEW, later))])
        )
        found = await compare(now, anew, limit=10, on_progress=lambda done: None)
        assert found.difference_count == 0
    async with live.snapshot() as now:
        assert isinstance(now, Snapshot)
        assert now.frontier is not None
        assert now.frontier.received_at == at(4)
