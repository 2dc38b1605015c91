"""What an explanation asks the ledger: who corrected an event, who has a key, what came before."""

from __future__ import annotations

import pytest

from tests.contract.events import SECOND, START, ManualClock, draft, drafts
from tests.contract.stores import Ledger, LedgerHome, all_commits, all_events, append
from tidemark.ledger import reading


async def test_the_corrections_of_an_event_are_found_in_order(ledger: Ledger) -> None:
    await append(ledger, *drafts("a", "b"), draft("a", tenant="globex"))
    for key, target, tenant in (
        ("1", "a", "acme"),
        ("2", "b", "acme"),
        ("3", "a", "globex"),
        ("4", "a", "acme"),
    ):
        await append(ledger, draft(key, tenant=tenant, control="void", target_key=target))
    events = {(event.tenant_id, event.idempotency_key): event for event in await all_events(ledger)}
    assert await ledger.find_corrections("acme", "a", 9) == [
        events["acme", "1"],
        events["acme", "4"],
    ]
    assert await ledger.find_corrections("acme", "a", 1) == [events["acme", "1"]]
    assert await ledger.find_corrections("globex", "a", 9) == [events["globex", "3"]]
    assert await ledger.find_corrections("globex", "b", 9) == []


async def test_corrections_are_found_by_an_index_that_holds_nothing_else(home: LedgerHome) -> None:
    ledger = await home.open()
    longest = "\U0001f600" * 200
    key = "\U0001f680" * 256
    await append(ledger, draft(key, tenant=longest))
    await append(ledger, draft("1", tenant=longest, control="void", target_key=key))
    assert len(await ledger.find_corrections(longest, key, 9)) == 1
    if home.kind == "sqlite":
        plan = await home.sql(
            "EXPLAIN QUERY PLAN SELECT * FROM events WHERE tenant_id = 'a' AND target_key = 'b'"
        )
        assert "events_target" in str(plan)
    else:
        [(definition,)] = await home.sql(
            "SELECT indexdef FROM pg_indexes WHERE indexname = 'events_target'"
        )
        assert "WHERE (target_key IS NOT NULL)" in definition


async def test_a_ledger_made_before_the_index_gets_it(home: LedgerHome, clock: ManualClock) -> None:
    ledger = await home.open(clock)
    await append(ledger, draft("a"))
    await append(ledger, draft("1", control="void", target_key="a"))
    await home.sql("DROP INDEX events_target")
    await home.sql("DELETE FROM schema_migrations WHERE version = 2")
    again = await home.reopen(clock)
    assert [event.idempotency_key for event in await again.find_corrections("acme", "a", 9)] == [
        "1"
    ]
    assert await home.migrate() == []


async def test_a_key_is_found_without_its_tenant_among_the_newest_events(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(ledger, draft("a"), draft("b"), draft("a", tenant="globex"), draft("c"))
    found = await ledger.find_recent("a", 9)
    assert [event.tenant_id for event in found.events] == ["globex", "acme"]
    assert found.searched_from == 1
    assert len((await ledger.find_recent("a", 1)).events) == 1
    monkeypatch.setattr(reading, "SCAN_WINDOW", 3)
    found = await ledger.find_recent("a", 9)
    assert [event.tenant_id for event in found.events] == ["globex"]
    assert found.searched_from == 2


async def test_the_commit_before_a_time_is_found(ledger: Ledger, clock: ManualClock) -> None:
    assert await ledger.last_commit(START) is None
    for key in "abc":
        await append(ledger, draft(key))
        clock.pass_time(SECOND)
    first, second, third = await all_commits(ledger)
    assert await ledger.last_commit(first.received_at) is None
    assert await ledger.last_commit(third.received_at) == second
    assert await ledger.last_commit(third.received_at + 1) == third
