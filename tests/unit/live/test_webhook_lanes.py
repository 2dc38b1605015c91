"""How attempts are shared out among hosts."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.live.webhooks.congestion import HostWindow
from tidemark.live.webhooks.counters import LATENCY_BOUNDS_S, Latency
from tidemark.live.webhooks.lanes import ROUNDS_HELD, DeliveryLimits, Lanes
from tidemark.live.webhooks.outbox import Delivery

FIRST_SIZE = DeliveryLimits().first_window


def delivery(number: int, host: str, trigger: str = "t") -> Delivery:
    url = f"https://{host}.example/"
    return Delivery(number, f"e{number}", trigger, url, "k", b"{}", 0, None, 0)


def test_a_silent_host_is_soon_down_to_one_probe_and_one_answer_opens_it() -> None:
    window = HostWindow(FIRST_SIZE, 32)
    for _ in range(40):
        window.answered(0.01)
    assert window.size == 32
    for _ in range(5):
        window.congested()
    assert window.size == 1
    assert window.is_struggling
    window.congested()
    assert window.size == 1
    window.answered(0.01)
    assert window.size == 2


def test_slow_answers_open_no_window_further_than_it_began() -> None:
    window = HostWindow(FIRST_SIZE, 32)
    window.answered(14.0)
    assert window.size == FIRST_SIZE
    for _ in range(9):
        window.congested()
    for _ in range(99):
        window.answered(14.0)
    assert window.size == FIRST_SIZE


@given(st.lists(st.sampled_from(["answer", "silence"])), st.integers(1, 50))
def test_a_window_is_never_shut_and_never_beyond_its_limit(events: list[str], limit: int) -> None:
    window = HostWindow(min(FIRST_SIZE, limit), limit)
    for event in events:
        window.answered(0.0) if event == "answer" else window.congested()
        assert 1 <= window.size <= limit


def test_hosts_take_turns_however_many_deliveries_each_has() -> None:
    lanes = Lanes(DeliveryLimits())
    for number in range(100):
        lanes.add(delivery(number, "busy"))
    for number in range(100, 103):
        lanes.add(delivery(number, "quiet"))
    turns = [lanes.take_turn() for _ in range(6)]
    assert Counter(turn[1].url for turn in turns if turn) == {
        "https://busy.example/": 3,
        "https://quiet.example/": 3,
    }


def test_no_host_has_more_attempts_than_its_window() -> None:
    lanes = Lanes(DeliveryLimits())
    for number in range(100):
        lanes.add(delivery(number, "a"))
    taken = [lanes.take_turn() for _ in range(FIRST_SIZE)]
    assert [turn[1].outbox_id for turn in taken if turn] == list(range(FIRST_SIZE))
    assert lanes.take_turn() is None
    lane = taken[0][0] if taken[0] else None
    assert lane is not None
    lane.in_flight -= 1
    lanes.queue_up(lane)
    assert lanes.take_turn() is not None
    assert lanes.take_turn() is None


def test_a_host_with_enough_is_skipped_until_some_of_it_is_done() -> None:
    lanes = Lanes(DeliveryLimits())
    for number in range(FIRST_SIZE * ROUNDS_HELD):
        assert lanes.full_hosts() == set()
        lanes.add(delivery(number, "a"))
    assert lanes.full_hosts() == {"a.example:443"}


def test_a_struggling_host_has_enough_with_one_probe() -> None:
    lanes = Lanes(DeliveryLimits())
    lanes.add(delivery(1, "a"))
    turn = lanes.take_turn()
    assert turn is not None
    for _ in range(3):
        turn[0].window.congested()
    assert lanes.full_hosts() == {"a.example:443"}


def test_a_trimmed_host_is_not_given_back_what_was_taken_from_it_at_once() -> None:
    lanes = Lanes(DeliveryLimits())
    for number in range(FIRST_SIZE * ROUNDS_HELD - 1):
        lanes.add(delivery(number, "a"))
    assert lanes.full_hosts() == set()
    assert len(lanes.trim()) == FIRST_SIZE * (ROUNDS_HELD - 1) - 1
    for _ in range(FIRST_SIZE):
        assert lanes.full_hosts() == {"a.example:443"}
        assert lanes.take_turn() is not None
    assert lanes.full_hosts() == set()


def test_what_is_taken_out_is_taken_out_whole() -> None:
    lanes = Lanes(DeliveryLimits())
    for number in range(20):
        lanes.add(delivery(number, "ab"[number % 2], "even" if number % 2 == 0 else "odd"))
    assert {d.outbox_id for d in lanes.trim()} == {16, 17, 18, 19}
    assert {d.trigger for d in lanes.take_out("odd")} == {"odd"}
    assert [d.outbox_id for d in lanes.take_out()] == list(range(0, 16, 2))
    assert lanes.take_turn() is None


def test_a_time_on_a_bound_belongs_to_it() -> None:
    latency = Latency()
    for seconds in (LATENCY_BOUNDS_S[0], 0.0, 99.0):
        latency.add(seconds)
    assert (latency.counts[0], latency.counts[-1], latency.count) == (2, 1, 3)


@pytest.mark.parametrize(
    ("in_flight", "per_host", "first"), [(512, 32, 8), (50, 10, 3), (1, 1, 1), (10_000, 2, 2)]
)
def test_no_unknown_host_begins_with_more_than_its_share(
    in_flight: int, per_host: int, first: int
) -> None:
    limits = DeliveryLimits(in_flight=in_flight, in_flight_per_host=per_host)
    assert limits.first_window == first
