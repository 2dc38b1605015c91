"""One time: `received_at`, the guarded leap forward, and ticks."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.events import (
    HOUR,
    SECOND,
    START,
    ManualClock,
    draft,
    drafts,
)
from tests.contract.stores import (
    Ledger,
    LedgerHome,
    all_commits,
    all_events,
    append,
    append_history,
)
from tidemark.config import load_config
from tidemark.errors import ClockLeap
from tidemark.ledger import clock_guard
from tidemark.ledger.ticker import run_ticker
from tidemark.ops.frontier import FrontierWatch
from tidemark.ops.health import Health
from tidemark.ops.metrics import Metrics
from tidemark.ops.opened_views import OpenedViews
from tidemark.web.messages import Request


class LeapingClock(ManualClock):
    """Leaps by two hours after some more readings, as a clock may at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.readings_left: int | None = None

    def wall_us(self) -> int:
        if self.readings_left is not None:
            self.readings_left -= 1
            if self.readings_left < 0:
                return super().wall_us() + 2 * HOUR
        return super().wall_us()


async def commit_times(ledger: Ledger) -> list[int]:
    return [commit.received_at for commit in await all_commits(ledger)]


async def assert_held(ledger: Ledger, key: str) -> None:
    before = await ledger.head()
    with pytest.raises(ClockLeap) as caught:
        await append(ledger, draft(key))
    assert caught.value.code == "clock_leap"
    assert "7200 s" in caught.value.message
    assert "confirm" in caught.value.hint
    assert await ledger.head() == before


async def test_received_at_is_the_clock_while_it_goes_forward(
    ledger: Ledger, clock: ManualClock
) -> None:
    for key in ("a", "b", "c"):
        await append(ledger, draft(key))
        clock.pass_time(SECOND)
    assert await commit_times(ledger) == [START, START + SECOND, START + 2 * SECOND]


async def test_received_at_goes_up_while_the_clock_stands_still(ledger: Ledger) -> None:
    for key in ("a", "b", "c"):
        await append(ledger, draft(key))
    assert await commit_times(ledger) == [START, START + 1, START + 2]


async def test_received_at_goes_up_when_the_clock_jumps_back(
    ledger: Ledger, clock: ManualClock
) -> None:
    await append(ledger, draft("a"))
    clock.step(-5 * HOUR)
    await append(ledger, draft("b"))
    clock.pass_time(SECOND)
    await append(ledger, draft("c"))
    clock.step(+5 * HOUR)
    await append(ledger, draft("d"))
    assert await commit_times(ledger) == [START, START + 1, START + 2, START + SECOND]


async def test_received_at_goes_up_over_a_restart_with_a_clock_that_is_behind(
    home: LedgerHome, clock: ManualClock
) -> None:
    await append(await home.open(clock), draft("a"))
    clock.step(-HOUR)
    ledger = await home.reopen(clock)
    await append(ledger, draft("b"))
    assert await commit_times(ledger) == [START, START + 1]


async def test_a_step_of_an_hour_is_no_leap(ledger: Ledger, clock: ManualClock) -> None:
    clock.step(HOUR)
    await append(ledger, draft("a"))
    assert await commit_times(ledger) == [START + HOUR]


async def test_a_long_silence_is_no_leap(ledger: Ledger, clock: ManualClock) -> None:
    await append(ledger, draft("a"))
    clock.pass_time(1000 * HOUR)
    await append(ledger, draft("b"))
    assert await commit_times(ledger) == [START, START + 1000 * HOUR]


async def test_a_leap_holds_ingest_until_it_is_confirmed(
    ledger: Ledger, clock: ManualClock
) -> None:
    await append(ledger, draft("a"))
    clock.step(2 * HOUR)
    await assert_held(ledger, "b")
    clock.pass_time(SECOND)
    await assert_held(ledger, "b")
    with pytest.raises(ClockLeap):
        await ledger.tick(0)
    with pytest.raises(ClockLeap):
        await ledger.check_clock()
    await ledger.confirm_clock()
    await ledger.check_clock()
    await append(ledger, draft("b"))
    assert await commit_times(ledger) == [START, START + 2 * HOUR + SECOND]
    clock.step(2 * HOUR)
    await assert_held(ledger, "c")


async def test_several_steps_add_up_to_a_leap(ledger: Ledger, clock: ManualClock) -> None:
    clock.step(40 * 60 * SECOND)
    await append(ledger, draft("a"))
    clock.step(80 * 60 * SECOND)
    await assert_held(ledger, "b")


