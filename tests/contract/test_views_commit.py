"""One transaction per batch, applied where the views stand at its start and nowhere else."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any, cast

import msgspec
import pytest

from tests.contract.views_home import (
    POSITIONS,
    Values,
    Views,
    ViewsHome,
    adjustment,
    all_rows,
    at,
    batch,
    changes,
    error,
    everything,
    frontier,
    insertion,
    key_of,
    position,
    writes,
)
from tidemark.pipeline.output.batch import Frontier, ViewBatch
from tidemark.pipeline.output.errors import FrontierGap, LedgerRewound, ViewsError
from tidemark.views.port import AdjustmentFilter, ErrorFilter, RowFilter

pytest_plugins = ("tests.contract.views_fixtures",)

FULL = position(
    "ärmel \U0001f600",
    "",
    since=-1,
    quantity=Decimal("-12345678901234567890123456789.123456789"),
    trades=-(2**63),
    rank=2**31 - 1,
    open=False,
    side="it's both",
    note='{"a":[1.50,null]}',
    memory="m",
    sum_of_all=Decimal("0.000000001"),
)


async def test_every_type_comes_back_as_it_was_written(views: Views) -> None:
    empty = position("", None)
    rows = [
        FULL,
        empty,
        position("b", "null", quantity=Decimal("-0.50"), open=True, trades=2**63 - 1),
    ]
    await views.commit(insertion(*rows))
    found = {
        row.row_key: row for row in await views.read_state("positions", list(map(key_of, rows)))
    }
    for row in rows:
        assert found[key_of(row)].values == tuple(row.values())
        assert found[key_of(row)].received_at == at(1)
    assert [type(value) for value in found[key_of(FULL)].values] == [
        str, str, int, Decimal, int, int, bool, str, str, str, Decimal
    ]  # fmt: skip
    past = await views.rows_as_of("positions", at(1))
    visible = len(POSITIONS.visible)
    assert past == {key_of(row): tuple(row.values())[:visible] for row in rows}


async def test_keys_with_nulls_are_equal_to_themselves_and_to_no_text(views: Views) -> None:
    rows = [position("a", region) for region in (None, "null", "", "[]")]
    await views.commit(insertion(*rows))
    assert len(await all_rows(views)) == 4
    again = position("a", None, rank=7)
    await views.commit(
        batch(
            1,
            2,
            rows=[writes(again, commit=2)],
            changes=[changes((2, rows[0], again))],
        )
    )
    [row] = await views.read_state("positions", ['["a",null]'])
    assert row.values == tuple(again.values())
    assert len(await all_rows(views)) == 4


async def test_keys_longer_than_an_index_entry_are_told_apart(views: Views) -> None:
    tenants = ["\U0001f600" * 1023 + end for end in "ab"]
    rows = [position(tenant, "\U0001f680" * 1024) for tenant in tenants]
    await views.commit(insertion(*rows))
    assert {row.values[0] for row in await all_rows(views)} == set(tenants)
    for tenant in tenants:
        page = await views.read_rows("positions", RowFilter(equal={"tenant_id": tenant}), limit=9)
        assert [row.values[0] for row in page.rows] == [tenant]
    assert len(await views.read_state("positions", list(map(key_of, rows)))) == 2


async def test_a_batch_writes_all_its_parts_and_moves_the_frontier(views: Views) -> None:
    old, new, gone = position("a", rank=1), position("a", rank=2), position("b")
    await views.commit(
        batch(
            None,
            3,
            rows=[writes(old, gone, commit=3)],
            changes=[changes((1, None, old), (3, None, gone))],
            state={"watermarks": b"1", "buffer": b"\x00\xff"},
        )
    )
    await views.commit(
        batch(
            3,
            5,
            rows=[writes(new, commit=5, deleted=[gone])],
            changes=[changes((4, gone, None), (5, old, new))],
            adjustments=[adjustment(41, commit=4), adjustment(41, commit=4, part=1)],
            errors=[error(42, commit=5), error(42, commit=5, stage="time")],
            state={"watermarks": b"2", "buffer": None, "unheard of": None},
        )
    )
    assert await views.frontier() == frontier(5)
    assert [row.values for row in await all_rows(views)] == [tuple(new.values())[:9]]
    page = await views.read_changes("positions", 0, limit=9)
    assert [(change.received_at, change.op, change.changed) for change in page.changes] == [
        (at(1), "insert", tuple(new)[:9]),
        (at(3), "insert", tuple(new)[:9]),
        (at(4), "delete", tuple(new)[:9]),
        (at(5), "update", ("rank",)),
    ]
    assert await views.read_pipeline_state() == {"watermarks": b"2"}
    adjustments = await views.read_adjustments(AdjustmentFilter(), limit=9)
    assert [(a.ingress_sequence, a.part) for a in adjustments.adjustments] == [(41, 0), (41, 1)]
    errors = await views.read_errors(ErrorFilter(), limit=9)
    assert [(e.ingress_sequence, e.stage) for e in errors.errors] == [(42, "decode"), (42, "time")]


async def test_what_was_committed_is_there_after_a_restart(views_home: ViewsHome) -> None:
    views = await views_home.open()
    await views.declare([POSITIONS])
    await views.commit(insertion(FULL))
    before = await everything(views)
    assert await everything(await views_home.reopen()) == before


async def test_a_batch_that_is_in_the_views_already_is_skipped(views: Views) -> None:
    first = insertion(position("a"))
    second = insertion(position("b"), commit=2)
    assert await views.commit(first) is True
    assert await views.commit(second) is True
    before = await everything(views)
    for done in (first, second, batch(None, 2, state={"x": b""})):
        assert await views.commit(done) is False
    assert await everything(views) == before


async def test_a_batch_out_of_place_is_a_gap_and_changes_nothing(views: Views) -> None:
    with pytest.raises(FrontierGap, match="the beginning"):
        await views.commit(batch(1, 2))
    assert await views.frontier() is None
    await views.commit(insertion(position("a")))
    await views.commit(batch(1, 4))
    before = await everything(views)
    for start, end in ((5, 6), (3, 5), (None, 5)):
        with pytest.raises(FrontierGap) as caught:
            await views.commit(batch(start, end, state={"x": b""}))
        assert caught.value.code == "frontier_gap"
    assert await everything(views) == before


def of_another_history(position: Frontier | None, **fields: Any) -> Frontier:
    assert position is not None
    return msgspec.structs.replace(position, **fields)


async def test_a_batch_of_another_history_is_noticed_and_changes_nothing(views: Views) -> None:
    await views.commit(batch(None, 4))
    there = frontier(4)
    other_chain = frontier(4, history="other")
    cases: dict[str, tuple[Frontier | None, Frontier]] = {
        "another chain where it begins": (other_chain, frontier(5)),
        "another chain where it ends": (frontier(3), other_chain),
        "another sequence at the same time": (
            of_another_history(there, ingress_sequence=39),
            frontier(5),
        ),
        "another ledger": (
            frontier(4, ledger_id="ledger-2"),
            frontier(5, ledger_id="ledger-2"),
        ),
        "another ledger that is behind": (None, frontier(2, ledger_id="ledger-2")),
        "more events in less time": (
            frontier(2),
            of_another_history(frontier(3), ingress_sequence=41),
        ),
        "fewer events in more time": (
            of_another_history(frontier(5), ingress_sequence=39),
            frontier(6),
        ),
    }
    for name, (start, end) in cases.items():
        with pytest.raises(LedgerRewound) as caught:
            await views.commit(ViewBatch(start, end, state={"x": b""}))
        assert caught.value.code == "ledger_rewound", name
    assert await views.frontier() == there
    assert await views.read_pipeline_state() == {}


def broken_batches() -> dict[str, ViewBatch]:
    row = position("a", rank=1)
    lines = changes((2, None, row))
    rows = writes(row, commit=2)
    replace = msgspec.structs.replace

    def of(**parts: Any) -> ViewBatch:
        return batch(1, 2, **parts)

    return {
        "leads backwards": batch(3, 2),
        "leads nowhere": batch(2, 2),
        "between ledgers": ViewBatch(frontier(1, ledger_id="ledger-2"), frontier(2)),
        "a column is missing": of(rows=[replace(rows, columns=rows.columns[1:])]),
        "a column is short": of(rows=[replace(rows, columns=[[], *rows.columns[1:]])]),
        "a row twice": of(rows=[writes(row, row, commit=2)]),
        "a row written and deleted": of(rows=[writes(row, commit=2, deleted=[row])]),
        "a view in two parts": of(rows=[rows, writes(commit=2, deleted=[position("b")])]),
        "changes of a view in two parts": of(changes=[lines, changes((2, None, position("b")))]),
        "a change is incomplete": of(changes=[replace(lines, rows=[])]),
        "a row changes twice at a commit": of(changes=[changes((2, None, row), (2, row, None))]),
        "a change before the batch": of(changes=[changes((1, None, row))]),
        "a change after the batch": of(changes=[changes((3, None, row))]),
        "an adjustment after the batch": of(adjustments=[adjustment(1, commit=3)]),
        "an error before the batch": of(errors=[error(1, commit=1)]),
        "no such operation": of(changes=[replace(lines, operations=["upsert"])]),
        "an insert of nothing": of(changes=[replace(lines, rows=[None])]),
        "an update from nothing": of(changes=[replace(lines, operations=["update"])]),
        "an insert that names columns": of(changes=[replace(lines, changed=['["rank"]'])]),
        "no such value": of(rows=[writes(position(side="hold"), commit=2)]),
        "too many digits": of(rows=[writes(position(quantity=Decimal(10**29)), commit=2)]),
        "too many decimals": of(rows=[writes(position(quantity=Decimal("1e-10")), commit=2)]),
        "no number": of(rows=[writes(position(quantity=Decimal("NaN")), commit=2)]),
        "too long an amount": of(adjustments=[adjustment(1, commit=2, amount=Decimal(10**29))]),
        "a number that does not fit": of(rows=[writes(position(trades=2**63), commit=2)]),
        "text for a number": of(rows=[writes(position(trades="many"), commit=2)]),
        "a decimal for a number": of(rows=[writes(position(rank=Decimal("1.5")), commit=2)]),
        "a float": of(rows=[writes(position(quantity=cast(Decimal, 0.5)), commit=2)]),
        "bytes for text": of(rows=[writes(position(memory=cast(str, b"m")), commit=2)]),
        "half a character": of(rows=[writes(position(memory="\ud800"), commit=2)]),
        "an adjustment twice": of(adjustments=[adjustment(1, commit=2), adjustment(1, commit=2)]),
        "an error twice": of(errors=[error(1, commit=2), error(1, commit=2)]),
    }  # fmt: skip


async def refusal(views: Views, work: ViewBatch) -> ViewsError | None:
    try:
        await views.commit(work)
    except ViewsError as error:
        return error
    return None


async def test_a_batch_that_contradicts_itself_or_the_view_is_refused_whole(views: Views) -> None:
    await views.commit(insertion(position("kept")))
    before = await everything(views)
    for name, broken in broken_batches().items():
        refused = await refusal(views, msgspec.structs.replace(broken, state={"written": b"1"}))
        assert refused is not None, f"{name} was written"
        assert refused.code == "batch_refused", f"{name}: {refused!r}"
        assert refused.hint
    assert await everything(views) == before
    assert await views.commit(insertion(position("b"), commit=2))


async def test_of_processes_that_commit_the_same_batch_at_once_one_writes_it(
    views_home: ViewsHome,
) -> None:
    stores = [await views_home.open() for _ in range(3)]
    await stores[0].declare([POSITIONS])
    for number in range(1, 6):
        rows = [position(f"{number}-{i}") for i in range(50)]
        done = await asyncio.gather(
            *(store.commit(insertion(*rows, commit=number)) for store in stores)
        )
        assert sorted(done) == [False, False, True]
    assert len(await all_rows(stores[0])) == 250
    assert len((await stores[0].read_changes("positions", 0, limit=999)).changes) == 250


async def test_of_processes_that_cut_the_ledger_differently_one_wins_and_the_other_is_told(
    views_home: ViewsHome,
) -> None:
    one, two = [await views_home.open() for _ in range(2)]
    await one.declare([POSITIONS])
    short, long = insertion(position("a")), batch(None, 2, state={"long": b""})
    first, second = await asyncio.gather(
        one.commit(short), two.commit(long), return_exceptions=True
    )
    if first is True:
        assert isinstance(second, FrontierGap)
        assert await one.frontier() == frontier(1)
    else:
        assert (first, second) == (False, True)
        assert await one.frontier() == frontier(2)


async def test_a_reader_sees_all_of_a_batch_or_nothing_of_it(views_home: ViewsHome) -> None:
    writer, reader = await views_home.open(), await views_home.open()
    await writer.declare([POSITIONS])
    last = 25

    def rows(number: int) -> list[Values]:
        return [position(f"tenant-{i}", rank=number) for i in range(20)]

    async def write() -> None:
        for number in range(1, last + 1):
            pairs = zip(rows(number - 1), rows(number), strict=True)
            lines = [(number, None if number == 1 else old, new) for old, new in pairs]
            await writer.commit(
                batch(
                    None if number == 1 else number - 1,
                    number,
                    rows=[writes(*rows(number), commit=number)],
                    changes=[changes(*lines)],
                )
            )

    writing = asyncio.create_task(write())
    seen = 0
    while seen < last:
        page = await reader.read_rows("positions", RowFilter(), limit=99)
        if page.frontier is None:
            continue
        seen = page.frontier.ingress_sequence // 10
        assert [row.values[5] for row in page.rows] == [seen] * 20
        assert {row.received_at for row in page.rows} == {at(seen)}
        changed = await reader.read_changes("positions", at(seen - 1), limit=20)
        assert [change.received_at for change in changed.changes] == [at(seen)] * 20
        past = await reader.rows_as_of("positions", at(seen))
        assert {values[5] for values in past.values()} == {seen}
    await writing
