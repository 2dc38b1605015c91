"""The same events in the same order everywhere: API, Kafka, Parquet, ClickHouse and the views.

Eight publishers at once send events of three streams, one of them quiet, with times in no order and
with corrections among them. Meanwhile mirror, landing and pipeline are killed at named points, and
the broker in the middle of a transaction. Then all of it is made anew. What each copy gives is held
against the others.

A pipeline from Kafka dies at all of its points in `test_kafka_pipeline_crash`, landing at all of
its own in `test_landing_crash`, and `make torture-order` kills all of them at random moments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.crash.event_copies import SAID, Event, fingerprint, of_api
from tests.crash.one_order_checks import (
    assert_copies_give,
    assert_made_anew,
    assert_told,
    assert_worth_comparing,
    fold,
    outcome,
)
from tests.crash.one_order_world import Following, Publishers, World, in_trouble, reached, until
from tests.crash.reading import SQLITE_SCHEME
from tests.services.http_calls import call
from tests.services.tidemark_server import TidemarkServer

# With the first there is something in Kafka, for the pipeline to read.
MIRROR_POINTS: Final = (
    "mirror.committed",
    "mirror.begun",
    "mirror.placed",
    "mirror.events_sent",
    "mirror.before_commit",
)
# The one with SQLite, the other with PostgreSQL.
PIPELINE_POINTS: Final = ("views.after_commit", "views.before_commit")
# In its second block, so that one of its own is whole.
LANDING_POINTS: Final = ("landing.block_written:2", "landing.partition_staged:2")
# Few enough for a pipeline to be at work for a while.
BATCH_EVENTS: Final = 80


def test_all_copies_give_one_order_and_content_whatever_is_killed_and_after_a_replay(
    tmp_path: Path, ledger_url: str
) -> None:
    is_sqlite = ledger_url.startswith(SQLITE_SCHEME)
    views_url = None if is_sqlite else ledger_url
    live = World(tmp_path / "live", ledger_url, views_url=views_url, batch_events=BATCH_EVENTS)
    anew = World(tmp_path / "anew", ledger_url)
    calm = World(tmp_path / "calm", ledger_url, source="ledger")
    with (
        TidemarkServer(live.path.read_text(), directory=tmp_path) as server,
        Publishers(server.base_url) as publishers,
    ):
        # With PostgreSQL, less of what takes long and is the same with either store.
        if is_sqlite:
            kill_at_points(live, publishers, PIPELINE_POINTS[:1])
            with broker_killed(live, publishers, server.base_url):
                # From the ledger, which has all there will be.
                fold(calm)
        else:
            kill_at_points(live, publishers, PIPELINE_POINTS[1:])
            live.catch_up("mirror")
            fold(live)
            fold(calm)
        live.catch_up("land")
        api = of_api(server.base_url)
        usage = call(server.base_url, "GET", "/v1/usage?tenantId=acme").json["usage"]
    assert any(entry["adjusted"] != "0" for entry in usage), "nothing was late"
    assert_told(api, publishers.told)
    assert_worth_comparing(api)
    last_commit = assert_copies_give(api, live)

    # All of it anew, as after a disaster: in other topics, and in other places to land in.
    anew.catch_up("mirror")
    anew.catch_up("land")
    assert assert_copies_give(api, anew)["chain"] == last_commit["chain"]

    # And so is what is made of the events, from either.
    expected = outcome(calm)
    assert expected.frontier[0] == len(api)
    assert expected.frontier[2].hex() == last_commit["chain"]
    assert outcome(live) == expected
    if is_sqlite:
        assert_made_anew(live, anew, expected)


def kill_at_points(live: World, publishers: Publishers, pipeline_points: Sequence[str]) -> None:
    """Each process dies where it should, and another goes on."""

    def mirror(points: Sequence[str]) -> None:
        for point in points:
            with Following(live, "mirror", crash_at=point) as process:
                publishers.send()
                process.killed_itself()

    mirror(MIRROR_POINTS[:1])
    with ThreadPoolExecutor() as threads:
        dying = [
            threads.submit(live.die_at_each, "pipeline", pipeline_points),
            threads.submit(live.die_at_each, "land", LANDING_POINTS),
        ]
        mirror(MIRROR_POINTS[1:])
        for dead in dying:
            dead.result()


@contextmanager
def broker_killed(live: World, publishers: Publishers, base_url: str) -> Iterator[None]:
    """It dies in the middle of a transaction, with all others at work, who go on by themselves when
    it is back."""
    broker = live.broker
    folded = reached(base_url)["pipeline"]
    with (
        Following(live, "mirror", kills_the_broker=True) as mirror,
        Following(live, "land") as landing,
        Following(live, "pipeline") as pipeline,
    ):
        processes = (mirror, landing, pipeline)
        until(lambda: reached(base_url)["pipeline"] > folded, *processes)
        live.kill_broker_in_transaction()
        publishers.send()
        until(lambda: not broker.is_running, *processes)
        found = reached(base_url)
        assert found["pipeline"] < found["mirror"] < found["ledger"]
        # Who sends notices nothing of it.
        publishers.send()
        yield
        until(lambda: in_trouble(base_url) >= {"mirror", "pipeline"}, *processes)
        broker.start()
        until(lambda: len({*reached(base_url).values()}) == 1, *processes)


def test_events_in_another_order_left_out_or_altered_in_anything_have_another_hash() -> None:
    events: list[Event] = [{name: f"{name} {n}" for name in SAID} for n in range(3)]
    others = [[*events[1::-1], events[2]], events[:2], [*events, events[2]]]
    others += [[events[0], {**events[1], name: "other"}, events[2]] for name in SAID]
    others += [[events[0], {**events[1], name: None}, events[2]] for name in SAID]
    hashes = {fingerprint(each) for each in (events, *others)}
    assert len(hashes) == 1 + len(others)
