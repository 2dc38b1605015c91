"""Triggers as they are kept: names, life spans, positions, and what moves with them."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.events import START
from tests.contract.triggers_home import (
    Triggers,
    TriggersHome,
    claimed,
    enqueue,
    event,
    ids,
    new_trigger,
    settled,
)
from tidemark.live.errors import (
    TooManyTriggers,
    TriggerExists,
    TriggersRefused,
    UnknownTrigger,
)
from tidemark.live.triggers import trigger_programs
from tidemark.live.triggers.port import Advance

pytest_plugins = ("tests.contract.triggers_fixtures",)


async def test_a_trigger_is_kept_as_it_was_made(triggers_home: TriggersHome) -> None:
    triggers = await triggers_home.open()
    new = new_trigger(
        match='{"px":{"_gt":0.1}}', unmatch='{"px":{"_lt":1}}', creator='{"n":"é"}', origin="config"
    )
    made = await triggers.add(new, 7, START)
    assert (made.since, made.position, made.until) == (7, 7, None)
    assert (made.enabled, made.disabled_reason, made.created_at) == (True, None, START)
    assert made.meaning == new.meaning
    assert (made.webhook, made.origin) == (new.webhook, "config")
    triggers = await triggers_home.reopen()
    assert await triggers.get("hot") == made
    assert await triggers.listed() == [made]


async def test_a_name_is_unique_as_long_as_it_is_used(triggers: Triggers) -> None:
    await triggers.add(new_trigger(), 1, START)
    with pytest.raises(TriggerExists):
        await triggers.add(new_trigger(view="other"), 1, START)
    await triggers.remove("hot")
    with pytest.raises(UnknownTrigger):
        await triggers.get("hot")
    again = await triggers.add(new_trigger(view="other"), 5, START)
    assert [one.id for one in await triggers.listed()] == [again.id]
    assert [one.until for one in await triggers.listed(ended=True)] == [1, None]


async def test_of_two_that_make_the_same_trigger_one_does(triggers_home: TriggersHome) -> None:
    stores = [await triggers_home.open() for _ in range(3)]
    made = await asyncio.gather(
        *(store.add(new_trigger(), 1, START) for store in stores), return_exceptions=True
    )
    assert sum(isinstance(one, TriggerExists) for one in made) == 2
    assert len(await stores[0].listed()) == 1


async def test_triggers_are_listed_by_name_and_by_view(triggers: Triggers) -> None:
    for name, view in (("b", "v"), ("a", "w"), ("B", "v")):
        await triggers.add(new_trigger(name, view=view), 1, START)
    assert [one.name for one in await triggers.listed()] == ["B", "a", "b"]
    assert [one.name for one in await triggers.listed(view="v")] == ["B", "b"]


async def test_state_position_and_events_move_together_or_not_at_all(triggers: Triggers) -> None:
    trigger = await triggers.add(new_trigger(), 10, START)
    first = Advance(trigger.id, 10, 20, held=["[1]", "[2]"], events=[event("e1", received_at=15)])
    assert await triggers.advance([first]) == {trigger.id}
    assert (await triggers.get("hot")).position == 20
    assert await triggers.held(trigger.id, ["[1]", "[2]", "[3]"]) == {"[1]", "[2]"}
    # The same again, as by a process that does not know that it was done.
    assert await triggers.advance([first]) == set()
    second = Advance(trigger.id, 20, 30, held=["[3]"], released=["[1]"])
    assert await triggers.advance([second]) == {trigger.id}
    assert await triggers.held(trigger.id, ["[1]", "[2]", "[3]"]) == {"[2]", "[3]"}
    assert ids((await triggers.deliveries("hot", limit=10)).deliveries) == ["e1"]
    # An id that is there already: nothing of it is written.
    with pytest.raises(TriggersRefused):
        await triggers.advance([Advance(trigger.id, 30, 40, events=[event("e2"), event("e1")])])
    assert (await triggers.get("hot")).position == 30
    assert await triggers.find_event("e2") is None


async def test_of_two_that_move_a_trigger_on_one_does(triggers_home: TriggersHome) -> None:
    stores = [await triggers_home.open() for _ in range(3)]
    trigger = await stores[0].add(new_trigger(), 0, START)
    for position in range(5):
        step = Advance(trigger.id, position, position + 1, events=[event(f"e{position}")])
        moved = await asyncio.gather(*(store.advance([step]) for store in stores))
        assert sorted(map(len, moved)) == [0, 0, 1]
    page = await stores[0].deliveries("hot", limit=10)
    assert ids(page.deliveries) == ["e4", "e3", "e2", "e1", "e0"]


async def test_triggers_that_move_on_together_do_not_depend_on_each_other(
    triggers: Triggers,
) -> None:
    one = await triggers.add(new_trigger("one"), 0, START)
    two = await triggers.add(new_trigger("two"), 0, START)
    await triggers.set_enabled("one", False)
    steps = [Advance(one.id, 0, 5), Advance(two.id, 0, 5, events=[event("e")]), Advance(99, 0, 5)]
    assert await triggers.advance(steps) == {two.id}
    assert (await triggers.get("one")).position == 0


async def test_a_trigger_that_is_replaced_goes_on_to_where_the_new_one_begins(
    triggers: Triggers,
) -> None:
    old = await triggers.add(new_trigger(), 10, START)
    await triggers.advance([Advance(old.id, 10, 20, held=["[1]"], events=[event("early")])])
    new = await triggers.replace(
        new_trigger(match='{"a":{}}', webhook="https://two.example/"), 30, START
    )
    assert (new.since, new.position) == (30, 30)
    assert await triggers.get("hot") == new
    assert [(one.id, one.until) for one in await triggers.unfinished()] == [
        (old.id, 30),
        (new.id, None),
    ]
    assert await triggers.oldest_position() == 20
    # What the old one has still to deliver goes where the new one says.
    [delivery] = await claimed(triggers)
    assert (delivery.event_id, delivery.url) == ("early", "https://two.example/")
    assert await triggers.advance([Advance(old.id, 20, 31)]) == set()
    assert await triggers.advance([Advance(old.id, 20, 30, events=[event("last", "[9]")])])
    assert await triggers.held(old.id, ["[1]"]) == set()
    assert [one.id for one in await triggers.unfinished()] == [new.id]
    assert ids(await claimed(triggers)) == ["last"]


async def test_two_lives_of_a_name_never_share_a_timestamp(triggers: Triggers) -> None:
    old = await triggers.add(new_trigger(), 10, START)
    await triggers.advance([Advance(old.id, 10, 20)])
    # Whoever asked where the views stand did so before the trigger moved on.
    assert (await triggers.replace(new_trigger(), 15, START)).since == 20
    await triggers.remove("hot")
    assert (await triggers.add(new_trigger(), 15, START)).since == 20


async def test_a_disabled_trigger_that_is_replaced_ends_where_it_stands(triggers: Triggers) -> None:
    old = await triggers.add(new_trigger(), 10, START)
    await triggers.halt(old.id, "it lost its place")
    new = await triggers.replace(new_trigger(), 30, START)
    assert new.enabled
    assert [one.until for one in await triggers.listed(ended=True)] == [10, None]
    assert [one.id for one in await triggers.unfinished()] == [new.id]
    assert old.id != new.id


async def test_a_disabled_trigger_stands_still_and_delivers_nothing(triggers: Triggers) -> None:
    trigger = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, trigger, event("e1"))
    off = await triggers.set_enabled("hot", False, "by hand")
    assert (off.enabled, off.disabled_reason) == (False, "by hand")
    assert await triggers.halt(trigger.id, "another reason") == off
    assert (await triggers.get("hot")).disabled_reason == "by hand"
    assert await triggers.advance([Advance(trigger.id, 1, 2)]) == set()
    assert await triggers.unfinished() == []
    assert await triggers.oldest_position() is None
    assert await claimed(triggers) == []
    assert await triggers.next_due(()) is None
    on = await triggers.set_enabled("hot", True)
    assert (on.enabled, on.disabled_reason, on.position) == (True, None, 1)
    assert ids(await claimed(triggers)) == ["e1"]
    with pytest.raises(UnknownTrigger):
        await triggers.set_enabled("nobody", True)


async def test_another_webhook_gets_what_is_not_delivered_yet(triggers: Triggers) -> None:
    trigger = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, trigger, event("e1"))
    await triggers.halt(trigger.id, "gone")
    moved = await triggers.set_webhook("hot", "https://new.example/")
    assert (moved.id, moved.enabled, moved.position) == (trigger.id, True, 1)
    [delivery] = await claimed(triggers)
    assert delivery.url == "https://new.example/"
    off = await triggers.set_webhook("hot", "https://newer.example/", disabled_reason="off")
    assert (off.webhook, off.enabled, off.disabled_reason) == (
        "https://newer.example/",
        False,
        "off",
    )


async def test_a_trigger_may_begin_disabled(triggers: Triggers) -> None:
    made = await triggers.add(new_trigger(), 1, START, disabled_reason="off")
    assert (made.enabled, made.disabled_reason) == (False, "off")
    assert await triggers.unfinished() == []
    again = await triggers.replace(new_trigger(), 2, START, disabled_reason="still off")
    assert (again.enabled, again.disabled_reason, again.since) == (False, "still off", 2)


async def test_one_that_cannot_go_on_is_disabled_and_its_successor_is_not(
    triggers: Triggers,
) -> None:
    old = await triggers.add(new_trigger(), 10, START)
    await triggers.advance([Advance(old.id, 10, 20, held=["[1]"])])
    new = await triggers.replace(new_trigger(match='{"a":{}}'), 30, START)
    # It was read before it was replaced; it is what it is now that counts.
    assert old.until is None
    ended = await triggers.halt(old.id, "it lost its place")
    assert ended is not None
    assert (ended.until, ended.position, ended.enabled) == (20, 20, True)
    assert await triggers.held(old.id, ["[1]"]) == set()
    assert await triggers.unfinished() == [new]
    stopped = await triggers.halt(new.id, "it lost its place")
    assert stopped is not None
    assert (stopped.until, stopped.disabled_reason) == (None, "it lost its place")
    assert await triggers.unfinished() == []
    assert await triggers.halt(99, "nobody") is None


async def test_a_deployment_has_room_for_so_many_triggers(
    triggers: Triggers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger_programs, "MAX_TRIGGERS", 2)
    await triggers.add(new_trigger("one"), 1, START)
    await triggers.add(new_trigger("two"), 1, START)
    with pytest.raises(TooManyTriggers):
        await triggers.add(new_trigger("three"), 1, START)
    await triggers.replace(new_trigger("two"), 2, START)
    await triggers.remove("one")
    await triggers.add(new_trigger("three"), 1, START)


async def test_a_name_that_is_used_again_shows_nothing_of_who_had_it_before(
    triggers: Triggers,
) -> None:
    first = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, first, event("early"), event("late", "[2]"))
    early, late = await claimed(triggers)
    await triggers.settle([settled(early)])
    # Its receiver takes so long that somebody else has taken the event meanwhile.
    [again] = await claimed(triggers, late.lease_until)
    await triggers.settle([settled(again)])
    replaced = await triggers.replace(new_trigger(match='{"a":{}}'), 5, START)
    assert replaced.lineage == first.lineage
    page = await triggers.deliveries("hot", limit=9)
    assert ids(page.deliveries) == ["late", "early"]
    await triggers.remove("hot")
    second = await triggers.add(new_trigger(webhook="https://two.example/"), 9, START)
    assert second.lineage != first.lineage
    assert (await triggers.deliveries("hot", limit=9)).deliveries == []
    assert await triggers.redeliver("hot", "early", START) == 0
    assert await triggers.redeliver("hot", None, START) == 0
    assert await claimed(triggers) == []
    # What the receiver of the first one says does not concern the second.
    await triggers.settle([settled(late, "dead", disable_trigger=True)])
    assert (await triggers.get("hot")).enabled


async def test_who_means_a_trigger_that_is_no_more_does_nothing_to_another_of_its_name(
    triggers: Triggers,
) -> None:
    gone = (await triggers.add(new_trigger(), 0, START)).lineage
    await triggers.remove("hot")
    other = await triggers.add(new_trigger(), 0, START)
    await enqueue(triggers, other, event("theirs"))
    [claim] = await claimed(triggers)
    await triggers.settle([settled(claim, "dead")])
    for change in (
        triggers.remove("hot", lineage=gone),
        triggers.set_enabled("hot", False, lineage=gone),
        triggers.replace(new_trigger(), 9, START, lineage=gone),
    ):
        with pytest.raises(UnknownTrigger):
            await change
    assert (await triggers.deliveries("hot", limit=9, lineage=gone)).deliveries == []
    assert await triggers.redeliver("hot", None, START, lineage=gone) == 0
    assert await triggers.redeliver("hot", None, START, lineage=other.lineage) == 1


async def test_a_removed_trigger_takes_its_undelivered_events_with_it(triggers: Triggers) -> None:
    trigger = await triggers.add(new_trigger(), 0, START)
    other = await triggers.add(new_trigger("other"), 0, START)
    await enqueue(triggers, other, event("theirs"))
    await enqueue(triggers, trigger, event("done"))
    done = [one for one in await claimed(triggers) if one.trigger == "hot"]
    await triggers.settle([settled(one) for one in done])
    await enqueue(triggers, trigger, event("flying"), event("behind"), event("far", "[2]"))
    [flying] = [one for one in await claimed(triggers) if one.event_id == "flying"]
    removed = await triggers.remove("hot")
    assert removed.until is None
    assert (await triggers.deliveries("hot", limit=9)).deliveries == []
    assert await triggers.find_event("done") is not None
    # What was under way when it was removed has nothing left to be noted on.
    await triggers.settle([settled(flying)])
    assert await triggers.attempts([flying.outbox_id]) == {flying.outbox_id: []}
    assert await triggers.redeliver("hot", "done", START) == 0
    assert (await triggers.find_event("theirs")) is not None


async def test_the_log_is_needed_from_the_position_of_the_slowest_enabled_trigger(
    triggers: Triggers,
) -> None:
    assert await triggers.oldest_position() is None
    for name, since in (("a", 30), ("b", 10), ("c", 20)):
        await triggers.add(new_trigger(name), since, START)
    assert await triggers.oldest_position() == 10
    await triggers.set_enabled("b", False)
    assert await triggers.oldest_position() == 20
    await triggers.remove("c")
    assert await triggers.oldest_position() == 30


async def test_many_keys_are_held_and_found(triggers: Triggers) -> None:
    trigger = await triggers.add(new_trigger(), 0, START)
    keys = [f"[{number}]" for number in range(2_000)]
    assert await triggers.advance([Advance(trigger.id, 0, 1, held=keys)])
    assert await triggers.held(trigger.id, [*keys[500:], "[x]"]) == set(keys[500:])
    assert await triggers.held(trigger.id, []) == set()