async def test_setting_the_clock_back_does_not_confirm_a_leap(
    ledger: Ledger, clock: ManualClock
) -> None:
    clock.step(2 * HOUR)
    await assert_held(ledger, "a")
    clock.step(-2 * HOUR)
    await assert_held(ledger, "a")
    await ledger.confirm_clock()
    await append(ledger, draft("a"))
    assert await commit_times(ledger) == [START]


async def test_asking_for_the_clock_does_not_confirm_a_leap(
    ledger: Ledger, clock: ManualClock
) -> None:
    clock.step(2 * HOUR)
    with pytest.raises(ClockLeap):
        await ledger.check_clock()
    await assert_held(ledger, "a")
    await assert_held(ledger, "a")


@pytest.mark.parametrize("readings", range(4))
async def test_a_leap_at_any_moment_of_an_append_holds_the_next_one(
    home: LedgerHome, readings: int
) -> None:
    clock = LeapingClock()
    ledger = await home.open(clock)
    clock.readings_left = readings
    try:
        await append(ledger, draft("a"))
    except ClockLeap:
        assert await all_events(ledger) == []
    clock.readings_left = 0
    await assert_held(ledger, "b")
    await assert_held(ledger, "b")
    assert await commit_times(ledger) in ([], [START])
    await assert_held(await home.reopen(clock), "b")


async def test_a_leap_holds_all_that_is_under_way_at_once(
    ledger: Ledger, clock: ManualClock
) -> None:
    clock.step(2 * HOUR)
    results = await asyncio.gather(
        *(append(ledger, draft(f"key-{number}")) for number in range(8)), return_exceptions=True
    )
    assert [type(result) for result in results] == [ClockLeap] * 8
    assert await all_events(ledger) == []


async def test_a_hold_is_kept_over_a_restart(home: LedgerHome, clock: ManualClock) -> None:
    ledger = await home.open(clock)
    clock.step(2 * HOUR)
    await assert_held(ledger, "a")
    ledger = await home.reopen(clock)
    await assert_held(ledger, "a")
    await ledger.confirm_clock()
    ledger = await home.reopen(clock)
    await append(ledger, draft("a"))
    assert await commit_times(ledger) == [START + 2 * HOUR]


async def test_a_leap_while_nothing_runs_is_noticed_by_the_next_process(
    home: LedgerHome, clock: ManualClock
) -> None:
    await append(await home.open(clock), draft("a"))
    await home.close()
    clock.pass_time(HOUR)
    clock.step(2 * HOUR)
    await assert_held(await home.open(clock), "b")


async def test_another_process_may_confirm(home: LedgerHome, clock: ManualClock) -> None:
    held, other = await home.open(clock), await home.open(clock)
    clock.step(2 * HOUR)
    await assert_held(held, "a")
    await other.confirm_clock()
    await append(held, draft("a"))
    assert await commit_times(held) == [START + 2 * HOUR]


async def test_asking_for_the_clock_notices_that_another_process_has_confirmed(
    home: LedgerHome, clock: ManualClock
) -> None:
    held, other = await home.open(clock), await home.open(clock)
    clock.step(2 * HOUR)
    with pytest.raises(ClockLeap):
        await held.check_clock()
    await other.confirm_clock()
    await held.check_clock()


async def test_a_held_process_is_ready_again_when_another_has_confirmed(
    home: LedgerHome, clock: ManualClock, tmp_path: Path
) -> None:
    async def no_body() -> dict[str, Any]:
        raise AssertionError("there is no body to read")

    held, other = await home.open(clock), await home.open(clock)
    config = load_config(None, {"TIDEMARK_STATE_DIR": str(tmp_path)})
    views = OpenedViews(config)
    watch = FrontierWatch(views, held, clock)
    health = Health(config, held, views, watch, Metrics(), clock)
    request = Request({"type": "http", "headers": []}, no_body)
    assert (await health.readyz(request)).status == 200
    clock.step(2 * HOUR)
    assert (await health.readyz(request)).status == 503
    await other.confirm_clock()
    assert (await health.readyz(request)).status == 200


async def test_asking_for_a_clock_that_is_right_does_not_touch_the_ledger(
    home: LedgerHome, ledger: Ledger
) -> None:
    await home.sql("UPDATE ledger SET clock_hold = 'nobody reads this'")
    await ledger.check_clock()


