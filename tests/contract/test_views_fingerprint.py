"""One hash says whether two stores hold the same; whatever differs moves it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from tests.contract.views_home import (
    POSITIONS,
    Views,
    ViewsHome,
    adjustment,
    batch,
    changes,
    position,
    writes,
)
from tidemark.pipeline.output.batch import ViewBatch
from tidemark.pipeline.output.schema import ViewSchema

pytest_plugins = ("tests.contract.views_fixtures",)

OLD, NEW = position("a", quantity=Decimal("1.5")), position("a", quantity=Decimal("2"))


def base(**parts: Any) -> ViewBatch:
    values: dict[str, Any] = {
        "rows": [writes(NEW, commit=2)],
        "changes": [changes((1, None, OLD), (2, OLD, NEW))],
        "adjustments": [adjustment(1)],
    }
    return batch(None, 3, **(values | parts))


def variants() -> dict[str, ViewBatch]:
    return {
        "as it is": base(),
        "another value": base(rows=[writes(position("a", quantity=Decimal("3")), commit=2)]),
        "null": base(rows=[writes(position("a"), commit=2)]),
        "another hidden value": base(
            rows=[writes(NEW | {"memory": "m"}, commit=2)],
        ),
        "another time": base(rows=[writes(NEW, commit=3)]),
        "another key": base(rows=[writes(position("a", "", quantity=Decimal("2")), commit=2)]),
        "no row": base(rows=[]),
        "no change": base(changes=[]),
        "a change at another time": base(changes=[changes((1, None, OLD), (3, OLD, NEW))]),
        "a change from another row": base(changes=[changes((1, None, OLD), (2, NEW, NEW))]),
        "no adjustment": base(adjustments=[]),
        "another amount": base(adjustments=[adjustment(1, amount=Decimal("1.51"))]),
        "another reason": base(adjustments=[adjustment(1, reason="closed")]),
    }


async def test_whatever_differs_moves_the_fingerprint_alike_in_both_stores(
    sqlite_views_home: ViewsHome, postgres_views_home: ViewsHome
) -> None:
    prints: list[dict[str, tuple[str, str]]] = []
    for home in (sqlite_views_home, postgres_views_home):
        views = await home.open()
        await views.declare([POSITIONS])
        found = {}
        for name, work in variants().items():
            await home.empty()
            assert await views.commit(work)
            found[name] = (await views.fingerprint(), await views.fingerprint(hidden=False))
        prints.append(found)
    here, there = prints
    assert here == there
    assert len({whole for whole, _ in here.values()}) == len(here)
    assert here["another hidden value"][1] == here["as it is"][1]
    assert len({shown for _, shown in here.values()}) == len(here) - 1


async def test_the_spelling_of_a_number_is_no_difference(
    views: Views, views_home: ViewsHome
) -> None:
    found = set()
    for spelling in ("2", "2.000000000", "2E+0"):
        await views_home.empty()
        await views.commit(
            base(
                rows=[writes(position("a", quantity=Decimal(spelling)), commit=2)],
                adjustments=[adjustment(1, amount=Decimal(spelling))],
            )
        )
        found.add(await views.fingerprint())
    assert len(found) == 1


async def test_the_order_of_declaring_and_of_writing_is_no_difference(
    sqlite_views_home: ViewsHome, postgres_views_home: ViewsHome
) -> None:
    other: ViewSchema = msgspec.structs.replace(POSITIONS, name="Another")
    rows = [position(tenant) for tenant in ("b", "a", "ü", "Z")]
    prints = []
    for home, schemas, ordered in (
        (sqlite_views_home, [POSITIONS, other], rows),
        (postgres_views_home, [other, POSITIONS], rows[::-1]),
    ):
        views = await home.open()
        await views.declare(schemas)
        lines = [(1, None, row) for row in ordered]
        await views.commit(
            batch(
                None,
                1,
                rows=[writes(*ordered, commit=1, schema=schema) for schema in schemas],
                changes=[changes(*lines, schema=schema) for schema in schemas],
            )
        )
        prints.append(await views.fingerprint())
    assert prints[0] == prints[1]
