"""The triggers of the configuration are kept as it declares them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.trigger_world import TriggerWorld, new_trigger, quote, source_time
from tests.unit.live.trigger_models import Rules
from tidemark.live.errors import InvalidFilter, TriggerExists
from tidemark.live.triggers.registration import SWITCHED_OFF, DeclaredTrigger

pytest_plugins = ("tests.integration.trigger_fixtures",)


async def test_a_changed_trigger_of_the_configuration_takes_over_in_order(
    world: TriggerWorld,
) -> None:
    await world.commit(quote(1, 90))
    old = new_trigger(origin="config")
    assert (await world.registry.sync_declared([DeclaredTrigger(old)])).added == ["hot"]
    await world.commit(quote(1, 120), quote(1, 90), quote(1, 96))
    # The old one has not seen any of this yet.
    stricter = new_trigger(rules=Rules(95), origin="config")
    assert (await world.registry.sync_declared([DeclaredTrigger(stricter)])).changed == ["hot"]
    await world.commit(quote(1, 97), quote(1, 80), quote(1, 96))
    await world.catch_up()
    assert [one[:3] for one in await world.told()] == [
        ("MATCH", 1, 2),
        ("UNMATCH", 1, 3),
        ("UNMATCH", 1, 6),
        ("MATCH", 1, 7),
    ]
    lives = await world.triggers.listed(ended=True)
    assert [(one.since, one.until) for one in lives] == [
        (source_time(1), source_time(4)),
        (source_time(4), None),
    ]


async def test_the_configuration_is_followed_and_nothing_else_is_touched(
    world: TriggerWorld,
) -> None:
    sync = world.registry.sync_declared
    await world.create("theirs")
    one, two = (new_trigger(name, origin="config") for name in ("one", "two"))
    assert (await sync([DeclaredTrigger(one), DeclaredTrigger(two, enabled=False)])).added == [
        "one",
        "two",
    ]
    off = await world.triggers.get("two")
    assert not off.enabled
    again = await sync([DeclaredTrigger(one), DeclaredTrigger(two)])
    assert (again.added, again.changed, again.removed) == ([], [], [])
    assert (await world.triggers.get("two")).enabled
    # What a receiver or an operator has switched off stays off.
    await world.triggers.halt(off.id, "gone")
    await sync([DeclaredTrigger(one), DeclaredTrigger(two)])
    assert (await world.triggers.get("two")).disabled_reason == "gone"
    moved = new_trigger("two", origin="config", webhook="https://new.example/")
    assert (await sync([DeclaredTrigger(one), DeclaredTrigger(moved)])).changed == ["two"]
    there = await world.triggers.get("two")
    assert (there.id, there.webhook, there.enabled) == (off.id, moved.webhook, True)
    # A view that is not there yet: nothing is made for it, and nothing of it is taken away.
    later = new_trigger("one", origin="config", view="later")
    waiting = await sync([DeclaredTrigger(later), DeclaredTrigger(moved)])
    assert (waiting.waiting, waiting.changed, waiting.removed) == (["one"], [], [])
    assert (await world.triggers.get("one")).meaning == one.meaning
    assert (await sync([DeclaredTrigger(moved)])).removed == ["one"]
    assert [t.name for t in await world.triggers.listed()] == ["theirs", "two"]


async def test_a_declared_trigger_at_fault_keeps_no_other_from_being_followed(
    world: TriggerWorld,
) -> None:
    await world.create("theirs")
    wrong = '{"px":{"_gtx":1}}'
    declared = [
        new_trigger("theirs", origin="config"),
        new_trigger("unfit", origin="config", match=wrong),
        new_trigger("fine", origin="config"),
    ]
    synced = await world.registry.sync_declared([DeclaredTrigger(it) for it in declared])
    assert synced.added == ["fine"]
    assert {name: type(error) for name, error in synced.faults.items()} == {
        "theirs": TriggerExists,
        "unfit": InvalidFilter,
    }
    origins = {it.name: it.origin for it in await world.triggers.listed()}
    assert origins == {"theirs": "api", "fine": "config"}
    # One that was fine before goes on as it was.
    changed = [*declared[:2], new_trigger("fine", origin="config", match=wrong)]
    synced = await world.registry.sync_declared([DeclaredTrigger(it) for it in changed])
    assert set(synced.faults) == {"theirs", "unfit", "fine"}
    assert (await world.triggers.get("fine")).meaning == declared[2].meaning


async def test_a_declared_trigger_that_is_switched_off_never_is_on(
    world: TriggerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("it is a second write")

    monkeypatch.setattr(world.triggers, "set_enabled", refused)
    moved = {"webhook": "https://new.example/"}
    stages: list[dict[str, Any]] = [{}, {"rules": Rules(95)}, {"rules": Rules(95), **moved}]
    for fields in stages:
        declared = DeclaredTrigger(new_trigger(origin="config", **fields), enabled=False)
        synced = await world.registry.sync_declared([declared])
        assert [*synced.added, *synced.changed] == ["hot"]
        there = await world.triggers.get("hot")
        assert (there.enabled, there.disabled_reason) == (False, SWITCHED_OFF)
