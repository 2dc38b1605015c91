"""What each copy of a ledger gives, held against the others: API, Kafka, what is landed, views."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from tests.acceptance.warm_runs import tidemark_on_spark
from tests.crash.event_copies import (
    SAID,
    Event,
    Landed,
    fingerprint,
    of_clickhouse,
    of_parquet,
    with_content,
)
from tests.crash.one_order_world import PARTITIONS, STREAMS, World
from tests.folding.outcomes import Outcome, outcome_of
from tidemark.config import load_config
from tidemark.views.opening import open_views


def assert_told(api: list[Event], told: list[dict[str, Any]]) -> None:
    """The API has what publishers were told, and each event once."""
    numbers = [event["ingressSequence"] for event in api]
    assert numbers == [str(number) for number in range(1, len(api) + 1)]
    named = ("ingressSequence", "idempotencyKey", "receivedAt")
    assert sorted(tuple(event[name] for name in named) for event in api) == sorted(
        tuple(result[name] for name in named) for result in told
    )


def assert_worth_comparing(api: list[Event]) -> None:
    """All that could differ is there."""
    for name in SAID:
        assert any(event.get(name) is not None for event in api), name
    times = [event["occurredAt"] for event in api]
    assert times != sorted(times)
    assert {event["stream"] for event in api} == {*STREAMS} - {"quiet"}
    assert {event.get("control") for event in api} == {None, "void", "amend"}


def assert_copies_give(api: list[Event], world: World) -> dict[str, Any]:
    """What is read of a world, of Kafka with the consumer of docs/reference/kafka.md, is what the
    API gives. Says which commit is the last in Kafka."""
    read = world.read()
    kafka = [with_content(event) for _, events in read for event in events]
    # These two say more of an event than is landed: also the hash of its content.
    assert_same(kafka, api, sorted({"contentHash", *(name for event in api for name in event)}))
    for landed in (of_parquet(world.landed / "parquet"), of_clickhouse(world.landed / "chdb")):
        assert_same(landed.events, api)
        assert_placed(landed, world, read)
    return read[-1][0]


def assert_same(found: list[Event], expected: list[Event], names: Collection[str] = SAID) -> None:
    # The first that differs says more than a hash.
    for one, other in zip(found, expected, strict=False):
        assert [one.get(name) for name in names] == [other.get(name) for name in names]
    assert fingerprint(found, names) == fingerprint(expected, names)


def assert_placed(landed: Landed, world: World, read: list[tuple[Any, list[Event]]]) -> None:
    """Where each event is in Kafka is where the mirror says it is: in all partitions of all topics
    but of the quiet one, and in each in order."""
    topics = world.admin().list_topics(timeout=10).topics
    for stream in STREAMS:
        assert len(topics[world.prefix + stream].partitions) == PARTITIONS
    places = [
        (world.prefix + event["stream"], *place)
        for event, place in zip(landed.events, landed.places, strict=True)
    ]
    newest: dict[tuple[str, int], int] = {}
    for topic, partition, offset in places:
        assert offset > newest.get((topic, partition), -1)
        newest[topic, partition] = offset
    assert newest.keys() == {
        (world.prefix + stream, n) for stream in ("usage", "trades") for n in range(PARTITIONS)
    }
    for commit, _ in read:
        told = {
            (topic, int(number), offset)
            for topic, numbers in commit["offsets"].items()
            for number, runs in numbers.items()
            for first, last in runs
            for offset in range(int(first), int(last) + 1)
        }
        assert {*places[int(commit["first"]) - 1 : int(commit["last"])]} == told


def assert_made_anew(live: World, anew: World, expected: Outcome) -> None:
    """From the topics that were made anew, and from the ledger by `replay`."""
    fold(anew)
    assert outcome(anew) == expected
    replayed = on_spark("replay", "--as", "again", world=live)
    assert (replayed["sequence"], replayed["same"]) == (str(expected.frontier[0]), True)
    assert (replayed["examples"], replayed["left"]) == ([], [])
    assert {view["view"]: view["definition"] for view in replayed["views"]} == {
        "calls": "same",
        "prices": "same",
    }


def fold(world: World) -> None:
    on_spark("pipeline", "--until-caught-up", world=world)


def on_spark(*arguments: str, world: World) -> Any:
    # In one batch: how the work is cut plays no part.
    env = {"TIDEMARK_PIPELINE__MAX_BATCH_EVENTS": "200000"}
    ran = tidemark_on_spark(*arguments, "--json", "-c", world.path, cwd=world.directory, env=env)
    assert ran.code == 0, ran.err
    return ran.json


def outcome(world: World) -> Outcome:
    """Rows, the log of changes, what was set apart as late, and errors."""

    async def found() -> Outcome:
        views = await open_views(load_config(world.path, {}))
        try:
            return await outcome_of(views)
        finally:
            await views.close()

    return asyncio.run(found())
