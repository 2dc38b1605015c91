"""What the history of one run asks the ledger: what it comes to, and who corrected its events."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.events import SECOND, START, ManualClock, draft, drafts
from tests.contract.stores import Ledger, LedgerHome, append
from tidemark.ledger import reading
from tidemark.ledger.port import Decision, EventFilter, RunPart, RunSummary


async def test_a_run_is_summed_up_by_tenant_and_stream(ledger: Ledger, clock: ManualClock) -> None:
    run = {"causality_key": "run"}
    await append(ledger, draft("a", **run), draft("b", occurred_at=START - 5, **run))
    await append(ledger, *drafts("between", "other"), draft("x", causality_key="run-2"))
    clock.pass_time(SECOND)
    await append(
        ledger,
        draft("c", stream="trades", occurred_at=START + 7, **run),
        draft("a", tenant="globex", **run),
    )
    clock.pass_time(SECOND)
    await append(ledger, draft("d", occurred_at=START + 3, **run))
    usage = RunPart("acme", "usage", 3, 1, 8, START, START + 2 * SECOND, START - 5, START + 3)
    later = START + SECOND
    trades = RunPart("acme", "trades", 1, 6, 6, later, later, START + 7, START + 7)
    globex = RunPart("globex", "usage", 1, 7, 7, later, later, START, START)
    assert await ledger.summarise_run("run", None) == RunSummary([trades, usage, globex], True)
    assert await ledger.summarise_run("run", ("globex",)) == RunSummary([globex], True)
    assert await ledger.summarise_run("run", ("globex", "acme", "x")) == RunSummary(
        [trades, usage, globex], True
    )
    for key, tenants in (("RUN", None), ("", None), ("run", ("nobody",)), ("run", ())):
        assert await ledger.summarise_run(key, tenants) == RunSummary([], True)


async def test_of_a_run_that_is_too_long_the_first_events_are_counted(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(ledger, *drafts("a", "b", "c", "d", causality_key="run"))
    monkeypatch.setattr(reading, "RUN_WINDOW", 3)
    [part], complete = _parts(await ledger.summarise_run("run", None))
    assert (part.count, part.first_sequence, part.last_sequence, complete) == (3, 1, 3, False)
    monkeypatch.setattr(reading, "RUN_WINDOW", 5)
    [part], complete = _parts(await ledger.summarise_run("run", None))
    assert (part.count, part.last_sequence, complete) == (4, 4, True)


def _parts(summary: RunSummary) -> tuple[list[RunPart], bool]:
    return summary.parts, summary.complete


async def test_the_first_void_decides_or_else_the_last_amend(ledger: Ledger) -> None:
    await append(ledger, *drafts("a", "b", "c", "d"), draft("a", tenant="globex"))
    for key, control, target, tenant in (
        ("6", "amend", "a", "acme"),
        ("7", "amend", "a", "acme"),
        ("8", "void", "b", "acme"),
        ("9", "amend", "b", "acme"),
        ("10", "void", "b", "acme"),
        ("11", "amend", "c", "acme"),
        ("12", "void", "c", "acme"),
        ("13", "void", "a", "globex"),
    ):
        await append(ledger, draft(key, tenant=tenant, control=control, target_key=target))
    asked = [("acme", key) for key in "abcd"]
    of_acme = {
        ("acme", "a"): Decision("amend", 7),
        ("acme", "b"): Decision("void", 8),
        ("acme", "c"): Decision("void", 12),
    }
    of_globex = {("globex", "a"): Decision("void", 13)}
    assert await ledger.find_decisions(asked) == of_acme
    assert await ledger.find_decisions([*asked, ("globex", "a")]) == of_acme | of_globex
    # Each of the two is asked for, but not together.
    assert await ledger.find_decisions([("globex", "b"), ("acme", "d")]) == {}
    assert await ledger.find_decisions([]) == {}


async def test_a_run_and_its_corrections_are_found_by_their_indexes(home: LedgerHome) -> None:
    ledger = await home.open()
    for start in range(0, 5_000, 1_000):
        await append(
            ledger,
            *(
                draft(f"k{n}", tenant=f"t{n % 50}", causality_key=f"run-{n % 500}")
                for n in range(start, start + 1_000)
            ),
        )
        await append(
            ledger,
            *(
                draft(f"v{n}", tenant=f"t{n % 50}", control="void", target_key=f"k{n}")
                for n in range(start, start + 1_000)
            ),
        )
    if home.kind == "postgres":
        # As its autovacuum does; nobody does it for SQLite.
        await home.sql("ANALYZE")
    tenants = ("t7", "t8")
    run = EventFilter(causality_key="run-7", tenant_ids=tenants)
    for plan in (
        await _plans(home, ledger, lambda: ledger.read_events(run, 0, 100)),
        await _plans(home, ledger, lambda: ledger.summarise_run("run-7", None)),
        await _plans(home, ledger, lambda: ledger.summarise_run("run-7", tenants)),
    ):
        assert "events_causality" in plan, plan
        assert "Seq Scan" not in plan, plan
        assert "SCAN events" not in plan, plan
    asked = [(f"t{n % 50}", f"k{n}") for n in range(7, 1_007, 500)]
    plan = await _plans(home, ledger, lambda: ledger.find_decisions(asked))
    assert "events_target" in plan, plan
    assert "Seq Scan" not in plan, plan
    if home.kind == "sqlite":
        assert "(tenant_id=? AND target_key=?)" in plan, plan


async def _plans(home: LedgerHome, ledger: Ledger, read: Any) -> str:
    """How the database goes about the queries on events that a read sends."""
    sent: list[tuple[str, tuple[object, ...]]] = []
    fetch = ledger._fetch

    async def record(sql: str, *values: object) -> list[Any]:
        sent.append((sql, values))
        return await fetch(sql, *values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "_fetch", record)
        await read()
    explain = "EXPLAIN QUERY PLAN" if home.kind == "sqlite" else "EXPLAIN"
    plans = [
        await fetch(f"{explain} {sql}", *values) for sql, values in sent if "FROM events" in sql
    ]
    assert plans
    return "\n".join(str(tuple(row)) for plan in plans for row in plan)
