"""Every filter, read in pages, gives what a plain loop over all events gives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from itertools import product
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.events import SECOND, START, ManualClock, draft, request
from tests.contract.stores import Ledger, LedgerHome, all_events
from tests.unit.planted import assert_catches
from tidemark.ingress.drafts import no_corrections
from tidemark.ledger import reading
from tidemark.ledger.port import EventFilter, EventPage, EventRow

T = TypeVar("T")
ReadEvents = Callable[[EventFilter, int, int], Awaitable[EventPage]]
Check = Callable[[], None]

WINDOW = 7
COMMITS = 24
TENANTS = ("acme", "globex", "initech")
STREAMS = ("usage", "trades")
RUNS = ("run-1", "run-2", None)
METRICS = ("api_calls", "bytes", None)
CUSTOMERS = ("one", "two")


def selects(wanted: EventFilter, event: EventRow) -> bool:
    """The filter as its words say it."""
    return (
        (wanted.tenant_ids is None or event.tenant_id in wanted.tenant_ids)
        and wanted.stream in (None, event.stream)
        and wanted.causality_key in (None, event.causality_key)
        and wanted.metric in (None, event.metric)
        and wanted.customer_ref in (None, event.customer_ref)
        and within(wanted.sequence_from, event.ingress_sequence, wanted.sequence_to)
        and within(wanted.received_from, event.received_at, wanted.received_to)
        and within(wanted.occurred_from, event.occurred_at, wanted.occurred_to)
    )


def within(start: int | None, value: int, end: int | None) -> bool:
    return (start is None or start <= value) and (end is None or value < end)


async def assert_reads_as_a_loop_does(
    read: ReadEvents, events: list[EventRow], wanted: EventFilter, after: int, limit: int
) -> None:
    expected = [
        event for event in events if event.ingress_sequence > after and selects(wanted, event)
    ]
    found: list[EventRow] = []
    position = after
    for _ in range(len(events) + 2):
        page = await read(wanted, position, limit)
        assert len(page.events) <= limit
        found += page.events
        if page.complete:
            break
        assert page.scanned_to > position, "a reader would ask for this page for ever"
        position = page.scanned_to
    else:
        raise AssertionError("there is no end of pages")
    assert found == expected


async def some_history(ledger: Ledger, clock: ManualClock) -> list[EventRow]:
    """Commits of one to four events with a tick now and then, every mix of fields among them."""
    mixes = list(product(TENANTS, STREAMS, RUNS, METRICS, CUSTOMERS))
    number = 0
    for commit in range(COMMITS):
        clock.pass_time(SECOND)
        if commit % 5 == 4:
            await ledger.tick(0)
            clock.pass_time(SECOND)
        entries = []
        for _ in range(commit % 4 + 1):
            tenant, stream, run, metric, customer = mixes[number * 37 % len(mixes)]
            entries.append(
                draft(
                    f"key-{number}",
                    tenant=tenant,
                    stream=stream,
                    causality_key=run,
                    metric=metric,
                    customer_ref=customer,
                    occurred_at=START + (number * 7 % 11) * SECOND,
                )
            )
            number += 1
        await ledger.append_group([request(*entries)], no_corrections)
    return await all_events(ledger)


@pytest.fixture
async def history(
    home: LedgerHome, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> tuple[Ledger, list[EventRow]]:
    ledger = await home.open(clock)
    events = await some_history(ledger, clock)
    monkeypatch.setattr(reading, "SCAN_WINDOW", WINDOW)
    return ledger, events


async def test_every_combination_of_filters_reads_as_a_loop_does(
    history: tuple[Ledger, list[EventRow]],
) -> None:
    ledger, events = history
    ranges: list[dict[str, Any]] = [
        {},
        {"sequence_from": 5, "sequence_to": 50},
        {"received_from": START + 4 * SECOND, "received_to": START + 19 * SECOND},
        {"occurred_from": START + 2 * SECOND, "occurred_to": START + 8 * SECOND},
    ]
    ranges.append({name: value for one in ranges for name, value in one.items()})
    choices: dict[str, Any] = {
        "tenant_ids": ("acme", "initech"),
        "stream": "usage",
        "causality_key": "run-1",
        "metric": "bytes",
        "customer_ref": "two",
    }
    for chosen in product((False, True), repeat=len(choices)):
        fields = {name: choices[name] for name, use in zip(choices, chosen, strict=True) if use}
        for bounds in ranges:
            wanted = EventFilter(**fields, **bounds)
            await assert_reads_as_a_loop_does(ledger.read_events, events, wanted, 0, 5)


def times(step: int = SECOND) -> st.SearchStrategy[int | None]:
    moments = st.integers(-2, 2 * COMMITS).map(lambda number: START + number * step)
    return st.none() | moments | moments.map(lambda moment: moment + 1)


def maybe(*values: str | None) -> st.SearchStrategy[str | None]:
    return st.none() | st.sampled_from([*values, "unheard of"])


FILTERS = st.builds(
    EventFilter,
    tenant_ids=st.none() | st.lists(st.sampled_from(TENANTS), max_size=3).map(tuple),
    stream=maybe(*STREAMS),
    causality_key=maybe(*RUNS),
    metric=maybe(*METRICS),
    customer_ref=maybe(*CUSTOMERS),
    sequence_from=st.none() | st.integers(-2, 80),
    sequence_to=st.none() | st.integers(-2, 80),
    received_from=times(),
    received_to=times(),
    occurred_from=times(),
    occurred_to=times(),
)


class Bench:
    """Runs a property in a thread of its own and its reading on the loop of the test."""

    def __init__(self, events: list[EventRow]) -> None:
        self._events = events
        self._loop = asyncio.get_running_loop()

    def holds(self, read: ReadEvents) -> Check:
        @given(FILTERS, st.integers(0, 70), st.integers(1, 20))
        def check(wanted: EventFilter, after: int, limit: int) -> None:
            self._wait(assert_reads_as_a_loop_does(read, self._events, wanted, after, limit))

        return check

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def test_any_filter_reads_as_a_loop_does(
    history: tuple[Ledger, list[EventRow]],
) -> None:
    ledger, events = history
    await asyncio.to_thread(Bench(events).holds(ledger.read_events))


def that_includes_the_end(ledger: Ledger) -> ReadEvents:
    async def read(wanted: EventFilter, after: int, limit: int) -> EventPage:
        if wanted.occurred_to is not None:
            wanted = msgspec.structs.replace(wanted, occurred_to=wanted.occurred_to + 1)
        return await ledger.read_events(wanted, after, limit)

    return read


def that_skips_the_rest_of_a_full_page(ledger: Ledger) -> ReadEvents:
    async def read(wanted: EventFilter, after: int, limit: int) -> EventPage:
        page = await ledger.read_events(wanted, after, limit)
        if len(page.events) < limit or page.complete:
            return page
        return msgspec.structs.replace(page, scanned_to=page.scanned_to + 1)

    return read


def that_believes_a_short_page_to_be_the_last(ledger: Ledger) -> ReadEvents:
    async def read(wanted: EventFilter, after: int, limit: int) -> EventPage:
        page = await ledger.read_events(wanted, after, limit)
        return msgspec.structs.replace(page, complete=len(page.events) < limit)

    return read


def that_takes_no_tenant_for_any_tenant(ledger: Ledger) -> ReadEvents:
    async def read(wanted: EventFilter, after: int, limit: int) -> EventPage:
        if not wanted.tenant_ids:
            wanted = msgspec.structs.replace(wanted, tenant_ids=None)
        return await ledger.read_events(wanted, after, limit)

    return read


@pytest.mark.parametrize(
    "bug",
    [
        that_includes_the_end,
        that_skips_the_rest_of_a_full_page,
        that_believes_a_short_page_to_be_the_last,
        that_takes_no_tenant_for_any_tenant,
    ],
)
async def test_a_reader_with_a_bug_is_caught(
    sqlite_home: LedgerHome,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    bug: Callable[[Ledger], ReadEvents],
) -> None:
    ledger = await sqlite_home.open(clock)
    bench = Bench(await some_history(ledger, clock))
    monkeypatch.setattr(reading, "SCAN_WINDOW", WINDOW)
    await asyncio.to_thread(assert_catches, bench.holds, bug(ledger))
