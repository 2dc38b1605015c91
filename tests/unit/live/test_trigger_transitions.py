"""Which changes are a MATCH or an UNMATCH: the vectors, a reference in plain Python, any cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.live.trigger_models import (
    SCHEMA,
    Commit,
    History,
    Rules,
    Told,
    change_row,
    pasts,
    thresholds,
    told,
)
from tests.unit.planted import assert_catches
from tidemark.live.filters import compile_predicate, parse_filter
from tidemark.live.triggers import transitions
from tidemark.live.triggers.event_ids import event_id, primary_key
from tidemark.live.triggers.transitions import Change, Condition, Step, Transition
from tidemark.pipeline.output.batch import DELETE, INSERT, UPDATE
from tidemark.pipeline.output.encoding import encode_row, row_key
from tidemark.pipeline.output.schema import Column, ViewSchema
from tidemark.views.port import ChangeRow

VECTORS: Any = json.loads((Path(__file__).parents[2] / "vectors/triggers.json").read_text())
PRICES = ViewSchema("prices", (Column("id", "int"), Column("px", "int")), ("id",), "first")

StepFunction: TypeAlias = Callable[[Condition, Iterable[Change], Iterable[str]], Step]
HOT = Rules(match_from=100)
COOLING = Rules(match_from=100, unmatch_below=95)


def vector_lines() -> list[ChangeRow]:
    rows: dict[int, dict[str, int]] = {}
    lines = []
    for change in VECTORS["changes"]:
        key = change["row"]["id"]
        old, new = rows.pop(key, None), change["row"] if change["op"] == "upsert" else None
        if new is not None:
            rows[key] = new
        lines.append(
            ChangeRow(
                change["ts"],
                row_key(PRICES, [key]),
                INSERT if old is None else DELETE if new is None else UPDATE,
                None if old is None else encode_row(PRICES, old),
                None if new is None else encode_row(PRICES, new),
                ("px",) if old and new else ("id", "px"),
            )
        )
    return lines


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_the_vectors_pass_as_they_are(case: dict[str, Any]) -> None:
    everything = compile_predicate(PRICES, parse_filter(PRICES, {}))
    unmatch = case["unmatch"]
    condition = Condition(
        compile_predicate(PRICES, parse_filter(PRICES, case["match"])),
        None if unmatch is None else compile_predicate(PRICES, parse_filter(PRICES, unmatch)),
        everything,
        frozenset({"px"}),
    )
    alive = [Change(PRICES, it) for it in vector_lines() if it.received_at > case["since"]]
    found = transitions.step(condition, alive).transitions
    assert [
        {
            "event_type": one.event_type,
            "key": json.loads(one.row_key)[0],
            "ts": one.received_at,
            "event_id": event_id(case["trigger"], primary_key(PRICES, one.row), one.received_at),
            "data": json.loads(one.row),
        }
        for one in found
    ] == case["expected"]


def as_told(found: Sequence[Transition]) -> list[Told]:
    return [
        (one.event_type, json.loads(one.row_key)[0], one.received_at, json.loads(one.row))
        for one in found
    ]


def in_pages(
    step: StepFunction, condition: Condition, lines: Sequence[ChangeRow], cuts: Iterable[int]
) -> list[Transition]:
    """As an evaluator that is restarted after each page: only what was stored is known."""
    held: set[str] = set()
    found: list[Transition] = []
    bounds = [0, *sorted(cuts), len(lines)]
    for start, end in pairwise(bounds):
        changes = [Change(SCHEMA, line) for line in lines[start:end]]
        doubtful = transitions.keys_in_doubt(condition, changes)
        done = step(condition, changes, held & doubtful)
        assert not done.held & held
        assert done.released <= held
        held = (held | done.held) - done.released
        found += done.transitions
    return found


def tells_what_the_reference_does(step: StepFunction) -> Callable[[], None]:
    @given(thresholds(), pasts(), st.data())
    def holds(rules: Rules, commits: list[Commit], data: st.DataObject) -> None:
        since = data.draw(st.integers(0, len(commits)))
        until = data.draw(st.none() | st.integers(since, len(commits)))
        lines = [
            line
            for line in History(commits).lines
            if since < line.received_at and (until is None or line.received_at <= until)
        ]
        cuts = data.draw(st.sets(st.integers(0, len(lines)), max_size=4))
        found = in_pages(step, rules.condition, lines, cuts)
        assert as_told(found) == told(rules, commits, since, until)

    return holds


def test_any_cut_into_pages_and_restarts_gives_what_the_reference_tells() -> None:
    tells_what_the_reference_does(transitions.step)()


def firing_on_what_matched_already(
    condition: Condition, changes: Iterable[Change], held: Iterable[str]
) -> Step:
    done = transitions.step(condition, changes, held)
    known: set[str] = set()
    again = []
    for change in changes:
        key = change.line.row_key
        if condition.verdict(change.new) is True and key not in known:
            assert change.line.row is not None
            again.append(Transition("MATCH", change.line.received_at, key, change.line.row))
        known.add(key)
    new = {(one.received_at, one.row_key): one for one in (*again, *done.transitions)}
    return Step([new[place] for place in sorted(new)], done.held, done.released)


def losing_deletions(condition: Condition, changes: Iterable[Change], held: Iterable[str]) -> Step:
    done = transitions.step(condition, changes, held)
    deleted = {(c.line.received_at, c.line.row_key) for c in changes if c.line.op == DELETE}
    kept = [one for one in done.transitions if (one.received_at, one.row_key) not in deleted]
    return Step(kept, done.held, done.released)


def forgetting_what_is_held(
    condition: Condition, changes: Iterable[Change], held: Iterable[str]
) -> Step:
    return Step(transitions.step(condition, changes, ()).transitions, frozenset(), frozenset())


def blind_to_the_rule(condition: Condition, changes: Iterable[Change], held: Iterable[str]) -> Step:
    seeing_all = Condition(
        condition.match, condition.unmatch, lambda values: True, condition.columns
    )
    return transitions.step(seeing_all, changes, held)


@pytest.mark.parametrize(
    "broken",
    [
        firing_on_what_matched_already,
        losing_deletions,
        forgetting_what_is_held,
        blind_to_the_rule,
    ],
)
def test_a_planted_bug_is_caught(broken: StepFunction) -> None:
    assert_catches(tells_what_the_reference_does, broken)


def test_a_page_that_is_read_twice_would_be_noticed() -> None:
    lines = History([{1: quote(100)}, {1: quote(90)}]).lines
    once = in_pages(transitions.step, HOT.condition, lines, [1])
    twice = in_pages(transitions.step, HOT.condition, [*lines, *lines], [1])
    ids = {event_id("hot", primary_key(SCHEMA, one.row), one.received_at) for one in twice}
    assert len(once) == len(ids) == 2
    assert len(twice) == 4


def quote(px: int | None, *, desk: str = "a", note: str = "") -> dict[str, Any]:
    return {"id": 1, "px": px, "desk": desk, "note": note}


def step_of(rules: Rules, *changes: ChangeRow, held: Iterable[str] = ()) -> Step:
    return transitions.step(rules.condition, [Change(SCHEMA, line) for line in changes], held)


def test_a_row_that_matches_already_does_not_fire_when_something_else_changes() -> None:
    change = change_row(5, 1, quote(120), quote(120, note="x"))
    assert step_of(HOT, change) == Step([], frozenset(), frozenset())


def test_a_row_that_matches_already_is_not_lost_when_it_leaves() -> None:
    [one] = step_of(HOT, change_row(5, 1, quote(120), quote(90))).transitions
    assert (one.event_type, json.loads(one.row)) == ("UNMATCH", quote(90))


def test_a_deletion_shows_the_last_row() -> None:
    [one] = step_of(HOT, change_row(5, 1, quote(120), None)).transitions
    assert (one.event_type, json.loads(one.row)) == ("UNMATCH", quote(120))


def test_a_row_that_leaves_the_creators_rule_is_as_if_deleted() -> None:
    mine = Rules(match_from=100, desk="a")
    [one] = step_of(mine, change_row(5, 1, quote(120), quote(130, desk="b"))).transitions
    assert (one.event_type, json.loads(one.row)) == ("UNMATCH", quote(120))
    [one] = step_of(mine, change_row(5, 1, quote(120, desk="b"), quote(120))).transitions
    assert (one.event_type, json.loads(one.row)) == ("MATCH", quote(120))


def test_between_the_two_thresholds_the_past_decides() -> None:
    key = row_key(SCHEMA, [1])
    falling = change_row(5, 1, quote(101), quote(97))
    assert step_of(COOLING, falling) == Step([], frozenset({key}), frozenset())
    further = change_row(6, 1, quote(97), quote(94))
    done = step_of(COOLING, further, held=[key])
    assert [one.event_type for one in done.transitions] == ["UNMATCH"]
    assert done.released == {key}
    assert step_of(COOLING, further).transitions == []


def test_a_null_neither_matches_nor_unmatches() -> None:
    to_null = change_row(5, 1, quote(120), quote(None))
    assert step_of(COOLING, to_null).transitions == []
    assert [one.event_type for one in step_of(HOT, to_null).transitions] == ["UNMATCH"]


def test_a_key_that_is_held_by_mistake_is_released_at_its_next_change() -> None:
    key = row_key(SCHEMA, [1])
    mine = Rules(match_from=100, unmatch_below=95, desk="a")
    arriving = change_row(5, 1, quote(97, desk="b"), quote(97))
    changes = [Change(SCHEMA, arriving)]
    assert transitions.keys_in_doubt(mine.condition, changes) == {key}
    assert step_of(mine, arriving, held=[key]) == Step([], frozenset(), frozenset({key}))


def test_without_an_unmatch_nothing_is_ever_held() -> None:
    lines = History([{1: quote(101)}, {1: quote(97)}, {1: quote(None)}]).lines
    changes = [Change(SCHEMA, line) for line in lines]
    assert transitions.keys_in_doubt(HOT.condition, changes) == set()
    assert step_of(HOT, *lines).held == frozenset()


def test_a_change_of_other_columns_is_not_even_decoded() -> None:
    line = msgspec.structs.replace(
        change_row(5, 1, quote(120), quote(120, note="x")), old_row="?", row="?"
    )
    assert step_of(HOT, line).transitions == []
