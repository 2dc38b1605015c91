"""Receivers that fail at random, and what must be true of what they got."""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from standardwebhooks import Webhook

from tests.crash.live_past import Key, Told, key_of, shown
from tests.crash.live_world import SECRET
from tests.services.webhook_receiver import Received, WebhookReceiver, reply


class MoodyReceiver(WebhookReceiver):
    """Remembers which events it has taken. While `moody` it takes only some of them at once."""

    def __init__(self, choose: random.Random) -> None:
        super().__init__(self._answer)
        self.moody = True
        self.taken: set[str] = set()
        self._choose = random.Random(choose.random())

    async def _answer(self, request: Received, writer: asyncio.StreamWriter) -> None:
        mood = 1.0
        if self.moody:
            # Slow enough for a kill to find some requests unanswered.
            await asyncio.sleep(self._choose.choice([0, 0, self._choose.uniform(0, 0.4)]))
            mood = self._choose.random()
        if mood < 0.15:
            writer.transport.abort()
        elif mood < 0.35:
            writer.write(reply(self._choose.choice([500, 503, 404])))
        else:
            self.taken.add(request.event_id)
            writer.write(reply(200))


def faults(
    received: Sequence[Received], lives: Mapping[str, Sequence[Sequence[Told]]]
) -> Iterator[str]:
    """What is wrong with requests, given the events of each life of each trigger.

    That all have arrived is for the caller to say; here is what holds at any time.
    """
    told = {event.event_id: event for name in lives for life in lives[name] for event in life}
    names = {event.event_id: name for name in lives for life in lives[name] for event in life}
    bodies: dict[str, bytes] = {}
    came: dict[tuple[str, Key], list[str]] = defaultdict(list)
    for request in received:
        identity = request.event_id
        event = told.get(identity)
        if event is None:
            yield f"invented: {request.body!r}"
            continue
        Webhook(SECRET).verify(request.body, request.headers)
        if bodies.setdefault(identity, request.body) != request.body:
            yield f"{identity} has two bodies"
        content = json.loads(request.body)
        if _as_told(content) != event or content["trigger_name"] != names[identity]:
            yield f"{content} should be {event}"
        came[names[identity], event.key].append(identity)
    for name, of_name in lives.items():
        for life in of_name:
            for key, expected in _by_key(life).items():
                arrived = [one for one in came[name, key] if one in expected]
                if arrived != sorted(arrived, key=expected.index):
                    yield f"{name} {key}: {arrived} came, {expected} is the order"
                if list(dict.fromkeys(arrived)) != expected[: len(set(arrived))]:
                    yield f"{name} {key}: of {expected} only {arrived} came, which leaves a hole"
    for (name, key), arrived in came.items():
        times = [told[identity].source_timestamp for identity in arrived]
        if times != sorted(times):
            yield f"{name} {key}: came in the order of {times}"


def _by_key(events: Iterable[Told]) -> dict[Key, list[str]]:
    found: dict[Key, list[str]] = defaultdict(list)
    for event in events:
        found[event.key].append(event.event_id)
    return found


def _as_told(content: dict[str, Any]) -> Told:
    return Told(
        content["event_id"],
        content["event_type"],
        key_of(content["data"]),
        int(content["source_timestamp"]),
        shown(content["data"]),
    )
