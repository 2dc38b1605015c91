"""Triggers over a real store of views: from commits to the outbox."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.contract.triggers_home import TriggersHome
from tests.contract.views_home import SQLITE_SCHEME, ViewsHome
from tests.integration.trigger_world import (
    TriggerWorld,
    all_of,
    new_trigger,
    quote,
    source_time,
)
from tests.unit.live.trigger_models import Rules, told
from tidemark.errors import AccessDenied
from tidemark.live.errors import (
    InvalidFilter,
    InvalidTrigger,
    TriggerExists,
    TriggersUnavailable,
    UnknownTrigger,
)
from tidemark.live.triggers import evaluation
from tidemark.live.triggers.evaluation import TriggerEvaluator
from tidemark.live.triggers.port import Advance
from tidemark.live.triggers.registration import (
    TriggerRegistry,
)
from tidemark.live.triggers.sqlite import SqliteTriggers
from tidemark.pipeline.output.errors import ViewsUnavailable

pytest_plugins = ("tests.integration.trigger_fixtures",)


async def until_events(world: TriggerWorld, count: int) -> None:
    while len(await world.events()) < count:  # noqa: ASYNC110 - the store tells nobody
        await asyncio.sleep(0.01)


async def test_rows_that_match_already_do_not_fire_and_are_not_lost(world: TriggerWorld) -> None:
    await world.commit(all_of([quote(1, 120), quote(2, 120), quote(3, 90)]))
    trigger = await world.create()
    assert (trigger.since, trigger.position) == (source_time(1), source_time(1))
    await world.catch_up()
    await world.commit(quote(1, 120, note="x"), {2: None}, all_of([quote(1, 80), quote(3, 130)]))
    await world.catch_up()
    assert [one[:3] for one in await world.told()] == [
        ("UNMATCH", 2, 3),
        ("UNMATCH", 1, 4),
        ("MATCH", 3, 4),
    ]
    assert (await world.triggers.get("hot")).position == source_time(4)
    assert world.evaluator.events == {("hot", "UNMATCH"): 2, ("hot", "MATCH"): 1}
    await world.catch_up()
    assert len(await world.events()) == 3


async def test_a_trigger_on_views_without_a_commit_begins_at_the_beginning(
    world: TriggerWorld,
) -> None:
    assert (await world.create()).since == 0
    await world.catch_up()
    await world.commit(quote(1, 120))
    await world.catch_up()
    assert [one[:3] for one in await world.told()] == [("MATCH", 1, 1)]


async def random_story(world: TriggerWorld, seed: int) -> dict[str, tuple[Rules, int]]:
    """Commits in batches of any size, triggers that come, an evaluator that dies at any moment."""
    dice = random.Random(seed)
    stories: list[dict[int, Any]] = []
    made: dict[str, tuple[Rules, int]] = {}
    for _ in range(12):
        batch = []
        for _ in range(dice.randrange(1, 4)):
            commit = {}
            for key in dice.sample(range(1, 5), dice.randrange(4)):
                px = dice.choice([None, 90, 95, 97, 100, 105])
                row = quote(key, px, dice.choice("ab"), dice.choice(["", "x"]))[key]
                commit[key] = None if dice.random() < 0.2 else row
            batch.append(commit)
        stories += batch
        await world.commit(*batch)
        if dice.random() < 0.4:
            rules = Rules(100, dice.choice([None, 91, 95]), dice.choice([None, "a"]))
            name = f"t{len(made)}"
            made[name] = rules, world.last
            await world.create(name, rules)
        for _ in range(dice.randrange(3)):
            world.restart(page_changes=dice.choice([1, 2, 1000]))
            await world.evaluator.round()
    await world.catch_up()
    for name, (rules, since) in made.items():
        assert await world.told(name) == told(rules, stories, since, None)
    return made


@pytest.mark.parametrize("seed", range(4))
async def test_any_pages_and_restarts_give_what_the_reference_tells(
    world: TriggerWorld, seed: int
) -> None:
    assert await random_story(world, seed)


class RepeatingTriggers(SqliteTriggers):
    """Forgets how far it came every now and then, as if the position were written apart."""

    advances = 0

    async def advance(self, advances: Sequence[Advance]) -> set[int]:
        self.advances += 1
        if self.advances % 3 == 0:
            advances = [
                Advance(a.trigger_id, a.start, a.start, a.held, a.released, a.events)
                for a in advances
            ]
        return await super().advance(advances)


async def test_a_planted_position_that_is_written_apart_is_caught(
    sqlite_world: TriggerWorld,
) -> None:
    sqlite_world.triggers = await RepeatingTriggers.open(sqlite_world.triggers_home.path)
    sqlite_world.restart()
    try:
        with pytest.raises(AssertionError):
            await random_story(sqlite_world, 1)
    finally:
        await sqlite_world.triggers.close()


async def test_a_history_that_is_replayed_from_nothing_has_the_same_ids(
    world: TriggerWorld, tmp_path: Path
) -> None:
    made = await random_story(world, 7)
    page = await world.views.read_changes("quotes", 0, limit=10_000)
    # The same commits, in one batch, into views and triggers that know nothing.
    places = [f"{SQLITE_SCHEME}{tmp_path / name}" for name in ("views2.db", "triggers2.db")]
    again = TriggerWorld(ViewsHome(places[0]), TriggersHome(places[1]))
    await again.open()
    commits: list[dict[int, Any]] = [{} for _ in range(world.last)]
    for line in page.changes:
        number = next(n for n in range(1, world.last + 1) if source_time(n) == line.received_at)
        [key] = json.loads(line.row_key)
        commits[number - 1][key] = None if line.row is None else json.loads(line.row)
    for name, (rules, since) in made.items():
        await again.triggers.add(new_trigger(name, rules), source_time(since), 0)
    await again.commit(*commits)
    await again.catch_up()
    for name in made:
        known = [one.event_id for one in await world.events(name)]
        assert [one.event_id for one in await again.events(name)] == known
    await again.views_home.close()
    await again.triggers_home.close()


async def test_a_trigger_that_was_disabled_goes_on_where_it_was(world: TriggerWorld) -> None:
    await world.create()
    await world.triggers.set_enabled("hot", False, "by hand")
    await world.commit(quote(1, 120), quote(1, 90))
    await world.catch_up()
    assert await world.events() == []
    await world.triggers.set_enabled("hot", True)
    await world.catch_up()
    assert [one[:3] for one in await world.told()] == [("MATCH", 1, 1), ("UNMATCH", 1, 2)]


async def test_a_trigger_that_lost_its_place_is_disabled_and_says_so(world: TriggerWorld) -> None:
    await world.create()
    await world.create("other")
    await world.commit(quote(1, 120))
    await world.views.prune_changes(source_time(1) + 1)
    await world.commit(quote(1, 90))
    await world.catch_up()
    lost = await world.triggers.get("hot")
    assert not lost.enabled
    assert lost.disabled_reason is not None
    assert "lost its place" in lost.disabled_reason
    assert not (await world.triggers.get("other")).enabled
    # Enabling it does not bring back what is gone.
    await world.triggers.set_enabled("hot", True)
    await world.catch_up()
    assert not (await world.triggers.get("hot")).enabled
    anew = await world.registry.restart("hot")
    assert (anew.since, anew.enabled) == (source_time(2), True)
    await world.commit(quote(1, 130))
    await world.catch_up()
    assert [one[:3] for one in await world.told()] == [("MATCH", 1, 3)]
    with pytest.raises(UnknownTrigger):
        await world.registry.restart("nobody")


async def test_triggers_at_one_place_share_what_is_read(
    sqlite_world: TriggerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = sqlite_world
    reads = []
    read_changes = world.views.read_changes

    async def counted(*arguments: Any, **options: Any) -> Any:
        reads.append(arguments)
        return await read_changes(*arguments, **options)

    monkeypatch.setattr(world.views, "read_changes", counted)
    for number in range(5):
        await world.create(f"t{number}")
    await world.commit(quote(1, 120))
    await world.evaluator.round()
    assert len(reads) == 1
    await world.evaluator.round()
    assert len(reads) == 1, "there is nothing new"
    await world.commit(quote(2, 120))
    await world.create("late")
    await world.commit(quote(3, 120))
    await world.evaluator.round()
    assert len(reads) == 3
    await world.commit(quote(4, 120))
    await world.evaluator.round()
    assert len(reads) == 4
    assert [one[1] for one in await world.told("t0")] == [1, 2, 3, 4]
    assert [one[1] for one in await world.told("late")] == [3, 4]


async def test_one_that_was_replaced_and_lost_its_place_ends_and_its_successor_goes_on(
    world: TriggerWorld,
) -> None:
    await world.create()
    await world.commit(quote(1, 120), quote(1, 90))
    old = await world.triggers.get("hot")
    await world.triggers.replace(new_trigger(), source_time(2), 0)
    await world.views.prune_changes(source_time(1) + 1)
    await world.commit(quote(1, 130))
    await world.catch_up()
    await world.catch_up()
    assert (await world.triggers.get("hot")).enabled
    assert [one[:3] for one in await world.told()] == [("MATCH", 1, 3)]
    ended, _ = await world.triggers.listed(ended=True)
    assert (ended.id, ended.until) == (old.id, old.position)


async def test_a_trigger_whose_view_is_gone_for_good_does_not_hold_the_log(
    sqlite_world: TriggerWorld,
) -> None:
    world = sqlite_world
    await world.triggers.add(new_trigger("gone", view="gone"), 0, 0)
    await world.triggers.add(new_trigger("soon", view="soon"), 0, 0)
    await world.commit(quote(1, 120))
    world.restart(configured={"quotes", "soon"})
    await world.catch_up()
    gone = await world.triggers.get("gone")
    assert gone.disabled_reason == "its view gone is configured no more"
    assert (await world.triggers.get("soon")).enabled
    await world.triggers.remove("soon")
    assert await world.triggers.oldest_position() is None


async def test_without_triggers_the_stores_are_left_alone_for_a_while(
    sqlite_world: TriggerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = sqlite_world
    looks = 0
    unfinished = world.triggers.unfinished

    async def counted() -> Any:
        nonlocal looks
        looks += 1
        return await unfinished()

    monkeypatch.setattr(world.triggers, "unfinished", counted)
    await world.commit(quote(1, 90))
    world.restart(poll_s=0.001)
    running = asyncio.create_task(world.evaluator.run())
    await asyncio.sleep(2.5 * evaluation.IDLE_POLL_S)
    assert looks <= 4
    await world.create()
    await world.commit(quote(1, 120))
    async with asyncio.timeout(20):
        await until_events(world, 1)
    idle = looks
    await asyncio.sleep(4 * evaluation.IDLE_POLL_S)
    assert looks > idle + 10
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_what_cannot_be_a_trigger_is_refused(sqlite_world: TriggerWorld) -> None:
    create = sqlite_world.registry.create
    with pytest.raises(InvalidTrigger) as unknown:
        await create(new_trigger(view="nothing"))
    assert unknown.value.field == "view"
    for field in ("match", "unmatch"):
        wheres: dict[str, Any] = {field: '{"px":{"_gtx":1}}'}
        with pytest.raises(InvalidFilter) as wrong:
            await create(new_trigger(**wheres))
        assert (wrong.value.field or "").startswith(f"{field}.px")
    await create(new_trigger())
    with pytest.raises(TriggerExists):
        await create(new_trigger())


def denied(trigger: Any) -> Any:
    raise AccessDenied("the claim `desk` is missing")


async def test_a_trigger_whose_rule_denies_is_disabled(sqlite_world: TriggerWorld) -> None:
    world = sqlite_world
    await world.create()
    await world.commit(quote(1, 120))
    evaluator = TriggerEvaluator(world.views, world.triggers, denied, world.clock)
    assert await evaluator.round() is False
    reason = (await world.triggers.get("hot")).disabled_reason
    assert reason is not None
    assert "desk" in reason
    registry = TriggerRegistry(
        world.views, world.triggers, denied, world.clock, check_webhook=lambda url: url
    )
    with pytest.raises(AccessDenied):
        await registry.create(new_trigger("mine"))


async def test_an_event_the_store_refuses_stops_its_trigger_and_no_other(
    sqlite_world: TriggerWorld,
) -> None:
    world = sqlite_world
    await world.create("good")
    await world.create("bad")
    await world.commit(quote(1, 120))
    await world.catch_up()
    await world.commit(quote(1, 90))
    [taken] = await world.events("bad")
    await world.triggers_home.sql(
        f"UPDATE triggers SET position = {source_time(0)} WHERE name = 'bad'"
    )
    await world.catch_up()
    assert [one[0] for one in await world.told("good")] == ["MATCH", "UNMATCH"]
    assert not (await world.triggers.get("bad")).enabled
    assert await world.events("bad") == [taken]


async def test_views_that_are_rebuilt_repeat_nothing(
    sqlite_world: TriggerWorld, tmp_path: Path
) -> None:
    world = sqlite_world
    await world.create()
    await world.commit(quote(1, 120), quote(1, 90))
    await world.catch_up()
    before = await world.events()
    rebuilt = TriggerWorld(ViewsHome(f"{SQLITE_SCHEME}{tmp_path / 'anew.db'}"), world.triggers_home)
    await rebuilt.open()
    await rebuilt.catch_up()
    for commit in (quote(1, 120), quote(1, 90), quote(1, 130)):
        await rebuilt.commit(commit)
        await rebuilt.catch_up()
    after = await rebuilt.events()
    assert after[: len(before)] == before
    assert [one.event_type for one in after] == ["MATCH", "UNMATCH", "MATCH"]
    await rebuilt.views_home.close()


async def test_an_id_may_have_a_prefix(sqlite_world: TriggerWorld) -> None:
    sqlite_world.restart(id_prefix="eu_")
    await sqlite_world.create()
    await sqlite_world.commit(quote(1, 120))
    await sqlite_world.catch_up()
    [one] = await sqlite_world.events()
    assert one.event_id.startswith("eu_")
    assert len(one.event_id) == 35


async def test_it_follows_until_it_is_cancelled_and_waits_for_stores_that_are_away(
    sqlite_world: TriggerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "RETRY_S", 0.01)
    world = sqlite_world
    frontier = world.views.frontier
    faults: list[Exception] = [ViewsUnavailable("away"), TriggersUnavailable("away")]

    async def sometimes() -> Any:
        if faults:
            raise faults.pop()
        return await frontier()

    await world.create()
    monkeypatch.setattr(world.views, "frontier", sometimes)
    world.restart(poll_s=0.01)
    running = asyncio.create_task(world.evaluator.run())
    async with asyncio.timeout(20):
        for number in (1, 2):
            await world.commit(quote(number, 120))
            await until_events(world, number)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not faults
    assert world.evaluator.trouble is None
