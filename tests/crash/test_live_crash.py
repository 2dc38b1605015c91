"""SIGKILL of a whole server between a change and its receivers, and the torture of what is live."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from standardwebhooks import Webhook

from tests.crash.live_followers import Astray, Follower
from tests.crash.live_past import Past, Told, Watch, event_id, key_of
from tests.crash.live_receiving import MoodyReceiver, faults
from tests.crash.live_torture import main, torture
from tests.crash.live_variants import RESUMES_TOO_LATE, SENDS_AT_MOST_ONCE
from tests.crash.live_world import (
    DECLARED,
    DECLARED_MATCH,
    DECLARED_UNMATCH,
    SECRET,
    LiveWorld,
    settings,
    some_change,
)
from tests.services.http_calls import call
from tests.services.live_server import position
from tests.services.postgres import PostgresServer
from tests.services.webhook_receiver import Received
from tidemark.app.live import LOOK_AGAIN_S
from tidemark.crash import POINTS

LIVE_POINTS: Final = [
    f"{point}:{passage}"
    for point, passage in zip(
        [point for point in POINTS if point.startswith(("trigger.", "webhook."))],
        [2, 3, 1, 4, 2],
        strict=True,
    )
]
DIES_WITHIN_S: Final = 30.0
SWINGING: Final = "swinging"
DELIVERED_WITHIN_S: Final = 60.0
POLL_S: Final = 0.02
OWN: Final = Watch("own", {"quantity": {"_gt": "6"}}, None)


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """None is SQLite in the directory of the test."""
    if request.param == "sqlite":
        yield None
        return
    postgres: PostgresServer = request.getfixturevalue("postgres")
    postgres.start()
    url = postgres.create_database()
    yield url
    postgres.start()
    postgres.drop_database(url)


async def delivered(receiver: MoodyReceiver, expected: set[str]) -> None:
    deadline = time.monotonic() + DELIVERED_WITHIN_S
    while expected - receiver.taken:
        assert time.monotonic() < deadline, f"{len(expected - receiver.taken)} are missing"
        await asyncio.sleep(POLL_S)


async def test_a_server_killed_at_each_point_loses_and_invents_nothing(
    tmp_path: Path, store_url: str | None
) -> None:
    choose = random.Random(len(LIVE_POINTS))
    receiver = MoodyReceiver(choose)
    world = LiveWorld(tmp_path, settings(receiver.url), store_url=store_url)
    [server] = world.servers

    async def change_rows() -> None:
        others = [row for row in world.past.rows.values() if row["account"] != SWINGING]
        rows, deleted = some_change(choose, others)
        rows.append(position(SWINGING, "X", choose.choice(["1", "9"])))
        await world.commit(rows, deleted=deleted)
        await asyncio.sleep(POLL_S)

    async with receiver, world:
        await world.commit([position(SWINGING, "X", "9")])
        await asyncio.to_thread(server.start)
        made = await world.ask(
            "mutation ($input: positionsTriggerInput!)"
            " { create_positions_trigger(input: $input) { since } }",
            input={"name": OWN.name, "webhook": receiver.url, "match": OWN.match},
        )
        own = OWN._replace(since=int(made["create_positions_trigger"]["since"]))
        await change_rows()
        await asyncio.to_thread(server.kill)
        for point in LIVE_POINTS:
            server.env["TIDEMARK_CRASH_AT"] = point
            await asyncio.to_thread(server.start, wait=False)
            deadline = time.monotonic() + DIES_WITHIN_S
            while server.is_running:
                assert time.monotonic() < deadline, point
                await change_rows()
            assert server.exit_code == -signal.SIGKILL, point
            # The next one begins with what nobody was there to see.
            for _ in range(10):
                await change_rows()
        del server.env["TIDEMARK_CRASH_AT"]
        await asyncio.to_thread(server.start)
        receiver.moody = False
        since = await world.until_declared()
        watches = [own, Watch(DECLARED, DECLARED_MATCH, DECLARED_UNMATCH, since)]
        lives = {watch.name: [list(world.past.events(watch))] for watch in watches}
        everything = {event.event_id for [life] in lives.values() for event in life}
        assert len(everything) > 10 * len(LIVE_POINTS)
        await delivered(receiver, everything)
        assert list(faults(receiver.received, lives)) == []


async def test_after_an_outage_of_the_database_everything_live_is_ready_again(
    tmp_path: Path, mortal_postgres: PostgresServer, mortal_url: str
) -> None:
    receiver = MoodyReceiver(random.Random(1))
    world = LiveWorld(tmp_path, settings(receiver.url), store_url=mortal_url)
    [server] = world.servers

    async def live_is(state: str) -> None:
        deadline = time.monotonic() + DELIVERED_WITHIN_S
        while True:
            said = (await asyncio.to_thread(call, server.base_url, "GET", "/readyz")).json
            if said["parts"]["live"]["state"] == state:
                return
            assert time.monotonic() < deadline, said
            await asyncio.sleep(POLL_S)

    async with receiver, world:
        await world.commit([position("a", "X", "1")])
        await asyncio.to_thread(server.start)
        await live_is("ready")
        await world.until_declared()
        await asyncio.to_thread(mortal_postgres.stop, "immediate")
        await live_is("degraded")
        # Long enough for every part to have noticed.
        await asyncio.sleep(2 * LOOK_AGAIN_S)
        await asyncio.to_thread(mortal_postgres.start)
        await live_is("ready")
        await world.commit([position("a", "X", "20")])
        try:
            await delivered(receiver, {event_id(DECLARED, ("a", "X"), world.committed)})
        except AssertionError as error:
            raise AssertionError(f"{error}; the server says:\n{server.log_text()}") from error


def test_a_few_kills_at_random_moments_break_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert asyncio.run(torture(seed=1, count=2, stores=["sqlite"])) == 0
    said = capsys.readouterr().out
    assert said.startswith("seed 1: 2 kills of what is live on sqlite\n")
    assert re.search(r"seed 1: 2 kills in \d+ s, nothing broken", said)


# That a run breaks nothing means something only if what is broken is noticed.


def a_past() -> Past:
    past = Past()
    for number, quantity in enumerate(["9", "1", "9"], 1):
        row = position("a", "X", quantity)
        past.add(number, {key_of(row): row})
    return past


def requests_of(events: Sequence[Told]) -> list[Received]:
    """As a receiver has them, signed."""
    found = []
    for event in events:
        content = {
            **event._asdict(),
            "trigger_name": OWN.name,
            "data": {**event.data, "quantity": str(event.data["quantity"])},
        }
        body = json.dumps(content)
        now = datetime.now(UTC)
        headers = {
            "webhook-id": event.event_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": Webhook(SECRET).sign(event.event_id, now, body),
        }
        found.append(Received("/", headers, body.encode(), 1))
    return found


def test_what_is_invented_out_of_order_missing_or_changed_is_noticed() -> None:
    first, second, third = told = list(a_past().events(OWN))
    lives = {OWN.name: [told]}

    def said(*events: Told) -> list[str]:
        return [fault.split(":")[0] for fault in faults(requests_of(events), lives)]

    assert said(first, second, third) == []
    assert said(first, first, second) == []
    invented = first._replace(event_id="0" * 32)
    assert said(first, invented) == ["invented"]
    assert said(first, second, first) != []
    assert said(first, third) != []
    assert said(first._replace(event_type="UNMATCH")) != []
    changed = first._replace(data={**first.data, "side": "sell"})
    assert any("has two bodies" in fault for fault in faults(requests_of([first, changed]), lives))


def test_a_subscriber_notices_a_change_that_is_lost_or_told_twice() -> None:
    def follower() -> Follower:
        return Follower(a_past(), {"quantity": {"_gt": "5"}}, [], random.Random(1))

    def update(operation: str, timestamp: int, quantity: str | None = None) -> dict[str, Any]:
        data = {"account": "a", "symbol": "X", "side": "buy", "quantity": quantity}
        return {"operation": operation, "data": data, "ts_timestamp": str(timestamp)}

    def hears(*updates: dict[str, Any]) -> None:
        one = follower()
        one.begin()
        for each in updates:
            one.take(each)

    inserted, deleted = update("INSERT", 1, "9"), update("DELETE", 2)
    hears(inserted, update("PROGRESS", 1), deleted, update("PROGRESS", 2))
    for wrong in [
        [update("PROGRESS", 1)],
        [inserted, inserted],
        [deleted],
        [inserted, update("PROGRESS", 1), update("PROGRESS", 2)],
        [inserted, update("PROGRESS", 1), update("UPDATE", 1, "9")],
        [inserted, deleted, update("PROGRESS", 2), update("PROGRESS", 1)],
        [update("INSERT", 1, "8"), update("PROGRESS", 1)],
    ]:
        with pytest.raises(Astray):
            hears(*wrong)


@pytest.mark.parametrize(
    ("variant", "evidence"),
    [
        (SENDS_AT_MOST_ONCE, "events are missing, such as"),
        (RESUMES_TOO_LATE, "Astray: "),
    ],
    ids=["a server that sends at most once", "a server that resumes too late"],
)
def test_a_planted_server_does_not_survive_it(
    capsys: pytest.CaptureFixture[str], variant: str, evidence: str
) -> None:
    assert asyncio.run(torture(5, 2, ["sqlite"], variant=variant, patience_s=5)) == 1
    said = capsys.readouterr().out
    assert evidence in said
    assert "make torture-live SEED=5 N=2" in said
    [place] = re.findall(r"the evidence is in (\S+)", said)
    assert (Path(place) / "server-0.log").exists()
    shutil.rmtree(place)


def test_an_unknown_store_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--store", "oracle"])
    assert "invalid choice: 'oracle'" in capsys.readouterr().err
