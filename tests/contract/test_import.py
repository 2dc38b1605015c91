"""A history gets its order, its commits and its chain: the same on every run."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.contract.events import START, draft
from tests.contract.histories import (
    SALT,
    Event,
    amend,
    at,
    contents,
    lines_of,
    note,
    run_import,
    usage,
    void,
)
from tests.contract.stores import (
    Ledger,
    LedgerHome,
    all_commits,
    all_events,
    append,
    keys_in_order,
)
from tidemark.event_files import EventLine, read_events
from tidemark.ingress.drafts import CorrectionResolver
from tidemark.ledger.history_plan import JUDGED_TOGETHER, Problem
from tidemark.ledger.importer import InvalidHistory, Progress
from tidemark.ledger.port import HistoryCommit
from tidemark.ledger.sequencer import GENESIS_CHAIN, extend_chain


@pytest.fixture
async def ledger(home: LedgerHome) -> Ledger:
    return await home.open(salt=SALT)


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    return tmp_path / "work"


def told(problems: Sequence[Problem]) -> list[tuple[int, str, str | None]]:
    assert all(p.rejection.message and p.rejection.hint for p in problems)
    return [(p.line, p.rejection.code, p.rejection.field) for p in problems]


# Order


async def test_a_history_is_ordered_by_received_at_then_occurred_at_then_key(
    ledger: Ledger, work_dir: Path
) -> None:
    history = [
        usage("z", 20, occurred=1),
        usage("b", 10, occurred=5),
        usage("a", 10, occurred=5),
        usage("c", 10, occurred=4),
        usage("d", 5, occurred=5),
    ]
    report = await run_import(ledger, history, work_dir)
    assert await keys_in_order(ledger) == ["d", "c", "a", "b", "z"]
    assert (report.read, report.accepted, report.commits) == (5, 5, 3)
    assert (report.first_sequence, report.last_sequence) == (1, 5)
    events, commits = await contents(ledger)
    assert [event.ingress_sequence for event in events] == [1, 2, 3, 4, 5]
    assert [c.received_at - START for c in commits] == [5_000_000, 10_000_000, 20_000_000]
    assert [(c.first_sequence, c.last_sequence) for c in commits] == [(1, 1), (2, 4), (5, 5)]
    chain = GENESIS_CHAIN
    for commit in commits:
        hashes = [e.content_hash for e in events if e.received_at == commit.received_at]
        chain = extend_chain(chain, hashes)
        assert commit.chain == chain


async def test_an_event_without_a_time_of_its_own_occurred_when_it_was_received(
    ledger: Ledger, work_dir: Path
) -> None:
    history = [
        note("later", 10, occurredAt=at(11)),
        note("without", 10),
        note("earlier", 10, occurredAt=at(9)),
    ]
    await run_import(ledger, history, work_dir)
    events = await all_events(ledger)
    assert [e.idempotency_key for e in events] == ["earlier", "without", "later"]
    assert events[1].occurred_at == events[1].received_at == START + 10_000_000


async def test_a_derived_key_has_its_place_as_one_that_was_given(
    ledger: Ledger, work_dir: Path
) -> None:
    history = [usage(None, 10, customerRef=f"c{n}") for n in range(20)]
    await run_import(ledger, history, work_dir)
    keys = await keys_in_order(ledger)
    assert len(keys) == 20
    assert list(keys) == sorted(keys)


async def test_equal_keys_of_two_tenants_are_two_events_in_one_order(
    home: LedgerHome, ledger: Ledger, work_dir: Path
) -> None:
    history = [usage("k", 10, tenantId=tenant) for tenant in ("b", "a", "c")]
    report = await run_import(ledger, history, work_dir)
    assert (report.accepted, report.duplicates) == (3, 0)
    first = await contents(ledger)
    again = await run_import(ledger, history[::-1], work_dir)
    assert again.already_imported == 3
    assert await contents(ledger) == first


async def test_a_commit_is_as_large_as_the_history_says(ledger: Ledger, work_dir: Path) -> None:
    count = 10_001
    report = await run_import(ledger, [usage(f"{n}", 10) for n in range(count)], work_dir)
    assert (report.accepted, report.commits) == (count, 1)
    [commit] = await all_commits(ledger)
    assert (commit.first_sequence, commit.last_sequence) == (1, count)


async def test_commits_are_written_together_up_to_a_number_of_events(
    ledger: Ledger, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions: list[list[int]] = []
    append_history = ledger.append_history

    async def counted(commits: Sequence[HistoryCommit], resolve: CorrectionResolver) -> Any:
        transactions.append([len(commit.submission.entries) for commit in commits])
        return await append_history(commits, resolve)

    monkeypatch.setattr(ledger, "append_history", counted)
    sizes = [1, 2, 2, 3, 2, 9, 1, 5]
    history = [usage(f"{at}-{n}", at + 1) for at, size in enumerate(sizes) for n in range(size)]
    report = await run_import(ledger, history, work_dir, events_together=5)
    assert transactions == [[1, 2, 2], [3, 2], [9], [1], [5]]
    assert (report.accepted, report.commits) == (sum(sizes), len(sizes))
    assert (report.first_sequence, report.last_sequence) == (1, sum(sizes))
    commits = await all_commits(ledger)
    assert [c.last_sequence - c.first_sequence + 1 for c in commits] == sizes


async def test_the_ledger_goes_on_behind_its_history(ledger: Ledger, work_dir: Path) -> None:
    await run_import(ledger, [usage("a", 10), usage("b", 20)], work_dir)
    repeat, new = await append(ledger, draft("a", tenant="acme"), draft("new"))
    assert repeat.status == "conflict"
    assert new.ingress_sequence == 3
    assert new.received_at is not None
    assert new.received_at > START + 20_000_000


async def test_a_history_may_be_empty(ledger: Ledger, work_dir: Path) -> None:
    report = await run_import(ledger, [], work_dir)
    assert (report.read, report.accepted, report.commits, report.first_sequence) == (0, 0, 0, None)
    assert await all_commits(ledger) == []


async def test_csv_and_json_lines_are_the_same_history(
    home: LedgerHome, ledger: Ledger, work_dir: Path, tmp_path: Path
) -> None:
    json_lines = [
        usage("a", 10, meta={"region": "eu"}),
        usage("b", 10, resourceId="disk"),
        note("n", 11, 'said "no", twice'),
    ]
    csv_text = (
        "receivedAt,tenantId,metric,customerRef,resourceId,ts,quantity,idempotencyKey,meta.region,"
        "stream,data\n"
        f"{at(10)},acme,api_calls,c1,,{at(9)},1,a,eu,,\n"
        f"{at(10)},acme,api_calls,c1,disk,{at(9)},1.0,b,,,\n"
        f'{at(11)},acme,,,,,,n,,notes,"{{""text"":""said \\""no\\"", twice""}}"\n'
    )
    path = tmp_path / "history.csv"
    path.write_text(csv_text)
    with path.open("rb") as stream:
        lines = list(read_events(stream, "csv", file="history.csv", history=True))
    await run_import(ledger, json_lines, work_dir)
    report = await run_import(ledger, lines, work_dir)
    assert (report.already_imported, report.accepted) == (3, 0)


async def test_progress_is_told_stage_by_stage(ledger: Ledger, work_dir: Path) -> None:
    progress: list[Progress] = []
    history = [usage(f"{n}", n // 500 + 1) for n in range(2_500)]
    await run_import(ledger, history, work_dir, progress=progress)
    stages = list(dict.fromkeys(p.stage for p in progress))
    assert stages == ["read", "judge", "write"]
    for stage in stages:
        done = [p.done for p in progress if p.stage == stage]
        assert done == sorted(done)
        assert done[-1] == 2_500
    again: list[Progress] = []
    await run_import(ledger, history, work_dir, progress=again)
    assert [p.done for p in again if p.stage == "compare"][-1] == 2_500


# Duplicates, conflicts and rejects


async def test_a_repeat_in_a_history_is_stored_once_and_counted(
    ledger: Ledger, work_dir: Path
) -> None:
    history = [
        usage("a", 10, occurred=1),
        usage("a", 10, occurred=1),
        usage("b", 20),
        usage("a", 30, occurred=1, quantity="1.00"),
    ]
    report = await run_import(ledger, history, work_dir)
    assert (report.read, report.accepted, report.duplicates, report.problems) == (4, 2, 2, [])
    # A commit of repeats alone is none, as it is none when they are sent.
    assert [c.received_at - START for c in await all_commits(ledger)] == [10_000_000, 20_000_000]


async def test_repeats_and_corrections_reach_back_over_the_whole_history(
    ledger: Ledger, work_dir: Path
) -> None:
    count = 2 * JUDGED_TOGETHER
    history = [usage(f"{n}", n // 10 + 1, occurred=0) for n in range(count)]
    repeats = [usage(f"{n}", count + 1, occurred=0) for n in range(0, count, 7)]
    corrections = [void("0", count + 2), void(f"{count - 1}", count + 2)]
    report = await run_import(ledger, [*corrections, *repeats, *history], work_dir)
    assert report.accepted == count + 2
    assert report.duplicates == len(repeats)
    assert report.commits == count // 10 + 1


async def test_of_a_repeat_the_one_received_first_is_kept(ledger: Ledger, work_dir: Path) -> None:
    history = [usage("a", received, occurred=1) for received in (30, 10, 20)]
    await run_import(ledger, history, work_dir)
    [event] = await all_events(ledger)
    assert event.received_at == START + 10_000_000


INVALID: list[Event] = [
    usage("a", 10),
    usage("b", 10) | {"receivedAt": None},
    usage("c", 10) | {"receivedAt": 17},
    usage("d", 10) | {"receivedAt": 1.5},
    usage("e", 10) | {"receivedAt": "2025-01-01T00:00:00"},
    usage("f", 10) | {"receivedAt": "2025-01-01T00:00:00.1234567Z"},
    usage("g", 10) | {"receivedAt": "1970-01-01T00:00:00Z"},
    usage("h", 10) | {"receivedAt": "2260-01-01T00:00:00Z"},
    usage("i", 10, occurred=10 + 3601),
    usage("j", 10, quantity="much"),
    usage("k", 10, colour="red"),
    usage("a", 20),
    void("nobody", 30),
    {"receivedAt": at(10), "stream": "note", "tenantId": "acme", "data": {}},
]
WHY = [
    (2, "missing_field", "receivedAt"),
    (3, "wrong_type", "receivedAt"),
    (4, "wrong_type", "receivedAt"),
    (5, "timestamp_without_offset", "receivedAt"),
    (6, "timestamp_too_precise", "receivedAt"),
    (7, "timestamp_out_of_range", "receivedAt"),
    (8, "future_timestamp", "receivedAt"),
    (9, "future_timestamp", "ts"),
    (10, "invalid_decimal", "quantity"),
    (11, "unknown_field", "colour"),
    (14, "unknown_stream", "stream"),
    (12, "content_conflict", "idempotencyKey"),
    (13, "unknown_target", "target"),
]


async def test_one_bad_line_and_nothing_is_imported_but_all_of_them_are_named(
    ledger: Ledger, work_dir: Path
) -> None:
    with pytest.raises(InvalidHistory) as caught:
        await run_import(ledger, INVALID, work_dir)
    report = caught.value.report
    assert told(report.problems) == WHY
    assert (report.read, report.rejected, report.conflicts) == (14, 12, 1)
    assert (report.accepted, report.commits) == (0, 0)
    assert caught.value.code == "history_invalid"
    assert "history.jsonl, line 2" in caught.value.message
    assert pickle.loads(pickle.dumps(caught.value)).report == report
    assert await contents(ledger) == ([], [])


async def test_bad_lines_can_be_left_out(ledger: Ledger, work_dir: Path) -> None:
    report = await run_import(ledger, INVALID, work_dir, skip_invalid=True)
    assert told(report.problems) == WHY
    assert (report.accepted, report.rejected, report.conflicts) == (1, 12, 1)
    assert await keys_in_order(ledger) == ["a"]
    again = await run_import(ledger, INVALID, work_dir, skip_invalid=True)
    assert (again.accepted, again.already_imported, again.rejected) == (0, 1, 12)


async def test_a_rejection_says_whose_event_it_was(ledger: Ledger, work_dir: Path) -> None:
    report = await run_import(ledger, INVALID, work_dir, skip_invalid=True)
    for problem in report.problems:
        assert problem.file == "history.jsonl"
        assert problem.rejection.tenant_id == "acme"


async def test_a_conflict_names_the_line_that_it_is_in_conflict_with(
    ledger: Ledger, work_dir: Path
) -> None:
    history = [usage("a", 20, quantity=2), usage("b", 1), usage("a", 10)]
    report = await run_import(ledger, history, work_dir, skip_invalid=True)
    [problem] = report.problems
    assert (problem.line, problem.status) == (1, "conflict")
    assert "history.jsonl, line 3" in problem.rejection.message
    assert problem.rejection.idempotency_key == "a"


async def test_the_list_of_problems_is_bounded_and_their_count_is_not(
    ledger: Ledger, work_dir: Path
) -> None:
    history = [usage(f"{n}", 10, quantity="x") for n in range(50)]
    with pytest.raises(InvalidHistory) as caught:
        await run_import(ledger, history, work_dir, max_problems=7)
    assert len(caught.value.report.problems) == 7
    assert caught.value.report.rejected == 50
    assert "50 of 50" in caught.value.message


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"{", "malformed_event"),
        (b"[]", "malformed_event"),
        (b"null", "malformed_event"),
        (b'{"receivedAt":NaN}', "not_a_number"),
        (b'{"receivedAt":"\\ud800"}', "invalid_unicode"),
        (b'{"receivedAt":"' + at(1).encode() + b'","tenantId":"\xff"}', "invalid_unicode"),
        (b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}", "too_deep"),
    ],
)
async def test_a_line_that_is_no_event_is_a_problem_like_any_other(
    ledger: Ledger, work_dir: Path, raw: bytes, code: str
) -> None:
    lines = [*lines_of([usage("a", 1)]), EventLine(2, raw, None, "other.jsonl")]
    report = await run_import(ledger, lines, work_dir, skip_invalid=True)
    [problem] = report.problems
    assert (problem.file, problem.line, problem.rejection.code) == ("other.jsonl", 2, code)
    assert report.accepted == 1


async def test_a_line_that_the_file_reader_refused_is_a_problem_like_any_other(
    ledger: Ledger, work_dir: Path, tmp_path: Path
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'{"x":"\xff"}\n' + json.dumps(usage("a", 1)).encode() + b"\n")
    with path.open("rb") as stream:
        lines = read_events(stream, "jsonl", file="history.jsonl")
        report = await run_import(ledger, lines, work_dir, skip_invalid=True)
    assert told(report.problems) == [(1, "not_utf8", None)]
    assert report.accepted == 1


async def test_what_was_in_the_future_is_judged_by_when_it_was_received(
    ledger: Ledger, work_dir: Path
) -> None:
    history = [usage("a", 10, occurred=10 + 3600), usage("b", 20, occurred=20 + 3600)]
    assert (await run_import(ledger, history, work_dir)).accepted == 2


async def test_nothing_was_received_later_than_now(ledger: Ledger, work_dir: Path) -> None:
    history = [usage("a", 10), usage("b", 10.000001)]
    now_us = START + 10_000_000
    report = await run_import(ledger, history, work_dir, now_us=now_us, skip_invalid=True)
    assert told(report.problems) == [(2, "future_timestamp", "receivedAt")]


# Corrections


async def test_a_correction_follows_what_it_corrects_in_its_own_commit(
    ledger: Ledger, work_dir: Path
) -> None:
    history = [
        # The client's key alone would put it first.
        void("m", 10, idempotencyKey="a"),
        # Of equal time, and known by its target for want of a key.
        note("x", 10),
        void("x", 10),
        # The original's own time is later than the commit's.
        usage("m", 10, occurred=100),
        usage("b", 10),
    ]
    await run_import(ledger, history, work_dir)
    events = await all_events(ledger)
    assert [(e.control, e.target_key or e.idempotency_key) for e in events] == [
        (None, "b"),
        (None, "x"),
        ("void", "x"),
        (None, "m"),
        ("void", "m"),
    ]


async def test_a_correction_that_comes_before_its_target_is_refused(
    ledger: Ledger, work_dir: Path
) -> None:
    history = [void("a", 10), usage("a", 20), void("a", 30), void("a", 30)]
    report = await run_import(ledger, history, work_dir, skip_invalid=True)
    assert told(report.problems) == [(1, "unknown_target", "target")]
    assert (report.accepted, report.duplicates) == (2, 1)
    assert [e.control for e in await all_events(ledger)] == [None, "void"]


async def test_corrections_are_what_they_would_have_been_if_they_were_sent(
    ledger: Ledger, work_dir: Path
) -> None:
    history = [
        usage("a", 10),
        amend("a", 20, 5, reason="miscounted"),
        void("a", 30, idempotencyKey="undo"),
        {"receivedAt": at(40), "control": "end", "tenantId": "acme", "stream": "notes"},
        void("undo", 50),
    ]
    report = await run_import(ledger, history, work_dir, skip_invalid=True)
    assert told(report.problems) == [(5, "target_is_correction", "target")]
    original, amended, voided, ended = await all_events(ledger)
    assert (amended.control, amended.target_key, amended.quantity) == ("amend", "a", "5")
    assert amended.occurred_at == START + 19_000_000
    assert (voided.control, voided.idempotency_key, voided.metric) == ("void", "undo", "api_calls")
    assert (ended.control, ended.stream) == ("end", "notes")
    assert original.control is None
