"""What tests of triggers ask a server, and how they wait for what is delivered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from standardwebhooks import Webhook

from tests.crash.live_world import SECRET
from tests.services.webhook_receiver import Received, WebhookReceiver

WITHIN_S: Final = 30.0
POLL_S: Final = 0.02
# Long enough for an event that must not come to have come.
SILENCE_S: Final = 0.4

TRIGGER: Final = "name since until enabled disabled_reason"
CREATE: Final = (
    "mutation ($input: positionsTriggerInput!)"
    f" {{ create_positions_trigger(input: $input) {{ {TRIGGER} }} }}"
)
FIND: Final = f"query ($name: String!) {{ positions_trigger(name: $name) {{ {TRIGGER} }} }}"


def change(verb: str) -> str:
    return f"mutation ($name: String!) {{ {verb}_positions_trigger(name: $name) {{ {TRIGGER} }} }}"


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        await asyncio.sleep(POLL_S)


async def received(receiver: WebhookReceiver, count: int) -> list[dict[str, Any]]:
    """What has come, when it is so much, each verified by the library that receivers use."""
    await until(lambda: len(receiver.received) >= count)
    return [verified(request) for request in receiver.received]


def verified(request: Received) -> dict[str, Any]:
    content: dict[str, Any] = Webhook(SECRET).verify(request.body, request.headers)
    assert content["event_id"] == request.event_id
    return content


def kinds(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["event_type"], event["data"]["quantity"]) for event in events]
