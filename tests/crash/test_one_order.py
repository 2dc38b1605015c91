"""The same events in the same order everywhere: API, Kafka, Parquet and ClickHouse.

Eight publishers at once send events of three streams, one of them quiet, with times in no order,
while the mirror and the broker are killed. What each copy gives is held against the others.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from tests.services.clickhouse import chdb_engine
from tests.services.http_calls import call
from tests.services.kafka import shared_broker
from tests.services.mirroring import MirrorWorld
from tests.services.nursery import run
from tests.services.tidemark_server import TidemarkServer

PUBLISHERS: Final = 8
REQUESTS: Final = 12
CONFIG: Final = """
state_dir: state
streams:
  usage: {{kind: usage}}
  trades: {{identity: [id], fields: {{id: string, price: decimal}}}}
  quiet: {{identity: [id], fields: {{id: string}}}}
mirror: {{enabled: true, bootstrap_servers: "{brokers}", topic_prefix: "{prefix}"}}
landing:
  parquet: {{enabled: true, block_events: 100}}
  clickhouse: {{enabled: true, block_events: 100}}
"""
# What all copies say of an event, in the names of the API.
SAID: Final = (
    *("ingressSequence", "receivedAt", "occurredAt", "tenantId", "stream", "idempotencyKey"),
    *("metric", "customerRef", "quantity", "content", "causalityKey"),
)


def fingerprint(events: Iterable[dict[str, Any]]) -> tuple[int, str]:
    """How many they are, and a hash of what they say, in the order in which they are given."""
    digest, count = hashlib.sha256(), 0
    for event in events:
        digest.update(json.dumps([event.get(name) for name in SAID]).encode())
        count += 1
    return count, digest.hexdigest()


def publish(base_url: str, publisher: int) -> None:
    source = random.Random(publisher)
    for number in range(REQUESTS):
        events = [
            event_of(source, f"{publisher}-{number}-{n}") for n in range(source.randint(1, 6))
        ]
        answer = call(base_url, "POST", "/v1/events", json={"events": events})
        assert answer.status == 200, answer.json
        assert answer.json["accepted"] == len(events), answer.json


def event_of(source: random.Random, name: str) -> dict[str, Any]:
    day, hour, fraction = source.randint(1, 28), source.randint(0, 23), source.randrange(10**6)
    time = f"2025-01-{day:02}T{hour:02}:00:00.{fraction:06}Z"
    if source.random() < 0.5:
        tenant = source.choice(["acme", "zeta"])
        return {
            "tenantId": tenant,
            "metric": "calls",
            "customerRef": name,
            "ts": time,
            "quantity": str(source.randint(1, 9)),
        }
    return {
        "stream": "trades",
        "tenantId": "acme",
        "occurredAt": time,
        "data": {"id": name, "price": f"{source.randint(1, 99)}.25"},
        **({"causalityKey": f"run-{source.randint(1, 4)}"} if source.random() < 0.5 else {}),
    }


def of_api(base_url: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = call(base_url, "GET", f"/admin/events?limit=100{cursor}").json
        events += page["events"]
        if page["nextCursor"] is None:
            return [with_content(event) for event in events]
        cursor = f"&cursor={page['nextCursor']}"


def with_content(event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "content": event.get("meta", event.get("data"))}


def of_rows(rows: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Of copies that are tables; they have times and numbers where the API has texts."""
    found = []
    for row in rows:
        event = dict(zip(SAID, row, strict=True))
        event["ingressSequence"] = str(event["ingressSequence"])
        for name in ("receivedAt", "occurredAt"):
            event[name] = event[name].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if event["quantity"] is not None:
            event["quantity"] = format(event["quantity"].normalize(), "f")
        if event["content"] is not None:
            event["content"] = json.loads(event["content"])
        found.append(event)
    return found


COLUMNS: Final = (
    *("ingress_sequence", "received_at", "occurred_at", "tenant_id", "stream", "idempotency_key"),
    *("metric", "customer_ref", "quantity", "data", "causality_key"),
)
PLACES: Final = ("ingress_sequence", "kafka_partition", "kafka_offset")


def command(home: Path, *arguments: str, crash_at: str = "") -> subprocess.CompletedProcess[str]:
    environment = {n: v for n, v in os.environ.items() if not n.startswith("TIDEMARK_")}
    if crash_at:
        environment["TIDEMARK_CRASH_AT"] = crash_at
    return run(["-m", "tidemark", *arguments, "--until-caught-up"], cwd=home, env=environment)


def test_api_kafka_parquet_and_clickhouse_give_one_order_and_content(tmp_path: Path) -> None:
    broker = shared_broker()
    world = MirrorWorld(tmp_path, "sqlite:///unused.db", broker)
    config = CONFIG.format(brokers=broker.address, prefix=world.prefix)
    with TidemarkServer(config, directory=tmp_path) as server:
        home = server.directory

        def disturb() -> None:
            """Kills mirrors, and the broker, while events are sent."""
            for point in ("mirror.events_sent", "mirror.committed", "mirror.placed"):
                killed = command(home, "mirror", crash_at=point)
                assert killed.returncode in (0, -signal.SIGKILL), killed.stdout
            broker.kill()
            broker.start()

        with ThreadPoolExecutor(PUBLISHERS + 1) as threads:
            disturbing = threads.submit(disturb)
            for sent in [threads.submit(publish, server.base_url, n) for n in range(PUBLISHERS)]:
                sent.result()
            disturbing.result()
        mirrored = command(home, "mirror")
        assert mirrored.returncode == 0, mirrored.stdout
        for _ in range(2):
            landed = command(home, "land")
            assert landed.returncode == 0, landed.stdout
        api = of_api(server.base_url)
        read = world.read()
        # All of it anew, as after a disaster.
        world.remove_topics(*world.topics())
        again = command(home, "mirror")
        assert again.returncode == 0, again.stdout
        kafka, replayed = (
            [with_content(event) for _, events in found for event in events]
            for found in (read, world.read())
        )
        files = sorted((home / "state" / "landing" / "parquet").glob("*.parquet"))
        tables = [pq.read_table(path, columns=list(COLUMNS)) for path in files]
        parquet = [tuple(row.values()) for table in tables for row in table.to_pylist()]
        with chdb_engine(home / "state" / "landing" / "chdb") as engine:
            clickhouse = engine.rows(
                f"SELECT {', '.join(COLUMNS)} FROM tidemark.events"
                " ORDER BY ingress_sequence, kafka_partition, kafka_offset"
            )
            places = engine.rows(f"SELECT {', '.join(PLACES)} FROM tidemark.events ORDER BY 1")
    expected = fingerprint(api)
    assert expected[0] >= PUBLISHERS * REQUESTS
    assert [event["ingressSequence"] for event in api] == [
        str(number) for number in range(1, expected[0] + 1)
    ]
    assert {event["stream"] for event in api} == {"usage", "trades"}
    assert fingerprint(kafka) == expected
    assert fingerprint(replayed) == expected
    assert fingerprint(of_rows(parquet)) == expected
    assert fingerprint(of_rows(clickhouse)) == expected
    # Where each is in Kafka is where the mirror says it is.
    offsets = {
        (event["stream"], int(number), offset)
        for commit, events in read
        for event in events
        for number, runs in commit["offsets"].get(world.prefix + event["stream"], {}).items()
        for first, last in runs
        for offset in range(int(first), int(last) + 1)
    }
    found = {
        (event["stream"], partition, offset)
        for event, (_, partition, offset) in zip(api, places, strict=True)
    }
    assert found == offsets
    assert len(found) == len(api)
