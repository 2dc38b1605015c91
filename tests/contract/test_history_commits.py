"""Commits of a history that share a transaction: each is what it would have been by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.events import START, draft, rejection, sequences, statuses
from tests.contract.stores import (
    SQLITE_SCHEME,
    Ledger,
    LedgerHome,
    all_commits,
    all_events,
    append,
    append_history,
)
from tidemark.errors import ImportRefused, LedgerUnavailable, StorageRefused
from tidemark.ingress.drafts import (
    Correction,
    Draft,
    Original,
    Rejection,
    Submission,
    no_corrections,
)
from tidemark.ledger import postgres as postgres_store
from tidemark.ledger.port import HistoryCommit, RejectFilter
from tidemark.ledger.sequencer import GENESIS_CHAIN, extend_chain

# The times, the requests and what is in them: repeats, a conflict, a refusal, two empty commits.
HISTORY = [
    HistoryCommit(10, Submission("one", [draft("a", "1"), draft("b", "2", occurred_at=None)])),
    HistoryCommit(11, Submission("two", [draft("a", "1"), draft("c", "3", quantity="1.5")])),
    HistoryCommit(30, Submission("three", [draft("b", "2", occurred_at=None)])),
    HistoryCommit(40, Submission("four", [draft("c", "other"), draft("d", "4")])),
    HistoryCommit(50, Submission("five", [rejection(tenant_id="acme")])),
    HistoryCommit(
        60, Submission("six", [draft("e", "5", metric="m"), draft("e", "5", metric="m")])
    ),
]


async def test_commits_in_one_transaction_are_what_they_are_one_by_one(
    ledger: Ledger, tmp_path: Path
) -> None:
    home = LedgerHome(f"{SQLITE_SCHEME}{tmp_path / 'one-by-one.db'}")
    try:
        one_by_one = await home.open()
        expected = [
            outcomes
            for commit in HISTORY
            for outcomes in await one_by_one.append_history([commit], no_corrections)
        ]
        assert await ledger.append_history(HISTORY, no_corrections) == expected
        assert await all_events(ledger) == await all_events(one_by_one)
        assert await all_commits(ledger) == await all_commits(one_by_one)
        assert await ledger.head() == await one_by_one.head()
        both = [await one.read_rejects(RejectFilter(), 10) for one in (ledger, one_by_one)]
        assert both[0] == both[1]
        assert [refused.rejected_at for refused in both[0]] == [50, 40]
    finally:
        await home.close()


async def test_each_commit_has_a_row_and_a_chain_link_of_its_own(ledger: Ledger) -> None:
    await append_history(ledger, (5, draft("a", "x")), (7, draft("b", "y")), (8, draft("b", "y")))
    first, second = await all_commits(ledger)
    a, b = await all_events(ledger)
    assert (first.received_at, first.first_sequence, first.last_sequence) == (5, 1, 1)
    assert (second.received_at, second.first_sequence, second.last_sequence) == (7, 2, 2)
    assert (a.received_at, b.received_at) == (5, 7)
    assert first.chain == extend_chain(GENESIS_CHAIN, [a.content_hash])
    assert second.chain == extend_chain(first.chain, [b.content_hash])
    head = await ledger.head()
    assert (head.last_sequence, head.received_at, head.chain) == (2, 7, second.chain)


async def test_a_correction_finds_its_original_in_an_earlier_commit_of_the_transaction(
    ledger: Ledger,
) -> None:
    def judge(correction: Correction, original: Original | None) -> Draft | Rejection:
        assert original is not None
        return draft("undo", control="void", target_key=correction.target_key, metric="m")

    void = Correction("acme", "void", "a", "undo", None, None, None, None)
    commits = [
        HistoryCommit(5, Submission("import", [draft("a")])),
        HistoryCommit(6, Submission("import", [void])),
    ]
    outcomes = await ledger.append_history(commits, judge)
    assert [statuses(of_commit) for of_commit in outcomes] == [["accepted"], ["accepted"]]
    assert [event.control for event in await all_events(ledger)] == [None, "void"]


@pytest.mark.parametrize("times", [(4, 6, 7), (6, 8, 8), (6, 9, 7)])
async def test_one_commit_that_comes_too_late_and_none_of_them_is_stored(
    ledger: Ledger, times: tuple[int, ...]
) -> None:
    await append_history(ledger, (5, draft("before")))
    with pytest.raises(ImportRefused) as caught:
        await append_history(ledger, *((time, draft(f"{n}")) for n, time in enumerate(times)))
    assert caught.value.hint
    assert len(await all_events(ledger)) == len(await all_commits(ledger)) == 1
    assert sequences(await append_history(ledger, (6, draft("after")))) == [2]


async def test_a_history_is_not_put_before_live_events(ledger: Ledger) -> None:
    await append(ledger, draft("live"))
    with pytest.raises(ImportRefused):
        await append_history(ledger, (START - 2, draft("a")), (START - 1, draft("b")))
    assert len(await all_events(ledger)) == 1


async def test_one_event_that_the_store_refuses_and_none_of_the_commits_is_stored(
    ledger: Ledger,
) -> None:
    with pytest.raises(StorageRefused):
        await append_history(ledger, (5, draft("a")), (6, draft("b", data="\ud800")))
    assert await all_events(ledger) == []
    assert await all_commits(ledger) == []


async def test_no_commits_are_no_transaction_to_speak_of(ledger: Ledger) -> None:
    assert await ledger.append_history([], no_corrections) == []
    assert await all_commits(ledger) == []


async def test_postgres_is_given_more_time_for_more_history(
    postgres_home: LedgerHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "COMMAND_TIMEOUT_S", 1.0)
    ledger = await postgres_home.open()
    await postgres_home.sql(
        "CREATE FUNCTION tidemark.dawdle() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_sleep(2); RETURN NULL; END'"
    )
    await postgres_home.sql(
        "CREATE TRIGGER dawdle BEFORE INSERT ON events"
        " FOR EACH STATEMENT EXECUTE FUNCTION tidemark.dawdle()"
    )
    entries = [draft(f"{number}") for number in range(9_000)]
    with pytest.raises(LedgerUnavailable):
        await ledger.append_group([Submission("live", entries)], no_corrections)
    commit = HistoryCommit(5, Submission("import", entries))
    [outcomes] = await ledger.append_history([commit], no_corrections)
    assert outcomes[-1].ingress_sequence == len(entries)


async def test_postgres_bears_a_longer_silence_for_more_history(
    postgres_home: LedgerHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "HUNG_AFTER_S", 0.5)
    monkeypatch.setitem(
        postgres_store.WRITER_SETTINGS, "idle_in_transaction_session_timeout", "500ms"
    )
    for name in ("place", "place_history"):
        monkeypatch.setattr(postgres_store, name, thinking_long(getattr(postgres_store, name)))
    ledger = await postgres_home.open()
    entries = [draft(f"{number}") for number in range(9_000)]
    with pytest.raises(LedgerUnavailable):
        await ledger.append_group([Submission("live", entries)], no_corrections)
    commit = HistoryCommit(5, Submission("import", entries))
    [outcomes] = await ledger.append_history([commit], no_corrections)
    assert outcomes[-1].ingress_sequence == len(entries)


def thinking_long(decide: Callable[..., Any]) -> Callable[..., Any]:
    def decide_late(*arguments: Any, **options: Any) -> Any:
        time.sleep(2)
        return decide(*arguments, **options)

    return decide_late
