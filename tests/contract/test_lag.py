"""How far behind the ledger its followers are, measured on both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.events import SECOND, START, ManualClock, draft
from tests.contract.stores import Ledger, append
from tests.contract.triggers_home import (
    SQLITE_SCHEME,
    Triggers,
    TriggersHome,
    claimed,
    enqueue,
    event,
    new_trigger,
    settled,
)
from tidemark.app.telling import whole_until
from tidemark.config import load_config
from tidemark.errors import TidemarkError
from tidemark.ledger.port import CopyState
from tidemark.live.triggers.outbox_programs import GONE_REASON
from tidemark.live.triggers.port import Advance
from tidemark.live.triggers.registration import SWITCHED_OFF
from tidemark.mirror.telling import MIRROR
from tidemark.ops.copies import CLICKHOUSE, PARQUET, SILENT_AFTER_US, Copies
from tidemark.ops.delivery import Delivery, DeliveryPart, Webhooks, age_s
from tidemark.ops.lag import Lag, Lags
from tidemark.ops.parts import Part
from tidemark.timestamps import format_timestamp


@pytest.fixture
async def commits(ledger: Ledger, clock: ManualClock) -> list[int]:
    """The times of: the event 1; a tick; the events 2 to 4; the event 5."""
    times = []
    for names in (("a",), (), ("b", "c", "d"), ("e",)):
        clock.pass_time(10 * SECOND)
        if names:
            await append(ledger, *map(draft, names))
        else:
            assert await ledger.tick(0) is not None
        times.append((await ledger.head()).received_at)
    clock.pass_time(10 * SECOND)
    return times


async def test_lag_is_the_events_that_are_missing_and_the_wait_of_the_oldest_commit(
    ledger: Ledger, clock: ManualClock, commits: list[int]
) -> None:
    lags, head = Lags(ledger, clock), await ledger.head()
    assert [
        await lags.of_commits(head, sequence, received_at)
        for sequence, received_at in ((0, 0), (1, commits[0]), (1, commits[1]), (4, commits[2]))
    ] == [Lag(5, 40.0), Lag(4, 30.0), Lag(4, 20.0), Lag(1, 10.0)]
    assert await lags.of_commits(head, 5, commits[3]) == Lag(0, 0.0)
    # Who holds events only never lacked the tick; and a commit that is there in part is missing.
    assert [await lags.of_events(head, sequence) for sequence in (0, 1, 3, 4, 5)] == [
        Lag(5, 40.0), Lag(4, 20.0), Lag(2, 20.0), Lag(1, 10.0), Lag(0, 0.0),
    ]  # fmt: skip


async def test_a_tick_alone_is_waited_for_by_who_follows_commits(
    ledger: Ledger, clock: ManualClock, commits: list[int]
) -> None:
    assert await ledger.tick(0) is not None
    clock.pass_time(3 * SECOND)
    lags, head = Lags(ledger, clock), await ledger.head()
    assert await lags.of_commits(head, 5, commits[3]) == Lag(0, 3.0)
    assert await lags.of_events(head, 5) == Lag(0, 0.0)


async def test_a_mirror_lacks_ticks_and_landing_does_not(
    ledger: Ledger, clock: ManualClock, commits: list[int]
) -> None:
    assert await ledger.tick(0) is not None
    clock.pass_time(3 * SECOND)
    env = {"TIDEMARK_MIRROR__ENABLED": "true", "TIDEMARK_LANDING__PARQUET__ENABLED": "true"}
    copies = Copies(load_config(None, env), Lags(ledger, clock), clock)
    told = {
        name: CopyState(name, 5, commits[3], clock.wall_us())
        for name in (MIRROR, PARQUET, CLICKHOUSE)
    }
    parts = await copies.parts(told, await ledger.head())
    assert {name: (part.state, part.lag_seconds) for name, part in parts.items()} == {
        MIRROR: ("ready", 3.0),
        PARQUET: ("ready", 0.0),
        # Told of once, and not wanted any more.
        CLICKHOUSE: ("disabled", None),
    }


async def test_a_wrong_clock_does_not_make_a_copy_silent_nor_a_silent_one_heard(
    ledger: Ledger, clock: ManualClock, commits: list[int]
) -> None:
    def told_at(wall_us: int) -> dict[str, CopyState]:
        return {MIRROR: CopyState(MIRROR, 5, commits[3], wall_us)}

    async def state(told: dict[str, CopyState], copies: Copies) -> str:
        return (await copies.parts(told, await ledger.head()))[MIRROR].state

    def looked_from() -> Copies:
        config = load_config(None, {"TIDEMARK_MIRROR__ENABLED": "true"})
        return Copies(config, Lags(ledger, clock), clock)

    hour = 3600 * SECOND
    for wrong_us in (-hour, 0, hour):
        copies = looked_from()
        # For the first look there is nothing else to go by.
        first = "degraded" if wrong_us < 0 else "ready"
        assert await state(told_at(clock.wall_us() + wrong_us), copies) == first
        for _ in range(40):
            clock.pass_time(SECOND)
            last = told_at(clock.wall_us() + wrong_us)
            assert await state(last, copies) == "ready"
        # Whoever looks may have a clock that is set.
        clock.step(hour)
        assert await state(last, copies) == "ready"
        clock.step(-hour)
        # It is known to a second, which is how often was looked.
        clock.pass_time(SILENT_AFTER_US - SECOND)
        assert await state(last, copies) == "ready"
        clock.pass_time(2 * SECOND)
        assert await state(last, copies) == "degraded"
        # It goes on, and is listened to, however seldom it is looked.
        for _ in range(40):
            clock.pass_time(SECOND)
            copies.hear(last := told_at(clock.wall_us() + wrong_us))
        assert await state(last, copies) == "ready"
    # Nobody has listened for long: it was heard when it said so, and not when it was seen.
    copies = looked_from()
    assert await state(told_at(clock.wall_us()), copies) == "ready"
    clock.pass_time(hour)
    assert await state(told_at(clock.wall_us() - SILENT_AFTER_US - 1), copies) == "degraded"


async def test_a_copy_is_whole_up_to_the_commit_before_the_first_event_it_lacks(
    ledger: Ledger, commits: list[int]
) -> None:
    assert [await whole_until(ledger, sequence) for sequence in range(6)] == [
        0, commits[1], commits[1], commits[1], commits[2], commits[3],
    ]  # fmt: skip


@pytest.fixture
async def triggers(tmp_path: Path) -> AsyncIterator[Triggers]:
    place = TriggersHome(f"{SQLITE_SCHEME}{tmp_path / 'triggers.db'}")
    yield await place.open()
    await place.close()


async def delivery_of(
    ledger: Ledger, clock: ManualClock, triggers: Triggers | None, live: Part | None = None
) -> DeliveryPart:
    part = Part("ready") if live is None else live
    delivery = Delivery(ledger, Lags(ledger, clock), clock, lambda: part, lambda: triggers)
    return await delivery.part(await delivery.look(), await ledger.head())


async def test_delivery_is_as_far_as_the_slowest_trigger_that_is_enabled(
    ledger: Ledger, clock: ManualClock, triggers: Triggers, commits: list[int]
) -> None:
    none = await delivery_of(ledger, clock, triggers)
    assert (none.state, none.webhooks) == ("disabled", Webhooks("0", "0"))
    await triggers.add(new_trigger("quick"), commits[3], START)
    await triggers.add(new_trigger("slow"), commits[1], START)
    part = await delivery_of(ledger, clock, triggers)
    assert (part.state, part.slowest_trigger, part.last_sequence) == ("ready", "slow", "1")
    assert (part.lag_events, part.lag_seconds) == ("4", 20.0)
    await triggers.set_enabled("slow", False)
    part = await delivery_of(ledger, clock, triggers)
    assert (part.slowest_trigger, part.last_sequence) == ("quick", "5")
    assert (part.lag_events, part.lag_seconds) == ("0", 0.0)


async def test_what_no_receiver_has_taken_is_not_delivered(
    ledger: Ledger, clock: ManualClock, triggers: Triggers, commits: list[int]
) -> None:
    slow = await triggers.add(new_trigger("slow"), commits[2], START)
    hot = await triggers.add(new_trigger("hot"), commits[3] - 1, START)
    some = [event(str(at), f"[{at}]", at) for at in (commits[0], commits[3])]
    await enqueue(triggers, hot, *some)
    part = await delivery_of(ledger, clock, triggers)
    # Of the first commit nothing has arrived, and nothing was before it.
    assert (part.state, part.slowest_trigger, part.last_sequence) == ("ready", "hot", "0")
    assert (part.received_at, part.lag_events, part.lag_seconds) == (None, "5", 40.0)
    assert (part.evaluated_sequence, part.evaluation_lag_seconds) == ("4", 10.0)
    assert part.webhooks == Webhooks("2", "0", 40.0)
    first, last = await claimed(triggers)
    await triggers.settle([settled(first)])
    await triggers.advance([Advance(slow.id, commits[2], commits[3])])
    part = await delivery_of(ledger, clock, triggers)
    assert (part.slowest_trigger, part.last_sequence, part.lag_seconds) == ("hot", "4", 10.0)
    assert part.received_at == format_timestamp(commits[2])
    assert (part.evaluated_sequence, part.evaluation_lag_seconds) == ("5", 0.0)
    # What was given up will not be delivered, and holds nothing back.
    await triggers.settle([settled(last, "dead")])
    part = await delivery_of(ledger, clock, triggers)
    assert (part.last_sequence, part.lag_events, part.lag_seconds) == ("5", "0", 0.0)
    assert part.webhooks == Webhooks("0", "1")


async def test_webhooks_that_were_given_up_degrade_delivery(
    ledger: Ledger, clock: ManualClock, triggers: Triggers, commits: list[int]
) -> None:
    trigger = await triggers.add(new_trigger("hot"), commits[3], START)
    await enqueue(triggers, trigger, event("one", "[1]"), event("two", "[1]"), event("x", "[2]"))
    part = await delivery_of(ledger, clock, triggers)
    assert (part.state, part.webhooks) == ("ready", Webhooks("3", "0", age_s(1, clock.wall_us())))
    await triggers.settle([settled((await claimed(triggers))[0], "dead")])
    part = await delivery_of(ledger, clock, triggers)
    assert (part.state, part.webhooks) == (
        "degraded",
        Webhooks("2", "1", age_s(1, clock.wall_us())),
    )
    assert "tidemark triggers redeliver" in part.reason
    # But the others go on.
    assert part.is_up
    part = await delivery_of(ledger, clock, triggers, Part("degraded", "no secret"))
    assert (part.reason, part.is_up) == ("no secret", False)


async def test_a_trigger_that_could_not_go_on_degrades_delivery(
    ledger: Ledger, clock: ManualClock, triggers: Triggers, commits: list[int]
) -> None:
    hot, cold = [
        await triggers.add(new_trigger(name), commits[3], START) for name in ("hot", "cold")
    ]
    for reason in (None, SWITCHED_OFF, GONE_REASON):
        await triggers.set_enabled("hot", False, reason)
        part = await delivery_of(ledger, clock, triggers)
        assert (part.state, part.slowest_trigger) == ("ready", "cold")
    await triggers.set_enabled("hot", True)
    await triggers.halt(hot.id, "it lost its place: the log is gone")
    part = await delivery_of(ledger, clock, triggers)
    assert (part.state, part.slowest_trigger, part.is_up) == ("degraded", "cold", False)
    assert part.reason == "trigger hot is disabled: it lost its place: the log is gone."
    # Also if there is no other, or if webhooks were given up before.
    await enqueue(triggers, cold, event("one", "[1]"))
    await triggers.settle([settled((await claimed(triggers))[0], "dead")])
    await triggers.halt(cold.id, "its view v is configured no more")
    part = await delivery_of(ledger, clock, triggers)
    assert (part.state, part.is_up, part.webhooks) == ("degraded", False, Webhooks("0", "1"))
    assert part.reason == (
        "trigger cold is disabled: its view v is configured no more."
        " It is one of 2: see `tidemark triggers list`."
    )
    for name in ("hot", "cold"):
        await triggers.remove(name)
    assert (await delivery_of(ledger, clock, triggers)).state == "disabled"


async def test_delivery_says_what_is_wrong_with_what_it_stands_on(
    ledger: Ledger, clock: ManualClock, triggers: Triggers
) -> None:
    await triggers.add(new_trigger("hot"), 0, START)
    part = await delivery_of(ledger, clock, triggers, Part("degraded", "no secret"))
    assert (part.state, part.reason, part.slowest_trigger) == ("degraded", "no secret", "hot")
    nothing_yet = Part("disabled", "no view yet")
    part = await delivery_of(ledger, clock, None, nothing_yet)
    assert (part.state, part.reason) == ("disabled", "no view yet")
    part = await delivery_of(ledger, clock, triggers, nothing_yet)
    assert (part.state, part.reason, part.last_sequence) == ("disabled", "no view yet", None)
    assert part.webhooks == Webhooks("0", "0")
    delivery = Delivery(ledger, Lags(ledger, clock), clock, lambda: Part("ready"), lambda: triggers)
    away = await delivery.part(TidemarkError("away"), await ledger.head())
    assert (away.state, away.reason) == ("degraded", "away")
    without_ledger = await delivery.part(await delivery.look(), None)
    assert (without_ledger.state, without_ledger.lag_events) == ("degraded", None)
    assert without_ledger.webhooks == Webhooks("0", "0")
