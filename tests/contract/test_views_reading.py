"""What readers see: rows by filter and page, changes by commit, the past, and nothing hidden."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.contract.events import START
from tests.contract.views_home import (
    POSITIONS,
    VISIBLE,
    Values,
    Views,
    ViewsHome,
    adjustment,
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
from tidemark.pipeline.output.errors import BeyondFrontier, ChangesForgotten, UnknownView
from tidemark.pipeline.output.port import ViewRow
from tidemark.views import scanning
from tidemark.views.port import (
    AdjustmentCursor,
    AdjustmentFilter,
    ErrorCursor,
    ErrorFilter,
    RowFilter,
    SetAside,
)

pytest_plugins = ("tests.contract.views_fixtures",)


async def read_all(
    views: Views, row_filter: RowFilter, limit: int = 2, most_pages: int = 100
) -> list[ViewRow]:
    """Page after page to the end."""
    found: list[ViewRow] = []
    after: str | None = None
    for _ in range(most_pages):
        page = await views.read_rows("positions", row_filter, after=after, limit=limit)
        assert len(page.rows) <= limit
        found += page.rows
        after = page.next_cursor
        if after is None:
            return found
    raise AssertionError("there is no end of pages")


def some_rows() -> list[Values]:
    return [
        position(
            tenant,
            region,
            since=START + number,
            quantity=Decimal(number - 5) / 2,
            open=number % 2 == 0,
            side="sell" if number % 3 == 0 else None,
            memory="secret",
        )
        for number, (tenant, region) in enumerate(
            (tenant, region)
            for tenant in ("acme", "acme-2", 'a"cme', "zeta")
            for region in (None, "eu", "us,eu")
        )
    ]


def selects(wanted: RowFilter, row: Values) -> bool:
    """The filter as its words say it."""

    def holds(name: str, test: Any) -> bool:
        return row[name] is not None and test(row[name])

    return (
        all(row[name] == value for name, value in wanted.equal.items())
        and all(holds(n, lambda v, c=choices: v in c) for n, choices in wanted.one_of.items())
        and all(holds(n, lambda v, low=low: v >= low) for n, low in wanted.at_least.items())
        and all(holds(n, lambda v, end=end: v < end) for n, end in wanted.below.items())
    )


FILTERS = {
    "all": RowFilter(),
    "tenant": RowFilter(equal={"tenant_id": "acme"}),
    "tenant with a quote": RowFilter(equal={"tenant_id": 'a"cme'}),
    "tenants": RowFilter(one_of={"tenant_id": ("acme", "zeta")}),
    "one tenant of a list": RowFilter(one_of={"tenant_id": ("zeta",)}),
    "no tenant": RowFilter(one_of={"tenant_id": ()}),
    "whole key": RowFilter(equal={"tenant_id": "acme", "region": "us,eu"}),
    "whole key with null": RowFilter(equal={"tenant_id": "acme", "region": None}),
    "second column of the key": RowFilter(equal={"region": "eu"}),
    "null": RowFilter(equal={"side": None}),
    "boolean": RowFilter(equal={"open": True}),
    "enum": RowFilter(one_of={"side": ("sell", "buy")}),
    "decimal": RowFilter(equal={"quantity": Decimal("-0.50")}),
    "decimals around zero": RowFilter(
        at_least={"quantity": Decimal("-1.5")}, below={"quantity": Decimal("2")}
    ),
    "times": RowFilter(
        equal={"tenant_id": "acme-2"}, at_least={"since": START + 3}, below={"since": START + 5}
    ),
    "nothing": RowFilter(equal={"tenant_id": "nobody"}),
}


async def test_filters_select_what_their_words_say_in_pages_of_any_size(
    views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = some_rows()
    await views.commit(insertion(*rows))
    monkeypatch.setattr(scanning, "SCAN_WINDOW", 5)
    for name, wanted in FILTERS.items():
        expected = sorted(key_of(row) for row in rows if selects(wanted, row))
        for limit in (1, 4, 99):
            found = await read_all(views, wanted, limit)
            assert [row.row_key for row in found] == expected, (name, limit)


async def test_a_page_looks_at_a_bounded_number_of_rows_and_says_where_to_go_on(
    views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "SCAN_WINDOW", 5)
    await views.commit(insertion(*some_rows()))
    page = await views.read_rows(
        "positions", RowFilter(one_of={"tenant_id": ("zeta", "z")}), limit=9
    )
    assert page.rows == []
    assert page.next_cursor is not None
    by_key = await views.read_rows("positions", RowFilter(equal={"tenant_id": "zeta"}), limit=9)
    assert len(by_key.rows) == 3
    assert by_key.next_cursor is None


async def test_a_page_names_its_columns_and_its_frontier_and_hides_what_is_hidden(
    views: Views,
) -> None:
    empty = await views.read_rows("positions", RowFilter(), limit=1)
    assert (empty.columns, empty.rows, empty.frontier) == (VISIBLE, [], None)
    await views.commit(insertion(*some_rows()))
    page = await views.read_rows("positions", RowFilter(), limit=99)
    assert page.columns == VISIBLE
    assert page.frontier == frontier(1)
    assert {len(row.values) for row in page.rows} == {len(VISIBLE)}
    shown = repr((page, await views.rows_as_of("positions", at(1))))
    shown += repr(await views.read_changes("positions", 0, limit=99))
    assert "secret" not in shown
    assert "memory" not in shown
    for hidden in ("memory", "nothing"):
        for wanted in (RowFilter(equal={hidden: "x"}), RowFilter(equal={hidden: None})):
            with pytest.raises(UnknownView, match=hidden):
                await views.read_rows("positions", wanted, limit=1)


async def test_state_is_read_for_thousands_of_keys_at_once(views: Views) -> None:
    rows = [position(f"tenant-{i:05d}", memory=str(i)) for i in range(3000)]
    await views.commit(insertion(*rows))
    keys = [key_of(row) for row in rows[::2]]
    found = await views.read_state("positions", [*keys, '["nobody",null]'])
    assert {row.row_key: row.values[9] for row in found} == {
        key_of(row): row["memory"] for row in rows[::2]
    }
    assert await views.read_state("positions", []) == []


async def test_state_is_scanned_row_by_row_with_what_is_hidden(views: Views) -> None:
    rows = [position(f"tenant-{i}", memory=str(i)) for i in range(25)]
    await views.commit(insertion(*rows))
    found: list[ViewRow] = []
    while page := await views.scan_state(
        "positions", after=found[-1].row_key if found else None, limit=7
    ):
        assert len(page) <= 7
        found += page
    keys = [row.row_key for row in found]
    assert keys == sorted(keys)
    assert {row.row_key: row.values[9] for row in found} == {
        key_of(row): row["memory"] for row in rows
    }


def moves() -> list[dict[str, Any]]:
    """Six commits: comings, goings and a return; nothing in the fourth."""
    a1, a2, a3, b, c = (
        position("a", rank=1),
        position("a", rank=2),
        position("a", rank=3),
        position("b"),
        position("c", rank=9),
    )
    return [
        {"rows": [writes(a1, b, commit=1)], "changes": [changes((1, None, a1), (1, None, b))]},
        {"rows": [writes(a2, commit=2)], "changes": [changes((2, a1, a2))]},
        {"rows": [writes(commit=3, deleted=[a2])], "changes": [changes((3, a2, None))]},
        {},
        {"rows": [writes(a3, c, commit=5)], "changes": [changes((5, None, a3), (5, None, c))]},
        {"rows": [writes(commit=6, deleted=[b])], "changes": [changes((6, b, None))]},
    ]


async def commit_moves(views: Views) -> None:
    for number, parts in enumerate(moves(), 1):
        await views.commit(batch(None if number == 1 else number - 1, number, **parts))


async def test_rows_as_of_a_time_are_those_after_everything_up_to_it(views: Views) -> None:
    await commit_moves(views)
    ranks: dict[int, dict[str, Any]] = {
        0: {},
        1: {'["a",null]': 1, '["b",null]': None},
        2: {'["a",null]': 2, '["b",null]': None},
        3: {'["b",null]': None},
        4: {'["b",null]': None},
        5: {'["a",null]': 3, '["b",null]': None, '["c",null]': 9},
        6: {'["a",null]': 3, '["c",null]': 9},
    }
    for number, expected in ranks.items():
        for moment in (at(number), at(number) + 1) if number < 6 else (at(number),):
            rows = await views.rows_as_of("positions", moment)
            assert {key: values[5] for key, values in rows.items()} == expected
            assert list(rows) == sorted(rows)


async def test_the_time_beyond_the_frontier_is_not_known_yet(views: Views) -> None:
    with pytest.raises(BeyondFrontier):
        await views.rows_as_of("positions", at(0))
    await commit_moves(views)
    with pytest.raises(BeyondFrontier) as caught:
        await views.rows_as_of("positions", at(6) + 1)
    assert caught.value.code == "beyond_frontier"


async def test_changes_are_read_in_whole_commits(views: Views) -> None:
    page = await views.read_changes("positions", 0, limit=1)
    assert (page.changes, page.scanned_to, page.complete) == ([], 0, True)
    await commit_moves(views)
    pages: list[list[tuple[int, str]]] = []
    position_ = 0
    while True:
        page = await views.read_changes("positions", position_, limit=1)
        pages.append([(change.received_at, change.row_key) for change in page.changes])
        assert page.scanned_to > position_
        position_ = page.scanned_to
        if page.complete:
            break
    a, b, c = '["a",null]', '["b",null]', '["c",null]'
    assert pages == [
        [(at(1), a), (at(1), b)],
        [(at(2), a)],
        [(at(3), a)],
        [(at(5), a), (at(5), c)],
        [(at(6), b)],
    ]
    assert position_ == at(6)
    again = await views.read_changes("positions", position_, limit=1)
    assert (again.changes, again.scanned_to, again.complete) == ([], at(6), True)


async def test_changes_are_read_up_to_a_time(views: Views) -> None:
    await commit_moves(views)
    page = await views.read_changes("positions", at(1), at(4), limit=99)
    assert [change.received_at for change in page.changes] == [at(2), at(3)]
    assert (page.scanned_to, page.complete) == (at(4), True)
    beyond = await views.read_changes("positions", at(5), at(60), limit=99)
    assert (beyond.scanned_to, beyond.complete) == (at(6), True)


async def test_nothing_beyond_the_frontier_is_read(views_home: ViewsHome) -> None:
    views = await views_home.open()
    await views.declare([POSITIONS])
    await commit_moves(views)
    before = await everything(views)
    past = await views.rows_as_of("positions", at(5))
    for key, op, old, new in (("ahead", "insert", "NULL", "'{}'"), ("a", "delete", "'{}'", "NULL")):
        await views_home.sql(
            "INSERT INTO view_changes (view, received_at, row_key, op, old_row, row)"
            f" VALUES ('positions', {at(7)}, '[\"{key}\",null]', '{op}', {old}, {new})"
        )
    assert await everything(views) == before
    assert await views.rows_as_of("positions", at(5)) == past


async def test_what_was_pruned_is_forgotten_and_said_to_be(views: Views) -> None:
    assert await views.prune_changes(at(9)) == 0
    await commit_moves(views)
    past = {number: await views.rows_as_of("positions", at(number)) for number in range(7)}
    assert await views.prune_changes(at(2) + 1) == 3
    assert await views.prune_changes(at(2)) == 0
    for number in range(2, 7):
        assert await views.rows_as_of("positions", at(number)) == past[number]
    page = await views.read_changes("positions", at(2), limit=99)
    assert [change.received_at for change in page.changes] == [at(3), at(5), at(5), at(6)]
    for ask in (
        views.rows_as_of("positions", at(1)),
        views.read_changes("positions", at(1), limit=9),
    ):
        with pytest.raises(ChangesForgotten) as caught:
            await ask
        assert caught.value.code == "changes_forgotten"
        assert caught.value.hint
    assert await views.prune_changes(at(60)) == 4
    assert await views.rows_as_of("positions", at(6)) == past[6]
    await views.commit(insertion(position("new"), commit=7))
    assert len((await views.read_changes("positions", at(6), limit=9)).changes) == 1
    assert await views.rows_as_of("positions", at(6)) == past[6]


async def test_a_long_log_is_pruned_in_slices(
    views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.views.history.PRUNED_AT_ONCE", 2)
    await commit_moves(views)
    assert await views.prune_changes(at(5) + 1) == 6
    assert len((await views.read_changes("positions", at(5), limit=9)).changes) == 1


async def test_what_is_set_aside_is_counted_by_view_and_by_code(views: Views) -> None:
    adjustments = [
        adjustment(1),
        adjustment(3, part=0, reason="amend"),
        adjustment(3, part=1, reason="amend"),
        adjustment(4, view="usage_calls", metric="calls"),
    ]
    errors = [error(2, code="not_a_time"), error(3, code="too_large"), error(5, code="not_a_time")]
    await views.commit(batch(None, 1, adjustments=adjustments, errors=errors))
    by_view = adjustments[0].view
    assert await views.count_set_aside(0, 9) == SetAside(
        {by_view: 3, "usage_calls": 1}, {"not_a_time": 2, "too_large": 1}
    )
    assert await views.count_set_aside(1, 3) == SetAside(
        {by_view: 2}, {"not_a_time": 1, "too_large": 1}
    )
    assert await views.count_set_aside(5, 9) == SetAside({}, {})


async def test_adjustments_are_found_by_their_slice_and_by_their_event(
    views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "SCAN_WINDOW", 2)
    largest = Decimal("-99999999999999999999999999999.999999999")
    all_of_them = [
        adjustment(1),
        adjustment(2, tenant_id="globex", amount=largest),
        adjustment(3, part=0, original_key="key-1", original_sequence=1, reason="amend"),
        adjustment(3, part=1, original_key="key-1", original_sequence=1, reason="amend"),
        adjustment(4, view="usage_calls", metric="calls", period_start=START + 5),
        adjustment(5, customer_ref="two", group_values='{"region":null}'),
        adjustment(6, tenant_id="x" * 300),
        adjustment(7, tenant_id="x" * 299 + "y"),
    ]
    await views.commit(batch(None, 1, adjustments=all_of_them))

    async def found(wanted: AdjustmentFilter) -> list[tuple[int, int]]:
        result = []
        after: AdjustmentCursor | None = None
        while True:
            page = await views.read_adjustments(wanted, after=after, limit=3)
            assert page.frontier == frontier(1)
            assert all(a in all_of_them for a in page.adjustments)
            result += [(a.ingress_sequence, a.part) for a in page.adjustments]
            after = page.next_cursor
            if after is None:
                return result

    places = [(a.ingress_sequence, a.part) for a in all_of_them]
    assert await found(AdjustmentFilter()) == places
    for wanted, sequences in (
        (AdjustmentFilter(tenant_ids=("globex",)), [2]),
        (AdjustmentFilter(tenant_ids=("x" * 300,)), [6]),
        (AdjustmentFilter(tenant_ids=("globex", "x" * 300)), [2, 6]),
        (AdjustmentFilter(tenant_ids=()), []),
        (AdjustmentFilter(view="usage_calls"), [4]),
        (AdjustmentFilter(metric="calls"), [4]),
        (AdjustmentFilter(customer_ref="two"), [5]),
        (AdjustmentFilter(period_from=START + 1), [4]),
        (AdjustmentFilter(tenant_ids=("acme",), period_to=START + 1), [1, 3, 3, 5]),
        (AdjustmentFilter(ingress_sequence=3), [3, 3]),
        (AdjustmentFilter(original_sequence=1), [3, 3]),
    ):
        assert [sequence for sequence, _ in await found(wanted)] == sequences


async def test_errors_are_listed_in_the_order_of_their_events(views: Views) -> None:
    rows = [error(3), error(1), error(1, stage="time", tenant_id="globex", code="null_time")]
    await views.commit(batch(None, 1, errors=rows))

    async def found(wanted: ErrorFilter) -> list[tuple[int, str]]:
        result = []
        after: ErrorCursor | None = None
        while True:
            page = await views.read_errors(wanted, after=after, limit=1)
            assert all(row in rows for row in page.errors)
            result += [(row.ingress_sequence, row.stage) for row in page.errors]
            after = page.next_cursor
            if after is None:
                return result

    assert await found(ErrorFilter()) == [(1, "decode"), (1, "time"), (3, "decode")]
    assert await found(ErrorFilter(tenant_ids=("globex",))) == [(1, "time")]
    assert await found(ErrorFilter(code="null_time")) == [(1, "time")]
    assert await found(ErrorFilter(stream="usage")) == []
    assert await found(ErrorFilter(ingress_sequence=1)) == [(1, "decode"), (1, "time")]
