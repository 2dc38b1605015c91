"""A swap is recorded in the ledger, once."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.contract.events import drafts
from tests.contract.stores import Ledger, append
from tests.contract.views_home import (
    POSITIONS,
    SQLITE_SCHEME,
    Views,
    ViewsHome,
    batch,
    position,
    writes,
)
from tidemark.app.replay import (
    SWAP_STREAM,
    ReplayRefused,
    begun_swap,
    record_swap,
    replay_views,
)
from tidemark.config import load_config
from tidemark.ingress.identity import Identity
from tidemark.ledger.port import EventFilter
from tidemark.ops.explaining.answering import answer_of
from tidemark.ops.explaining.gathering import InViews
from tidemark.ops.explaining.in_ledger import InLedger
from tidemark.ops.explaining.origins import key_origin
from tidemark.ops.replaying import differences, plan_swap
from tidemark.pipeline.output.batch import Frontier

ANOTHER: Final = msgspec.structs.replace(POSITIONS, definition_hash="another")
SAME: Final = msgspec.structs.replace(POSITIONS, name="same")
SWAPS: Final = EventFilter(stream=SWAP_STREAM)


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Views]:
    home = ViewsHome(f"{SQLITE_SCHEME}{tmp_path / 'live.db'}")
    yield await home.open()
    await home.close()


@pytest.fixture
async def beside(tmp_path: Path) -> AsyncIterator[Views]:
    home = ViewsHome(f"{SQLITE_SCHEME}{tmp_path / 'beside.db'}")
    yield await home.open()
    await home.close()


async def recorded(ledger: Ledger, live: Views, beside: Views) -> tuple[Frontier, list[str]]:
    """As `tidemark replay --swap` does it, each time that it is asked for."""
    async with live.snapshot() as now, beside.snapshot() as anew:
        assert now.frontier is not None
        found = await differences(now, anew, limit=0, on_progress=lambda done: None)
        begun = await begun_swap(ledger, "wider", now.frontier)
        planned = plan_swap("wider", now, anew, found, begun)
    end = await record_swap(ledger, planned, {"positions": POSITIONS.definition_hash})
    return end, [rebuilt.schema.name for rebuilt in planned.rebuilt]


async def test_a_swap_whose_replay_went_on_before_it_was_asked_for_again_is_recorded_once(
    ledger: Ledger, live: Views, beside: Views
) -> None:
    await append(ledger, *drafts(*"abcdefghijkl"))
    await live.declare([POSITIONS, SAME])
    await beside.declare([ANOTHER, SAME])
    for views in (live, beside):
        await views.commit(batch(None, 1, rows=[writes(position("a"), commit=1)]))
    first = await recorded(ledger, live, beside)
    assert first[1] == ["positions"]
    # What came before the record is replayed, and in no view is as in the live ones.
    new = writes(position("b"), commit=2, schema=SAME)
    await beside.commit(batch(1, 2, rows=[new]))
    await append(ledger, *drafts("m", "n"))
    assert await recorded(ledger, live, beside) == first
    assert len((await ledger.read_events(SWAPS, 0, 10)).events) == 1


async def test_a_swap_to_other_definitions_than_those_recorded_is_another(
    ledger: Ledger, live: Views, beside: Views
) -> None:
    await append(ledger, *drafts(*"abcdefghijkl"))
    await live.declare([POSITIONS])
    await live.commit(batch(None, 1))
    await beside.declare([ANOTHER, SAME])
    await beside.commit(batch(None, 1))
    async with live.snapshot() as now, beside.snapshot() as anew:
        assert now.frontier is not None
        found = await differences(now, anew, limit=0, on_progress=lambda done: None)
        for begun in ({"positions": "third"}, {"positions": "another"}, {"gone": "another"}, None):
            planned = plan_swap("wider", now, anew, found, begun)
            assert [it.schema.name for it in planned.rebuilt] == ["positions", "same"]
    first, _ = await recorded(ledger, live, beside)
    assert await begun_swap(ledger, "other", planned.start) is None
    assert await begun_swap(ledger, "wider", first) is None


async def test_what_a_swap_is_can_be_explained(ledger: Ledger, live: Views, beside: Views) -> None:
    await live.declare([POSITIONS])
    await beside.declare([ANOTHER])
    for views in (live, beside):
        await views.commit(batch(None, 1))
    end, _ = await recorded(ledger, live, beside)
    [event] = (await ledger.read_events(SWAPS, 0, 10)).events
    derived = key_origin(event, Identity(ledger.salt), {}).derived_from
    assert derived is not None
    assert ("name", "wider") in derived
    [commit] = await ledger.read_commits(end.received_at - 1, 1)
    found = InLedger(event, commit, None, None, None, [], [], [], True)
    nowhere = InViews([], [], [], [], [], {}, {})
    assert answer_of(found, nowhere, "") == "Stored as 1: the swap of the replay wider."


def test_a_swap_is_refused_where_streams_are_written_in_order(tmp_path: Path) -> None:
    path = tmp_path / "tidemark.yaml"
    path.write_text(
        "streams: {trades: {identity: [id], fields: {id: string, at: string},"
        " eventtime: {column: at, type: iso8601}}}\n"
        "views: {trades: {stream: trades, key: [id]}}\n"
        "pipeline: {eventtime: {enabled: true}, ordered: {trades: {}}}\n"
    )
    with pytest.raises(ReplayRefused, match="written in order: trades"):
        replay_views(
            load_config(path, {}),
            "wider",
            swap=True,
            limit=0,
            on_progress=lambda stage, done, total: None,
            stop=threading.Event(),
        )
    assert not (tmp_path / "tidemark-state").exists()
