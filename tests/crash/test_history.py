"""The judge of histories is itself judged: one planted fault of each kind, and it must see it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from tests.crash.history import (
    GENESIS,
    Acknowledgement,
    Head,
    History,
    StoredCommit,
    StoredEvent,
    violations,
)

# How many events each commit holds; the third is a tick.
COMMITS = (2, 3, 0, 1, 4)


def sound_history() -> History:
    events: list[StoredEvent] = []
    commits: list[StoredCommit] = []
    chain = GENESIS
    for number, size in enumerate(COMMITS, 1):
        first = len(events) + 1
        for sequence in range(first, first + size):
            content = hashlib.sha256(b"%d" % sequence).digest()
            events.append(
                StoredEvent(sequence, number * 100, content, "acme", f"k{sequence}", f"m{sequence}")
            )
        chain = hashlib.sha256(
            chain + b"".join(event.content_hash for event in events[first - 1 :])
        ).digest()
        commits.append(StoredCommit(number * 100, first, len(events), chain))
    return History(events, commits, Head(len(events), len(COMMITS) * 100, chain))


def answers_for(history: History, status: str = "accepted") -> list[Acknowledgement]:
    """One answer per commit, as if each had been one request."""
    return [
        Acknowledgement(e.received_at, e.mark, status, e.tenant, e.key, e.sequence, e.received_at)
        for e in history.events
    ]


def sealed(history: History) -> History:
    """Whoever tampers may also seal again: chain and head as the tampered events have them."""
    hashes = {event.sequence: event.content_hash for event in history.events}
    chain = GENESIS
    commits = []
    for commit in history.commits:
        content = [hashes.get(n, b"") for n in range(commit.first, commit.last + 1)]
        chain = hashlib.sha256(chain + b"".join(content)).digest()
        commits.append(commit._replace(chain=chain))
    last = commits[-1]
    return History(history.events, commits, Head(last.last, last.received_at, chain))


def with_events(history: History, change: Callable[[list[StoredEvent]], object]) -> History:
    events = list(history.events)
    change(events)
    return sealed(history._replace(events=events))


def with_commits(history: History, change: Callable[[list[StoredCommit]], object]) -> History:
    commits = list(history.commits)
    change(commits)
    return sealed(history._replace(commits=commits))


def test_a_sound_history_has_no_fault() -> None:
    history = sound_history()
    marks = {event.mark for event in history.events}
    assert violations(history, answers_for(history), sent=marks, all_answered=True) == []


def test_an_empty_ledger_has_no_fault() -> None:
    assert violations(History([], [], Head(0, 0, GENESIS)), sent=(), all_answered=True) == []


def test_an_answer_may_be_repeated_and_an_event_may_be_stored_without_an_answer() -> None:
    history = sound_history()
    some = answers_for(history)[:4]
    again = [said._replace(answer=99, status="duplicate") for said in some]
    assert violations(history, [*some, *again]) == []


def test_a_gap_is_found() -> None:
    history = with_events(sound_history(), lambda events: events.pop(4))
    assert any("gap or reorder: place 5 has sequence 6" in line for line in violations(history))


def test_a_lost_acknowledgement_is_found() -> None:
    whole = sound_history()
    # The last commit is gone, as if it had been answered before it was durable.
    cut = sealed(whole._replace(events=whole.events[:6], commits=whole.commits[:4]))
    assert violations(cut) == []
    found = violations(cut, answers_for(whole))
    assert len(found) == 4
    assert all(line.startswith("lost: ") for line in found)


def test_two_events_that_changed_places_are_found() -> None:
    whole = sound_history()

    def swap(events: list[StoredEvent]) -> None:
        third, fourth = events[2], events[3]
        events[2] = fourth._replace(sequence=3)
        events[3] = third._replace(sequence=4)

    swapped = with_events(whole, swap)
    assert violations(swapped) == []
    found = violations(swapped, answers_for(whole))
    assert [line.split(":")[0] for line in found] == ["moved", "moved"]


def test_rows_out_of_order_are_found() -> None:
    def swap(events: list[StoredEvent]) -> None:
        events[2], events[3] = events[3], events[2]

    found = violations(with_events(sound_history(), swap))
    assert any("gap or reorder: place 3 has sequence 4" in line for line in found)


@pytest.mark.parametrize("at", [0, 2, 4])
def test_a_broken_chain_is_found(at: int) -> None:
    history = sound_history()
    commits = list(history.commits)
    commits[at] = commits[at]._replace(chain=hashlib.sha256(b"other").digest())
    found = violations(history._replace(commits=commits))
    assert any(line.startswith("chain broken at commit") for line in found)


def test_content_that_changed_under_its_number_breaks_the_chain() -> None:
    history = sound_history()
    events = list(history.events)
    events[3] = events[3]._replace(content_hash=bytes(32))
    found = violations(history._replace(events=events))
    assert found[0] == "chain broken at commit 3…5"


def test_a_commit_that_is_missing_is_found() -> None:
    found = violations(with_commits(sound_history(), lambda commits: commits.pop(1)))
    assert "commit 6…5 does not go on from 2" in found


def test_commits_that_overlap_are_found() -> None:
    def overlap(commits: list[StoredCommit]) -> None:
        commits[3] = commits[3]._replace(first=5)

    found = violations(with_commits(sound_history(), overlap))
    assert "commit 5…6 does not go on from 5" in found


def test_events_after_the_last_commit_are_found() -> None:
    found = violations(with_commits(sound_history(), lambda commits: commits.pop()))
    assert "commits reach 6, but there are 10 events" in found


@pytest.mark.parametrize("step_us", [0, -1])
def test_time_that_stands_still_or_goes_back_is_found(step_us: int) -> None:
    def turn_back(commits: list[StoredCommit]) -> None:
        commits[2] = commits[2]._replace(received_at=commits[1].received_at + step_us)

    found = violations(with_commits(sound_history(), turn_back))
    assert [line for line in found if line.startswith("received_at")]


def test_an_event_that_does_not_have_its_commits_time_is_found() -> None:
    def late(events: list[StoredEvent]) -> None:
        events[0] = events[0]._replace(received_at=events[0].received_at + 1)

    found = violations(with_events(sound_history(), late))
    assert found == ["event 1 was received at 101, its commit at 100"]


def test_a_head_that_is_not_the_last_commit_is_found() -> None:
    history = sound_history()
    found = violations(history._replace(head=history.head._replace(last=11)))
    assert [line for line in found if line.startswith("the head is")]


@pytest.mark.parametrize(("key", "mark"), [("k1", "m10"), ("k10", "m1")])
def test_an_event_that_is_stored_twice_is_found(key: str, mark: str) -> None:
    def repeat(events: list[StoredEvent]) -> None:
        events[9] = events[9]._replace(key=key, mark=mark)

    [found] = violations(with_events(sound_history(), repeat))
    assert found.startswith("stored 2 times")


def test_an_answer_with_another_number_or_time_or_key_is_found() -> None:
    history = sound_history()
    said = answers_for(history)[4]._replace(status="duplicate")
    for wrong, kind in (
        (said._replace(sequence=6), "moved"),
        (said._replace(received_at=said.received_at + 1), "moved"),
        (said._replace(key="other"), "renamed"),
        (said._replace(tenant="other"), "renamed"),
    ):
        [found] = violations(history, [wrong])
        assert found.startswith(f"{kind}: ")


def test_an_event_that_was_accepted_twice_is_found() -> None:
    history = sound_history()
    answers = answers_for(history)
    [found] = violations(history, [*answers, answers[0]._replace(answer=99)])
    assert found == "accepted 2 times: the event marked m1"


def test_a_request_that_is_spread_over_commits_or_out_of_order_is_found() -> None:
    history = sound_history()
    answers = answers_for(history)
    spread = [said._replace(answer=1) for said in answers[:3]]
    assert violations(history, spread)[0].startswith("one request, but not one run")
    backwards = [said._replace(answer=1) for said in (answers[1], answers[0])]
    assert violations(history, backwards)[0].startswith("one request, but not one run")


def test_an_event_that_nobody_sent_and_one_that_is_missing_are_found() -> None:
    history = sound_history()
    marks = {event.mark for event in history.events} - {"m3"} | {"m99"}
    assert violations(history, sent=marks) == ["invented: nobody sent the event marked m3"]
    assert violations(history, sent=marks, all_answered=True) == [
        "invented: nobody sent the event marked m3",
        "missing: the event marked m99",
    ]


def test_only_the_first_faults_of_a_kind_are_told_one_by_one() -> None:
    history = sound_history()
    found = violations(history, sent=(), all_answered=True)
    assert len(found) == 6
    assert found[-1] == "… and 5 more of this kind"
