"""What is live in one process: how its parts end, how they begin again, and what health says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.crash.live_world import SETTINGS
from tests.integration.trigger_calls import until
from tests.services.fed_views import FedViews
from tests.services.live_server import VIEW, position
from tests.services.webhook_receiver import (
    Behaviour,
    Received,
    WebhookReceiver,
    reply,
    silent,
)
from tidemark.app import kept_running, live
from tidemark.app.live import Live, Serving
from tidemark.clock import SystemClock
from tidemark.config import Config, load_config
from tidemark.config.sample import sample_text
from tidemark.errors import TidemarkError
from tidemark.live.hub import Hub
from tidemark.live.triggers import automation, leader_reports, leading
from tidemark.live.triggers.definition import NewTrigger
from tidemark.live.triggers.evaluation import TriggerEvaluator
from tidemark.live.triggers.opening import open_triggers
from tidemark.live.triggers.port import DeliveryRecord, LeaderReport, Leadership, TriggerStore
from tidemark.live.triggers.sqlite import SqliteTriggers
from tidemark.ops.opened_views import OpenedViews
from tidemark.pipeline.definitions import Definitions, table_schema
from tidemark.pipeline.output.errors import ViewsUnavailable
from tidemark.views.sqlite import SqliteViews

MATCH = '{"quantity":{"_gte":"10"}}'
SWIFT_S = 2.0


class World:
    """A process without HTTP: its views are fed by hand."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.views = OpenedViews(config)
        self.live = Live(config, self.views, SystemClock())
        self._schemas = {
            table.name: table_schema(table, ()) for table in Definitions.of(config).tables
        }
        self.fed: FedViews

    async def open(self) -> None:
        store = await self.views.store()
        self.fed = FedViews(store, [self._schemas[VIEW]])
        await self.fed.declare()
        await self.fed.commit(VIEW, [position("a", "X", "1")])
        self.live.start()
        await until(lambda: self.live.serving is not None)

    async def close(self) -> None:
        await self.live.stop()
        await self.views.close()

    @property
    def serving(self) -> Serving:
        serving = self.live.serving
        assert serving is not None
        return serving

    async def declare_another_view(self) -> None:
        await (await self.views.store()).declare(list(self._schemas.values()))

    async def create(self, url: str, name: str = "hot") -> None:
        await self.serving.automation.registry.create(trigger(url, name))

    async def match(self, *symbols: str) -> None:
        await self.fed.commit(VIEW, [position("a", symbol, "20") for symbol in symbols])

    async def events(self) -> list[DeliveryRecord]:
        """As they are stored, whether the process runs or not."""
        store = await open_triggers(self.config)
        try:
            return (await store.deliveries("hot", limit=100)).deliveries
        finally:
            await store.close()

    @property
    def health(self) -> tuple[str, str]:
        part = self.live.health()
        return part.state, part.reason


def trigger(url: str, name: str = "hot") -> NewTrigger:
    return NewTrigger(name, VIEW, url, MATCH, None, creator=None)


def config(directory: Path, more: str = SETTINGS, **env: str) -> Config:
    path = directory / "tidemark.yaml"
    path.write_text(sample_text() + more)
    return load_config(path, {f"TIDEMARK_{name}": value for name, value in env.items()})


@asynccontextmanager
async def running(settings: Config) -> AsyncIterator[World]:
    world = World(settings)
    try:
        await world.open()
        yield world
    finally:
        await world.close()