async def test_a_leap_and_its_confirmation_are_of_one_machine(
    home: LedgerHome, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = await home.open(clock)
    clock.step(2 * HOUR)
    await assert_held(held, "a")
    monkeypatch.setattr(clock_guard, "boot_id", lambda: "another boot")
    monkeypatch.setattr("socket.gethostname", lambda: "another host")
    other = await home.open(ManualClock())
    await append(other, draft("b"))
    await other.confirm_clock()
    await assert_held(held, "a")
    monkeypatch.undo()
    await assert_held(await home.open(clock), "a")
    await held.confirm_clock()
    await append(held, draft("a"))
    assert await commit_times(held) == [START, START + 2 * HOUR]


async def test_one_confirmation_is_enough_for_a_process_that_was_quiet_meanwhile(
    home: LedgerHome, clock: ManualClock
) -> None:
    busy, quiet = await home.open(clock), await home.open(clock)
    clock.step(2 * HOUR)
    await assert_held(busy, "a")
    await busy.confirm_clock()
    await append(busy, draft("a"))
    await append(quiet, draft("b"))
    assert len(await all_events(busy)) == 2
    clock.step(2 * HOUR)
    await assert_held(quiet, "c")


async def test_a_tick_is_written_only_after_silence(ledger: Ledger, clock: ManualClock) -> None:
    await append(ledger, draft("a"))
    clock.pass_time(SECOND - 1)
    assert await ledger.tick(SECOND) is None
    clock.pass_time(1)
    ticked = await ledger.tick(SECOND)
    assert ticked is not None
    assert await ledger.tick(SECOND) is None
    clock.pass_time(SECOND)
    assert await ledger.tick(SECOND) is not None
    assert await commit_times(ledger) == [START, START + SECOND, START + 2 * SECOND]


async def test_a_tick_is_a_commit_without_events_and_moves_the_chain(
    ledger: Ledger, clock: ManualClock
) -> None:
    await append(ledger, *drafts("a", "b"))
    before = await ledger.head()
    clock.pass_time(SECOND)
    ticked = await ledger.tick(SECOND)
    assert ticked == await ledger.head()
    assert ticked.last_sequence == 2
    assert ticked.chain == hashlib.sha256(before.chain).digest()
    tick = (await all_commits(ledger))[-1]
    assert (tick.first_sequence, tick.last_sequence) == (3, 2)
    assert (tick.received_at, tick.chain) == (ticked.received_at, ticked.chain)
    [outcome] = await append(ledger, draft("c"))
    assert outcome.ingress_sequence == 3


async def test_duplicates_do_not_break_the_silence(ledger: Ledger, clock: ManualClock) -> None:
    await append(ledger, draft("a"))
    clock.pass_time(SECOND)
    await append(ledger, draft("a"))
    assert await ledger.tick(SECOND) is not None


async def test_two_stores_that_tick_at_once_write_one_tick(
    home: LedgerHome, clock: ManualClock
) -> None:
    one, other = await home.open(clock), await home.open(clock)
    await append(one, draft("a"))
    for _ in range(5):
        clock.pass_time(SECOND)
        ticks = await asyncio.gather(*(store.tick(SECOND) for store in (one, other) * 3))
        assert sum(tick is not None for tick in ticks) == 1
    assert len(await all_commits(one)) == 6


async def test_a_ticker_ticks_while_it_is_silent_and_outlives_a_hold(
    ledger: Ledger, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def until(condition: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + 10
        while not await condition():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.005)

    async def has_ticks(count: int) -> bool:
        clock.pass_time(SECOND)
        return len(await all_commits(ledger)) >= count

    async def has_complained() -> bool:
        return "no tick was written" in caplog.text

    ticking = asyncio.create_task(run_ticker(ledger, tick_us=2_000))
    await until(lambda: has_ticks(3))
    clock.step(2 * HOUR)
    await until(has_complained)
    await ledger.confirm_clock()
    written = len(await all_commits(ledger))
    await until(lambda: has_ticks(written + 2))
    ticking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ticking
    assert await all_events(ledger) == []


async def test_an_import_keeps_the_times_of_its_history_whatever_the_clock_says(
    ledger: Ledger, clock: ManualClock
) -> None:
    clock.step(2 * HOUR)
    await append_history(ledger, (5, draft("a", occurred_at=None)))
    await append_history(
        ledger, (17, draft("b", occurred_at=None)), (START - 1, draft("c", occurred_at=None))
    )
    assert await commit_times(ledger) == [5, 17, START - 1]
    assert [event.occurred_at for event in await all_events(ledger)] == [5, 17, START - 1]
