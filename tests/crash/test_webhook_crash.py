"""SIGKILL on the way from the outbox to a receiver: every event arrives, in order for its row."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import defaultdict
from typing import Final

from standardwebhooks import Webhook

from tests.contract.triggers_home import Triggers, TriggersHome, enqueue, event, new_trigger
from tests.crash.webhook_child import SECRET
from tests.services.nursery import run
from tests.services.webhook_receiver import Received, WebhookReceiver, reply
from tidemark.live.triggers.port import DeliveryRecord

WEBHOOK_POINTS: Final = ("webhook.claimed", "webhook.sent", "webhook.settled")
PASSAGES: Final = (1, 3, 8)
EVENTS: Final = 300
ROWS: Final = 25


async def run_child(url: str, crash_at: str | None) -> int:
    env = dict(os.environ)
    env.pop("TIDEMARK_CRASH_AT", None)
    if crash_at is not None:
        env["TIDEMARK_CRASH_AT"] = crash_at
    arguments = ["-m", "tests.crash.webhook_child", url]
    return (await asyncio.to_thread(run, arguments, env=env)).returncode


async def fill(triggers: Triggers, webhook: str) -> dict[str, list[str]]:
    """Events of many rows in many steps; gives the ids of each row in their order."""
    trigger = await triggers.add(new_trigger(webhook=webhook), 0, 1)
    rows: dict[str, list[str]] = defaultdict(list)
    chance = random.Random(EVENTS)
    for first in range(0, EVENTS, 20):
        step = []
        for number in range(first, first + 20):
            row = f"[{chance.randrange(ROWS)}]"
            rows[row].append(f"event-{number}")
            step.append(event(f"event-{number}", row))
        await enqueue(triggers, trigger, *step)
    return dict(rows)


async def test_a_process_killed_at_each_point_loses_nothing_and_keeps_the_order(
    ledger_url: str,
) -> None:
    chance = random.Random(ROWS)

    async def moody(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(500 if chance.random() < 0.2 else 200))

    home = TriggersHome(ledger_url)
    async with WebhookReceiver(moody) as receiver:
        rows = await fill(await home.open(), receiver.url)
        await home.close()
        for passage in PASSAGES:
            for point in WEBHOOK_POINTS:
                died = await run_child(ledger_url, f"{point}:{passage}")
                assert died == -signal.SIGKILL, (point, passage)
        assert await run_child(ledger_url, None) == 0

    came: dict[str, list[str]] = defaultdict(list)
    row_of = {event_id: row for row, event_ids in rows.items() for event_id in event_ids}
    for request in receiver.received:
        Webhook(SECRET).verify(request.body, request.headers, json_parse=False)
        assert request.body.decode() == request.event_id
        came[row_of[request.event_id]].append(request.event_id)
    # A repeat comes before anything that is newer, so the first arrivals are in order, and so is
    # everything if repeats are left in their place.
    for row, event_ids in rows.items():
        assert list(dict.fromkeys(came[row])) == event_ids
        assert came[row] == sorted(came[row], key=event_ids.index)
    assert {record.status for record in await records(home)} == {"delivered"}
    await home.close()


async def records(home: TriggersHome) -> list[DeliveryRecord]:
    page = await (await home.open()).deliveries("hot", limit=EVENTS)
    assert len(page.deliveries) == EVENTS
    return page.deliveries
