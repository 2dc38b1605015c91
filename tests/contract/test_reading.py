"""How a ledger is read: one event, one run, commits, exact quantities."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from tests.contract.events import SECOND, START, ManualClock, draft, drafts, statuses
from tests.contract.stores import (
    EVERYTHING,
    Ledger,
    LedgerHome,
    all_commits,
    all_events,
    append,
)
from tidemark.ledger import reading
from tidemark.ledger.port import EventFilter, EventPage

QUANTITIES = [
    "0",
    "1",
    "-1",
    "10",
    "2",
    "9",
    "-10",
    "-9",
    "-2",
    "0.1",
    "0.01",
    "0.09",
    "-0.1",
    "-0.01",
    "0.000000001",
    "-0.000000001",
    "123456789.987654321",
    "9999999999999999999.999999999",
    "-9999999999999999999.999999999",
    "1000000000000000000",
    "-1000000000000000000",
    "0.3",
    "0.30000001",
]


async def page(
    ledger: Ledger, after: int = 0, limit: int = EVERYTHING, **wanted: object
) -> EventPage:
    return await ledger.read_events(EventFilter(**wanted), after, limit)  # type: ignore[arg-type]


async def test_an_event_is_found_by_tenant_and_key(ledger: Ledger) -> None:
    await append(ledger, draft("a"), draft("b"), draft("a", tenant="globex"))
    stored = await all_events(ledger)
    assert await ledger.find_event("acme", "b") == stored[1]
    assert await ledger.find_event("globex", "a") == stored[2]
    assert await ledger.find_event("globex", "b") is None
    assert await ledger.find_event("", "") is None


async def test_the_history_of_one_run_is_one_query_in_order_across_streams(
    ledger: Ledger, clock: ManualClock
) -> None:
    for number in range(30):
        clock.pass_time(SECOND)
        await append(
            ledger,
            draft(
                f"key-{number}",
                stream=("usage", "trades", "logs")[(number + number // 6) % 3],
                tenant=("acme", "globex")[number % 2],
                causality_key=("run-1", "run-2", None)[number // 2 % 3],
                occurred_at=START - number,
            ),
        )
    found = await page(ledger, causality_key="run-1")
    assert found.complete
    assert [event.ingress_sequence for event in found.events] == [
        number + 1 for number in range(30) if number // 2 % 3 == 0
    ]
    assert {event.stream for event in found.events} == {"usage", "trades", "logs"}
    own = await page(ledger, causality_key="run-1", tenant_ids=("acme",))
    assert {event.tenant_id for event in own.events} == {"acme"}


async def test_one_run_is_read_without_scanning_what_lies_between(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SCAN_WINDOW", 3)
    await append(ledger, draft("first", causality_key="run"))
    await append(ledger, *drafts(*(f"between-{number}" for number in range(50))))
    await append(ledger, draft("last", causality_key="run"))
    found = await page(ledger, causality_key="run")
    assert [event.idempotency_key for event in found.events] == ["first", "last"]
    assert found.complete


async def test_a_page_for_a_rare_tenant_is_short_and_says_where_to_go_on(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SCAN_WINDOW", 10)
    await append(ledger, *drafts(*(f"key-{number}" for number in range(25))))
    await append(ledger, draft("rare", tenant="globex"))
    first = await page(ledger, tenant_ids=("globex",))
    assert (first.events, first.scanned_to, first.complete) == ([], 10, False)
    second = await page(ledger, first.scanned_to, tenant_ids=("globex",))
    assert (second.events, second.scanned_to, second.complete) == ([], 20, False)
    third = await page(ledger, second.scanned_to, tenant_ids=("globex",))
    assert [event.idempotency_key for event in third.events] == ["rare"]
    assert third.complete


async def test_a_reader_goes_on_where_it_was_when_more_has_come(ledger: Ledger) -> None:
    await append(ledger, *drafts("a", "b"))
    first = await page(ledger)
    assert first.complete
    nothing = await page(ledger, first.scanned_to)
    assert (nothing.events, nothing.scanned_to, nothing.complete) == ([], 2, True)
    await append(ledger, *drafts("c"))
    more = await page(ledger, nothing.scanned_to)
    assert [event.idempotency_key for event in more.events] == ["c"]


async def test_a_reader_that_is_ahead_of_the_ledger_misses_nothing(ledger: Ledger) -> None:
    await append(ledger, *drafts("a"))
    ahead = await page(ledger, 0, sequence_from=3)
    assert (ahead.events, ahead.complete) == ([], True)
    await append(ledger, *drafts("b", "c", "d"))
    found = await page(ledger, ahead.scanned_to, sequence_from=3)
    assert [event.idempotency_key for event in found.events] == ["c", "d"]


async def test_no_tenant_at_all_sees_nothing(ledger: Ledger) -> None:
    await append(ledger, draft("a"))
    assert (await page(ledger, tenant_ids=())).events == []


async def test_text_is_compared_as_it_is(ledger: Ledger) -> None:
    """No case folding, no trimming, no pattern, and no way out of the query."""
    tenants = ["acme", "ACME", "acme ", "ac%", "a'; DROP TABLE events; --", "ac?me", "$1", "açme"]
    await append(ledger, *(draft("k", tenant=tenant) for tenant in tenants))
    for tenant in tenants:
        found = await page(ledger, tenant_ids=(tenant,))
        assert [event.tenant_id for event in found.events] == [tenant]
        event = await ledger.find_event(tenant, "k")
        assert event is not None
        assert event.tenant_id == tenant


async def test_commits_are_read_in_order_after_a_time(ledger: Ledger, clock: ManualClock) -> None:
    for number in range(5):
        await append(ledger, draft(f"key-{number}"))
        clock.pass_time(SECOND)
        await ledger.tick(SECOND)
        clock.pass_time(SECOND)
    everything = await all_commits(ledger)
    assert [commit.received_at for commit in everything] == [
        START + number * SECOND for number in range(10)
    ]
    assert await ledger.read_commits(START, 3) == everything[1:4]
    assert await ledger.read_commits(START - 1, 1) == everything[:1]
    assert await ledger.read_commits(everything[-1].received_at, 10) == []


async def test_quantities_are_exact_and_have_one_text(ledger: Ledger) -> None:
    await append(ledger, *(draft(f"key-{quantity}", quantity=quantity) for quantity in QUANTITIES))
    assert [event.quantity for event in await all_events(ledger)] == QUANTITIES


async def test_quantities_sort_as_numbers_in_the_database(
    home: LedgerHome, clock: ManualClock
) -> None:
    ledger = await home.open(clock)
    await append(ledger, *(draft(f"key-{quantity}", quantity=quantity) for quantity in QUANTITIES))
    rows = await home.sql("SELECT ingress_sequence FROM events ORDER BY quantity")
    assert [QUANTITIES[sequence - 1] for (sequence,) in rows] == sorted(QUANTITIES, key=Decimal)
    [(largest,)] = await home.sql(
        "SELECT ingress_sequence FROM events WHERE quantity = (SELECT max(quantity) FROM events)"
    )
    assert Decimal(QUANTITIES[largest - 1]) == max(map(Decimal, QUANTITIES))


async def test_the_ends_of_time_are_kept(ledger: Ledger) -> None:
    """1970 and 2261, the bounds of a timestamp."""
    last = 9_214_646_399_999_999
    await append(ledger, draft("a", occurred_at=0), draft("b", occurred_at=last))
    assert [event.occurred_at for event in await all_events(ledger)] == [0, last]
    found = await page(ledger, occurred_from=0, occurred_to=last)
    assert [event.idempotency_key for event in found.events] == ["a"]


async def test_reading_sees_only_what_is_committed_and_goes_on_meanwhile(ledger: Ledger) -> None:
    async def write() -> None:
        for number in range(20):
            await append(ledger, *drafts(*(f"{number}-{i}" for i in range(20))))

    writing = asyncio.create_task(write())
    last = 0
    while not writing.done():
        seen = await page(ledger, last)
        numbers = [event.ingress_sequence for event in seen.events]
        assert numbers == list(range(last + 1, last + 1 + len(numbers)))
        assert len(numbers) % 20 == 0, "a part of a commit was seen"
        last = seen.scanned_to
    await writing
    assert statuses(await append(ledger, draft("end"))) == ["accepted"]
