"""Triggers through whole servers over time: restarts, several processes, pruning, replays."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.crash.live_past import Past, Watch
from tests.crash.live_world import (
    DECLARED,
    DECLARED_MATCH,
    DECLARED_UNMATCH,
    SETTINGS,
    LiveWorld,
    Refused,
    settings,
)
from tests.integration.trigger_calls import (
    CREATE,
    POLL_S,
    SILENCE_S,
    WITHIN_S,
    change,
    kinds,
    received,
    until,
    verified,
)
from tests.services.live_server import position
from tests.services.webhook_receiver import WebhookReceiver
from tidemark.app.pipeline import prune_changes
from tidemark.config.sample import sample_text
from tidemark.pipeline.output.errors import ChangesForgotten


async def test_a_declared_trigger_goes_on_over_a_restart_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    async with WebhookReceiver() as receiver, LiveWorld(tmp_path, settings(receiver.url)) as world:
        [server] = world.servers
        await world.commit([position("a", "X", "1")])
        await asyncio.to_thread(server.start)
        await world.until_declared()
        await world.commit([position("a", "X", "10")])
        await received(receiver, 1)
        assert await asyncio.to_thread(server.stop) == 0
        await world.commit([position("a", "X", "4")])
        await asyncio.to_thread(server.start)
        await world.commit([position("a", "X", "12")])
        events = await received(receiver, 3)
        with pytest.raises(Refused, match="declared in the configuration"):
            await world.ask(change("delete"), name=DECLARED)
        await asyncio.sleep(SILENCE_S)
    assert kinds(events) == [("MATCH", "10"), ("UNMATCH", "4"), ("MATCH", "12")]
    assert len(receiver.received) == 3


async def swing(world: LiveWorld, accounts: int) -> None:
    """A MATCH and an UNMATCH of each account."""
    for quantity in ("20", "0"):
        await world.commit([position(f"account-{n}", "X", quantity) for n in range(accounts)])


@pytest.mark.parametrize("processes", ["workers", "servers"])
async def test_of_two_processes_one_delivers(
    tmp_path: Path, request: pytest.FixtureRequest, processes: str
) -> None:
    """Two workers of one server over SQLite, and two servers over one PostgreSQL."""
    async with WebhookReceiver() as receiver:
        if processes == "workers":
            config = settings(receiver.url).replace("workers: 1", "workers: 2")
            world = LiveWorld(tmp_path, config)
        else:
            url = request.getfixturevalue("postgres_url")
            world = LiveWorld(tmp_path, settings(receiver.url), store_url=url, servers=2)
        async with world:
            await world.commit([position("a", "X", "0")])
            for server in world.servers:
                await asyncio.to_thread(server.start)
            await world.until_declared()
            await swing(world, 40)
            await received(receiver, 80)
            await asyncio.sleep(SILENCE_S)
            if processes == "servers":
                # When the one that delivers stops, the other goes on.
                assert await asyncio.to_thread(world.servers[0].stop) == 0
                await swing(world, 10)
                await received(receiver, 100)
                await asyncio.sleep(SILENCE_S)
    assert len(receiver.received) == len(set(receiver.event_ids))
    watch = Watch(DECLARED, DECLARED_MATCH, DECLARED_UNMATCH)
    assert set(receiver.event_ids) == {told.event_id for told in world.past.events(watch)}


async def test_changes_that_a_trigger_has_not_seen_are_kept(tmp_path: Path) -> None:
    config = sample_text().replace("change_retention: 7d", "change_retention: 1ms") + SETTINGS
    async with WebhookReceiver() as receiver, LiveWorld(tmp_path, config) as world:
        [server] = world.servers
        await world.commit([position("a", "X", "1")])
        await asyncio.to_thread(server.start)
        wanted = {"name": "late", "webhook": receiver.url, "match": {"quantity": {"_gt": "5"}}}
        since = int((await world.ask(CREATE, input=wanted))["create_positions_trigger"]["since"])
        assert await asyncio.to_thread(server.stop) == 0
        for quantity in ("10", "1", "11", "2", "12"):
            await world.commit([position("a", "X", quantity)])
        await prune_changes(world.config, world.store)
        page = await world.store.read_changes("positions", since, None, limit=100)
        assert len(page.changes) == 5
        await asyncio.to_thread(server.start)
        assert [kind for kind, _ in kinds(await received(receiver, 5))] == [
            "MATCH", "UNMATCH", "MATCH", "UNMATCH", "MATCH"
        ]  # fmt: skip
        await until_position(world, world.committed)
        await prune_changes(world.config, world.store)
        with pytest.raises(ChangesForgotten):
            await world.store.read_changes("positions", since, None, limit=100)


async def until_position(world: LiveWorld, position: int) -> None:
    deadline = time.monotonic() + WITHIN_S
    while min(trigger.position for trigger in await world.triggers()) < position:
        assert time.monotonic() < deadline
        await asyncio.sleep(POLL_S)


# A past that is replayed.


def a_past() -> Past:
    """Three rows that swing, one of them deleted and back, in twelve commits."""
    past = Past()
    quantities = ["12", "7", "3", "11", "10", "4", "15", "6", "2", "10", "9", "1"]
    for number in range(len(quantities)):
        rows: dict[tuple[str, str], Any] = {}
        for account in range(3):
            row = position(f"account-{account}", "X", quantities[(number + account) % 12])
            rows[f"account-{account}", "X"] = row
        if number == 6:
            rows["account-1", "X"] = None
        past.add((number + 1) * 1_000_000, rows)
    return past


async def live_through(directory: Path, receiver: WebhookReceiver, past: Past) -> list[Watch]:
    """A new deployment that lives through a past, with a trigger that begins and ends in it."""
    own = Watch("own", {"quantity": {"_gt": "5"}}, {"quantity": {"_lte": "2"}})
    async with LiveWorld(directory, settings(receiver.url)) as world:
        [server] = world.servers
        parts = [Past(), Past(), Past()]
        for number, commit in enumerate(past.commits):
            parts[number // 4].add(*commit)
        await asyncio.to_thread(server.start)
        await world.until_declared()
        await world.replay(parts[0])
        conditions = {"match": own.match, "unmatch": own.unmatch}
        wanted = {"name": own.name, "webhook": receiver.url, **conditions}
        await world.ask(CREATE, input=wanted)
        await world.replay(parts[1])
        await until_position(world, world.committed)
        await settled(world, receiver)
        await world.ask(change("delete"), name="own")
        await world.replay(parts[2])
        await settled(world, receiver)
        return [
            Watch(own.name, own.match, own.unmatch, trigger.since, trigger.until)
            if trigger.name == own.name
            else Watch(DECLARED, DECLARED_MATCH, DECLARED_UNMATCH, trigger.since)
            for trigger in await world.triggers()
        ]


async def settled(world: LiveWorld, receiver: WebhookReceiver) -> None:
    """Everything that there is to say about what is committed was said."""
    expected: set[str] = set()
    for trigger in await world.triggers():
        match, unmatch = json.loads(trigger.match), json.loads(trigger.unmatch or "null")
        watch = Watch(trigger.name, match, unmatch, trigger.since, trigger.until)
        expected |= {told.event_id for told in world.past.events(watch)}
    await until(lambda: expected <= set(receiver.event_ids))


async def test_a_past_that_is_replayed_from_nothing_has_exactly_the_same_events(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    past = a_past()
    contents = []
    for run in ("first", "second"):
        async with WebhookReceiver() as receiver:
            home = tmp_path_factory.mktemp(run)
            watches = await live_through(home, receiver, past)
            await asyncio.sleep(SILENCE_S)
            contents.append(
                {event["event_id"]: event for event in map(verified, receiver.received)}
            )
        assert {watch.name: (watch.since, watch.until) for watch in watches} == {
            DECLARED: (0, None),
            "own": (4_000_000, 8_000_000),
        }
        told = {event.event_id for watch in watches for event in past.events(watch)}
        assert set(contents[-1]) == told
    first, second = (
        {key: event | {"timestamp": ""} for key, event in run.items()} for run in contents
    )
    assert first == second
    assert {event["trigger_name"] for event in first.values()} == {DECLARED, "own"}


async def test_views_that_are_rebuilt_under_their_triggers_repeat_nothing(tmp_path: Path) -> None:
    past = a_past()
    early, late = Past(), Past()
    for number, commit in enumerate(past.commits):
        (early if number < 8 else late).add(*commit)
    async with WebhookReceiver() as receiver:
        async with LiveWorld(tmp_path, settings(receiver.url)) as world:
            await asyncio.to_thread(world.servers[0].start)
            since = await world.until_declared()
            await world.replay(early)
            await settled(world, receiver)
            await until_position(world, world.committed)
        for file in (tmp_path / "state").glob("views.db*"):
            file.unlink()
        async with LiveWorld(tmp_path, settings(receiver.url)) as world:
            await asyncio.to_thread(world.servers[0].start)
            await world.replay(past)
            await settled(world, receiver)
            await asyncio.sleep(SILENCE_S)
    assert len(receiver.received) == len(set(receiver.event_ids))
    watch = Watch(DECLARED, DECLARED_MATCH, DECLARED_UNMATCH, since)
    assert set(receiver.event_ids) == {told.event_id for told in past.events(watch)}
