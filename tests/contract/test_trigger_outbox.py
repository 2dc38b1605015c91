"""The outbox: in order for each row, rows independent, nothing lost, nothing invented."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

from tests.contract.events import START
from tests.contract.triggers_home import (
    LEASE,
    Triggers,
    TriggersHome,
    claimed,
    enqueue,
    event,
    ids,
    new_trigger,
    retried,
    settled,
)
from tidemark.live.triggers import outbox_programs
from tidemark.live.triggers.outbox_programs import GONE_REASON, KEPT_ATTEMPTS
from tidemark.live.triggers.port import OutboxCount
from tidemark.live.triggers.programs import Program, ask
from tidemark.live.webhooks.outbox import Outbox

pytest_plugins = ("tests.contract.triggers_fixtures",)

LATER = START + 3_600_000_000


async def test_of_each_row_only_the_oldest_event_is_given_out(triggers: Triggers) -> None:
    outbox: Outbox = triggers
    trigger = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, trigger, event("a1"), event("b1", "[2]"), event("a2"))
    await enqueue(triggers, trigger, event("a3"), event("b2", "[2]"))
    first = await outbox.claim(START, 10, LEASE, ())
    assert ids(first) == ["a1", "b1"]
    assert [(one.payload, one.attempts, one.first_attempt_at) for one in first] == [
        (b"a1", 0, None),
        (b"b1", 0, None),
    ]
    assert await claimed(triggers) == []
    await outbox.settle([settled(first[0])])
    [second] = await claimed(triggers)
    assert second.event_id == "a2"
    await outbox.settle([settled(first[1]), settled(second)])
    assert ids(await claimed(triggers)) == ["a3", "b2"]


async def test_a_failed_event_holds_up_its_row_and_no_other(triggers: Triggers) -> None:
    trigger = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, trigger, event("a1"), event("a2"), event("b1", "[2]"))
    a1, b1 = await claimed(triggers)
    await triggers.settle([retried(a1, LATER), settled(b1)])
    assert await triggers.next_due(()) == LATER
    assert await claimed(triggers, LATER - 1) == []
    [again] = await claimed(triggers, LATER)
    assert (again.event_id, again.attempts, again.first_attempt_at) == ("a1", 1, START)
    await triggers.settle([settled(again)])
    assert ids(await claimed(triggers, LATER)) == ["a2"]


async def test_a_dead_letter_frees_its_row(triggers: Triggers) -> None:
    trigger = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, trigger, event("a1"), event("a2"))
    [a1] = await claimed(triggers)
    await triggers.settle([settled(a1, "dead")])
    assert ids(await claimed(triggers)) == ["a2"]
    page = await triggers.deliveries("hot", status="dead", limit=10)
    [dead] = page.deliveries
    assert (dead.event_id, dead.attempts, dead.last_status) == ("a1", 1, 500)
    assert (dead.last_error, dead.settled_at, dead.next_attempt_at) == ("answered 500", START, None)


async def test_two_that_claim_at_once_never_get_the_same_event(
    triggers_home: TriggersHome,
) -> None:
    stores = [await triggers_home.open() for _ in range(3)]
    trigger = await stores[0].add(new_trigger(), 0, START)
    await enqueue(stores[0], trigger, *(event(f"e{n}", f"[{n}]") for n in range(60)))
    claims = await asyncio.gather(*(claimed(store, limit=15) for store in stores for _ in "ab"))
    got = [one for claim in claims for one in ids(claim)]
    assert len(got) == len(set(got)) == 60


async def test_enqueueing_beside_settling_leaves_no_event_behind(
    triggers_home: TriggersHome,
) -> None:
    stores = [await triggers_home.open() for _ in range(2)]
    trigger = await stores[0].add(new_trigger(), 0, START)

    async def fill() -> None:
        for number in range(40):
            await enqueue(stores[0], trigger, event(f"e{number:02}"))

    async def drain() -> list[str]:
        seen: list[str] = []
        while len(seen) < 40:
            for one in await claimed(stores[1]):
                seen.append(one.event_id)
                await stores[1].settle([settled(one)])
        return seen

    _, seen = await asyncio.wait_for(asyncio.gather(fill(), drain()), 60)
    assert seen == [f"e{number:02}" for number in range(40)]


async def test_a_claim_ends_with_its_lease_and_then_counts_for_nothing(triggers: Triggers) -> None:
    trigger = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, trigger, event("a1"), event("a2"))
    [stale] = await claimed(triggers)
    assert stale.lease_until == START + LEASE
    assert await triggers.next_due(()) == stale.lease_until
    assert await claimed(triggers, stale.lease_until - 1) == []
    [fresh] = await claimed(triggers, stale.lease_until)
    assert fresh.event_id == "a1"
    await triggers.settle([settled(stale)])
    await triggers.release([stale])
    assert await claimed(triggers, stale.lease_until) == []
    await triggers.settle([settled(fresh)])
    assert ids(await claimed(triggers, stale.lease_until)) == ["a2"]


async def test_a_claim_that_is_given_back_is_due_at_once_and_was_no_attempt(
    triggers: Triggers,
) -> None:
    trigger = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, trigger, event("a1"))
    await triggers.release([])
    await triggers.release(await claimed(triggers))
    assert await triggers.next_due(()) == 0
    [again] = await claimed(triggers)
    assert (again.event_id, again.attempts) == ("a1", 0)


async def test_hosts_that_are_busy_are_left_out(triggers: Triggers) -> None:
    one = await triggers.add(new_trigger("one", webhook="https://one.example/a"), 0, START)
    two = await triggers.add(new_trigger("two", webhook="https://two.example:8443/b"), 0, START)
    await enqueue(triggers, one, event("a"))
    await enqueue(triggers, two, event("b"))
    both = ("one.example:443", "two.example:8443")
    assert await claimed(triggers, skip_hosts=both) == []
    assert await triggers.next_due(both) is None
    assert await triggers.next_due(both[:1]) == START
    assert ids(await claimed(triggers, skip_hosts=both[:1])) == ["b"]


async def test_a_long_queue_of_one_trigger_keeps_no_other_waiting(triggers: Triggers) -> None:
    long = await triggers.add(new_trigger("long"), 0, START)
    short = await triggers.add(new_trigger("short"), 0, START)
    await enqueue(triggers, long, *(event(f"l{n:02}", f"[{n}]") for n in range(30)))
    await enqueue(triggers, short, event("s1", "[1]"), event("s2", "[2]"))
    assert ids(await claimed(triggers, limit=6)) == ["l00", "s1", "l01", "s2", "l02", "l03"]


async def test_an_answer_that_the_receiver_is_gone_disables_the_trigger(triggers: Triggers) -> None:
    trigger = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, trigger, event("a1"), event("a2"))
    [a1] = await claimed(triggers)
    await triggers.settle([settled(a1, "dead", last_status=410, disable_trigger=True)])
    off = await triggers.get("hot")
    assert (off.enabled, off.disabled_reason) == (False, GONE_REASON)
    assert await claimed(triggers) == []
    [waiting, dead] = (await triggers.deliveries("hot", limit=9)).deliveries
    assert (waiting.event_id, waiting.status) == ("a2", "pending")
    assert (dead.event_id, dead.status) == ("a1", "dead")


async def test_a_redelivery_has_the_same_id_and_the_same_bytes(triggers: Triggers) -> None:
    trigger = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, trigger, event("a1"), event("b1", "[2]"), event("c1", "[3]"))
    a1, b1, c1 = await claimed(triggers)
    await triggers.settle([settled(a1, "dead"), settled(b1, "dead"), settled(c1)])
    assert await triggers.redeliver("hot", "a1", START) == 1
    [again] = await claimed(triggers)
    assert (again.event_id, again.payload) == ("a1", b"a1")
    assert (again.attempts, again.first_attempt_at) == (0, None)
    await triggers.settle([settled(again)])
    assert await triggers.redeliver("hot", None, START) == 1
    assert ids(await claimed(triggers)) == ["b1"]
    assert await triggers.redeliver("hot", "c1", START) == 1
    assert ids(await claimed(triggers)) == ["c1"]
    assert await triggers.redeliver("hot", "c1", START) == 0
    assert await triggers.redeliver("hot", "nothing", START) == 0
    assert await triggers.redeliver("other", "a1", START) == 0


async def test_a_redelivery_takes_its_turn_among_the_events_of_its_row(triggers: Triggers) -> None:
    trigger = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, trigger, *(event(name) for name in ("a1", "a2", "a3", "a4")))
    for _ in range(2):
        [dead] = await claimed(triggers)
        await triggers.settle([settled(dead, "dead")])
    [a3] = await claimed(triggers)
    assert await triggers.redeliver("hot", None, START) == 2
    assert await claimed(triggers) == []
    order = []
    current = [a3]
    while current:
        order += ids(current)
        await triggers.settle([settled(one) for one in current])
        current = await claimed(triggers)
    assert order == ["a3", "a1", "a2", "a4"]


async def test_the_latest_attempts_are_kept(triggers: Triggers) -> None:
    trigger = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, trigger, event("a1"))
    for number in range(KEPT_ATTEMPTS + 5):
        [one] = await claimed(triggers, START + number)
        failed = settled(
            one, "pending", attempted_at=START + number, next_attempt_at=START + number + 1
        )
        await triggers.settle([failed])
    [last] = await claimed(triggers, LATER)
    await triggers.settle([settled(last, attempted_at=LATER)])
    await enqueue(triggers, trigger, event("new"))
    new = await triggers.find_event("new")
    assert new is not None
    found = await triggers.attempts([new.outbox_id, last.outbox_id])
    assert found.keys() == {new.outbox_id, last.outbox_id}
    assert found[new.outbox_id] == []
    kept = found[last.outbox_id]
    assert len(kept) == KEPT_ATTEMPTS
    assert (kept[-1].attempted_at, kept[-1].status, kept[-1].http_status) == (
        LATER,
        "delivered",
        200,
    )
    assert kept[0].attempted_at == START + 6
    assert (kept[0].status, kept[0].error) == ("pending", "answered 500")


async def test_deliveries_are_shown_page_by_page_the_latest_first(triggers: Triggers) -> None:
    trigger = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, trigger, *(event(f"e{n}", f"[{n % 3}]", n) for n in range(7)))
    first = await claimed(triggers)
    await triggers.settle([settled(first[0])])
    seen, after = [], None
    while True:
        page = await triggers.deliveries("hot", after=after, limit=3)
        seen += ids(page.deliveries)
        after = page.next_cursor
        if after is None:
            break
        assert len(page.deliveries) == 3
    assert seen == [f"e{n}" for n in reversed(range(7))]
    waiting = await triggers.deliveries("hot", status="waiting", limit=3)
    assert ids(waiting.deliveries) == ["e6", "e5", "e4"]
    assert waiting.next_cursor is None
    found = await triggers.find_event("e3")
    assert found is not None
    assert (found.status, found.payload, found.received_at) == ("pending", b"e3", 3)
    assert (await triggers.deliveries("nobody", limit=3)).deliveries == []


async def test_what_was_settled_is_forgotten_after_its_time(triggers: Triggers) -> None:
    trigger = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, trigger, *(event(f"e{n}", f"[{n}]") for n in range(5)))
    one, two, three, four, _ = await claimed(triggers)
    await triggers.settle(
        [
            settled(one, attempted_at=START),
            settled(two, attempted_at=LATER),
            settled(three, "dead", attempted_at=START),
            settled(four, "pending", next_attempt_at=START),
        ]
    )
    assert await triggers.prune(delivered_before=START) == 0
    assert await triggers.prune(delivered_before=LATER) == 1
    assert await triggers.find_event("e0") is None
    assert await triggers.attempts([one.outbox_id]) == {one.outbox_id: []}
    assert await triggers.prune(delivered_before=START, dead_before=LATER) == 1
    left = (await triggers.deliveries("hot", limit=9)).deliveries
    assert ids(left) == ["e4", "e3", "e1"]


async def test_what_waits_and_what_was_given_up_is_counted(triggers: Triggers) -> None:
    assert await triggers.counts() == []
    trigger = await triggers.add(new_trigger(), 0, START)
    await enqueue(
        triggers,
        trigger,
        *(event(f"e{n}", key, n) for n, key in enumerate(["[1]", "[1]", "[1]", "[2]", "[3]"])),
    )
    one, two, _ = await claimed(triggers)
    await triggers.settle([retried(one, LATER), settled(two, "dead")])
    # One that replaces it has the queue too, and what is removed has none.
    await triggers.replace(new_trigger(match='{"a": {}}'), 9, START)
    cold = await triggers.add(new_trigger("cold"), 0, START)
    gone = await triggers.add(new_trigger("gone"), 0, START)
    await enqueue(triggers, cold, event("e5"))
    await enqueue(triggers, gone, event("e6"))
    await triggers.remove("gone")
    assert await triggers.counts() == [
        OutboxCount("cold", "pending", 1),
        OutboxCount("hot", "dead", 1),
        OutboxCount("hot", "delivering", 1),
        OutboxCount("hot", "pending", 1),
        OutboxCount("hot", "waiting", 2),
    ]


async def test_counting_reads_no_event(triggers_home: TriggersHome, triggers: Triggers) -> None:
    """Somebody counts every second, and a queue may be long."""

    def plan() -> Program[str]:
        counting = outbox_programs.counts()
        next(counting)
        asked = counting.send([])
        words = "EXPLAIN QUERY PLAN" if triggers_home.kind == "sqlite" else "EXPLAIN"
        rows = yield ask(f"{words} {asked.sql}", *asked.values)
        return "\n".join(str(row[-1]) for row in rows)

    only_index = "COVERING INDEX" if triggers_home.kind == "sqlite" else "Index Only Scan using"
    assert f"{only_index} outbox_status" in await triggers._read(plan())


async def test_the_oldest_event_that_is_not_settled_is_known_for_each_enabled_trigger(
    triggers: Triggers,
) -> None:
    assert await triggers.oldest_unsettled() == {}
    for name in ("hot", "cold", "idle"):
        trigger = await triggers.add(new_trigger(name), 0, START)
        if name != "idle":
            some = [event(f"{name}{at}", f"[{at}]", at) for at in (7, 8, 9)]
            await enqueue(triggers, trigger, *some)
    assert await triggers.oldest_unsettled() == {"hot": 7, "cold": 7}
    by_name = {one.event_id: one for one in await claimed(triggers)}
    await triggers.settle([settled(by_name["hot7"]), retried(by_name["cold7"], LATER)])
    assert await triggers.oldest_unsettled() == {"hot": 8, "cold": 7}
    await triggers.settle([settled(by_name["hot8"], "dead"), settled(by_name["hot9"])])
    assert await triggers.oldest_unsettled() == {"cold": 7}
    await triggers.redeliver("hot", None, START)
    assert await triggers.oldest_unsettled() == {"hot": 8, "cold": 7}
    # What one that stands still has in the outbox is nobody's lag.
    await triggers.set_enabled("cold", False)
    assert await triggers.oldest_unsettled() == {"hot": 8}


async def test_the_oldest_event_is_found_by_an_index(triggers_home: TriggersHome) -> None:
    triggers = await triggers_home.open()
    trigger = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, trigger, *(event(f"e{n}", f"[{n}]", n) for n in range(50)))
    statement = next(outbox_programs.oldest_unsettled()).sql
    if triggers_home.kind == "sqlite":
        plan = await triggers_home.sql(f"EXPLAIN QUERY PLAN {statement}")
        assert "SEARCH outbox USING INDEX outbox_unsettled (trigger_name=?)" in str(plan)
    else:
        await triggers_home.sql("VACUUM ANALYZE outbox")
        plan = await triggers_home.sql(f"EXPLAIN {statement}")
        assert "Index Only Scan using outbox_unsettled" in str(plan)


async def test_whatever_happens_each_event_arrives_in_order_for_its_row(
    triggers_home: TriggersHome,
) -> None:
    """Random enqueueing, failing, dying and redelivering, held to one rule."""
    dice = random.Random(11)
    triggers = await triggers_home.open()
    trigger = await triggers.add(new_trigger(), 0, START)
    now, number = START, 0
    arrived: dict[str, list[int]] = defaultdict(list)
    enqueued: dict[str, list[int]] = defaultdict(list)
    while number < 150 or await triggers.next_due(()) is not None:
        now += LEASE // 4
        if number < 150:
            events = []
            for _ in range(dice.randrange(4)):
                key = f"[{dice.randrange(4)}]"
                events.append(event(f"{key}:{number}", key))
                enqueued[key].append(number)
                number += 1
            await enqueue(triggers, trigger, *events)
        settlements = []
        for one in await claimed(triggers, now, limit=3):
            fate = dice.random()
            if fate < 0.7:
                arrived[one.row_key].append(int(one.event_id.partition(":")[2]))
            if fate < 0.6:
                settlements.append(settled(one))
            elif 0.7 <= fate < 0.9:
                settlements.append(retried(one, now + dice.randrange(LEASE)))
        await triggers.settle(settlements)
        if dice.random() < 0.05:
            triggers = await triggers_home.reopen()
    assert arrived.keys() == enqueued.keys()
    for key, numbers in arrived.items():
        # A repeat is the very last one again; nothing is skipped.
        assert list(dict.fromkeys(numbers)) == enqueued[key]
        assert numbers == sorted(numbers)