@asynccontextmanager
async def running_beside(first: World) -> AsyncIterator[World]:
    """Another process over the same stores; its views are fed by the first."""
    world = World(first.config)
    world.live.start()
    try:
        await until(lambda: world.live.serving is not None)
        yield world
    finally:
        await world.close()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automation, "SYNC_AGAIN_S", 0.05)
    monkeypatch.setattr(leader_reports, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(kept_running, "RESTART_AFTER_S", 0.1)
    monkeypatch.setattr(kept_running, "STEADY_AFTER_S", 0.3)


def answering_late(pause_s: float) -> Behaviour:
    async def behave(request: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(pause_s)
        writer.write(reply(200))

    return behave


# How it ends.


@pytest.mark.parametrize("why", ["it stops", "there is another view"])
async def test_webhooks_under_way_are_answered_before_their_sender_ends(
    tmp_path: Path, why: str
) -> None:
    async with WebhookReceiver(answering_late(1.5)) as receiver:
        async with running(config(tmp_path)) as world:
            await world.create(receiver.url)
            await world.match("X")
            await until(lambda: receiver.received)
            if why == "there is another view":
                before = world.serving
                await world.declare_another_view()
                await until(lambda: world.live.serving not in (before, None))
        [event] = await world.events()
        assert (event.status, event.attempts) == ("delivered", 1)
        assert len(receiver.received) == 1


async def test_a_definition_that_shows_the_same_columns_interrupts_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LOOK_AGAIN_S", 0.05)
    async with running(config(tmp_path)) as world:
        before = world.serving
        store = await world.views.store()
        assert isinstance(store, SqliteViews)
        await store._write(("UPDATE views SET definition_hash = ?", ("another",)))
        await asyncio.sleep(0.3)
        assert world.live.serving is before
        await store._write(("UPDATE views SET key = ?", ('["account"]',)))
        await until(lambda: world.live.serving not in (before, None))


async def test_what_cannot_be_answered_in_time_is_given_back(tmp_path: Path) -> None:
    settings = config(tmp_path, LIVE__DRAIN="200ms", WEBHOOKS__MAX_CONCURRENT="1")
    async with WebhookReceiver(silent()) as receiver:
        async with running(settings) as world:
            await world.create(receiver.url)
            await world.match("X", "Y", "Z")
            await until(lambda: receiver.received)
            began = time.monotonic()
        assert time.monotonic() - began < SWIFT_S
        assert [event.status for event in await world.events()] == ["pending"] * 3


async def test_one_who_leads_no_longer_ends_at_once_and_gives_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = asyncio.Event()

    @asynccontextmanager
    async def lead(store: TriggerStore) -> AsyncIterator[Leadership]:
        if lost.is_set():
            await asyncio.Event().wait()
        yield Leadership(lost)

    monkeypatch.setattr(SqliteTriggers, "lead", lead)
    async with WebhookReceiver(silent()) as receiver, running(config(tmp_path)) as world:
        await world.create(receiver.url)
        await world.match("X")
        await until(lambda: receiver.received)
        began = time.monotonic()
        lost.set()
        await until(lambda: world.serving.automation.deliverer is None)
        assert time.monotonic() - began < leading.RETRY_S
        [event] = await world.events()
        assert event.status == "delivering"


# How it begins again.


@pytest.mark.parametrize(("part", "name"), [(Hub, "subscriptions"), (TriggerEvaluator, "triggers")])
async def test_a_part_that_dies_is_begun_anew_and_health_says_so_meanwhile(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    part: type[Any],
    name: str,
) -> None:
    deaths: list[int] = []
    run = part.run

    async def dies_twice(self: Any) -> None:
        await asyncio.sleep(0.05)
        if len(deaths) < 2:
            deaths.append(1)
            raise ZeroDivisionError("a bug of ours")
        await run(self)

    monkeypatch.setattr(part, "run", dies_twice)
    async with WebhookReceiver() as receiver, running(config(tmp_path)) as world:
        await until(lambda: world.health[0] == "degraded")
        assert world.health[1].startswith(
            f"{name} ended by an unexpected error (ZeroDivisionError)"
        )
        # Subscriptions are of one process, and nothing to triggers.
        state = world.live.triggering().state
        assert state == ("ready" if part is Hub else "degraded")
        await until(lambda: world.health[0] == "ready")
        await world.create(receiver.url)
        await world.match("X")
        await until(lambda: receiver.received)
    assert len(deaths) == 2
    assert "a bug of ours" in caplog.text


# What health says of triggers.


async def test_a_declared_trigger_that_cannot_be_made_is_tried_again_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with WebhookReceiver() as receiver:
        declared = f"""{SETTINGS}
triggers:
  hot: {{view: {VIEW}, webhook: "{receiver.url}", match: {{quantity: {{_gte: 10}}}}}}
  other: {{view: {VIEW}, webhook: "{receiver.url}", match: {{quantity: {{_gte: 10}}}}}}
"""
        settings = config(tmp_path, declared)
        store = await open_triggers(settings)
        await store.add(trigger(receiver.url), 0, 0)
        async with running(settings) as world:
            await until(lambda: world.health[0] == "degraded")
            assert "hot of the configuration has the name of one that was made" in world.health[1]
            assert "Rename one of them" in world.health[1]
            await asyncio.sleep(0.3)
            assert caplog.text.count("not all triggers of the configuration") == 1
            # The others are made all the same.
            assert {one.name: one.origin for one in await store.listed()} == {
                "hot": "api", "other": "config"
            }  # fmt: skip
            await store.remove("hot")
            await until(lambda: world.health[0] == "ready")
            assert {one.origin for one in await store.listed()} == {"config"}
        await store.close()


async def test_triggers_whose_events_nobody_signs_are_told_with_what_to_do(tmp_path: Path) -> None:
    settings = config(tmp_path, "")
    store = await open_triggers(settings)
    await store.add(trigger("https://one.example/hook"), 0, 0)
    async with running(settings) as world:
        await until(lambda: world.health[0] == "degraded")
        assert world.health[1].startswith("no event of any trigger is sent")
        assert "webhooks.secrets" in world.health[1]
        await store.remove("hot")
        await until(lambda: world.health[0] == "ready")
    await store.close()


async def test_every_process_tells_of_the_trouble_that_the_leader_has(tmp_path: Path) -> None:
    settings = config(tmp_path, "")
    store = await open_triggers(settings)
    async with running(settings) as leader, running_beside(leader) as other:
        await until(lambda: leader.serving.automation.leads)
        assert not other.serving.automation.leads
        await store.add(trigger("https://one.example/hook"), 0, 0)
        for world in (leader, other):
            await until(lambda world=world: world.health[0] == "degraded")  # type: ignore[misc]
        assert other.health == leader.health
        await store.remove("hot")
        for world in (leader, other):
            await until(lambda world=world: world.health[0] == "ready")  # type: ignore[misc]
    await store.close()


async def test_one_who_leads_no_longer_has_the_trouble_of_the_next_leader_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = asyncio.Event()

    @asynccontextmanager
    async def lead(store: TriggerStore) -> AsyncIterator[Leadership]:
        if lost.is_set():
            await asyncio.Event().wait()
        yield Leadership(lost)

    async def away(evaluator: TriggerEvaluator) -> bool:
        raise ViewsUnavailable("the views are away from here")

    monkeypatch.setattr(SqliteTriggers, "lead", lead)
    monkeypatch.setattr(TriggerEvaluator, "round", away)
    settings = config(tmp_path)
    store = await open_triggers(settings)
    async with running(settings) as world:
        await until(lambda: world.health == ("degraded", "the views are away from here"))
        lost.set()
        await until(lambda: not world.serving.automation.leads)
        assert world.serving.automation.evaluator.trouble is None
        await store.tell(LeaderReport(1, TidemarkError("no secret")))
        await until(lambda: world.health == ("degraded", "no secret"))
        await store.tell(LeaderReport(2))
        await until(lambda: world.health[0] == "ready")
    await store.close()
