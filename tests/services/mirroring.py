"""A ledger, a broker and a mirror between them; and the consumer of docs/reference/kafka.md."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from confluent_kafka import (
    OFFSET_END,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.services.kafka import KafkaBroker
from tidemark.app.mirror import Mirrored, OnProgress, run_mirror
from tidemark.config import Config, load_config
from tidemark.ledger.event_json import event_view
from tidemark.ledger.port import CommitRow, EventRow
from tidemark.ledger.spelling import SpeltEvents
from tidemark.mirror import chunks
from tidemark.mirror.messages import Messages, event_messages

PAGE: Final = (Path(__file__).parents[2] / "docs/reference/kafka.md").read_text()
WITHIN_S: Final = 60.0
_numbers = itertools.count(1)

[CONSUMER] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def alter_message(
    monkeypatch: pytest.MonkeyPatch, sequence: int, change: Callable[[bytes], bytes]
) -> None:
    """What is sent of an event is then not what the ledger has."""

    def altered(commits: Sequence[CommitRow], events: SpeltEvents) -> Messages:
        messages = event_messages(commits, events)
        values = [
            change(value) if number == sequence else value
            for number, value in enumerate(messages.values, events.first_sequence)
        ]
        return messages._replace(values=values)

    monkeypatch.setattr(chunks, "event_messages", altered)


class MirrorWorld:
    """Topics of its own on a broker, for the ledger at a URL."""

    def __init__(self, directory: Path, ledger_url: str, broker: KafkaBroker) -> None:
        self.broker = broker
        self.ledger_url = ledger_url
        self.prefix = f"t{next(_numbers)}-{time.time_ns()}."
        self.path = directory / "tidemark.yaml"
        self.settings: dict[str, str] = {}
        self.path.write_text(f"""
state_dir: {directory / "state"}
ledger: {{url: "{ledger_url}"}}
streams:
  usage: {{kind: usage}}
  trades: {{fields: {{a: string}}}}
  quiet: {{fields: {{a: string}}}}
mirror: {{enabled: true, bootstrap_servers: "{broker.address}", topic_prefix: "{self.prefix}"}}
""")

    def configure(self, **settings: object) -> None:
        """With these settings instead, each named by its path with `__` between."""
        self.settings = {f"TIDEMARK_{n.upper()}": str(value) for n, value in settings.items()}

    @property
    def config(self) -> Config:
        return load_config(self.path, self.settings)

    @property
    def commits_topic(self) -> str:
        return f"{self.prefix}tidemark.commits"

    async def mirror(self, on_progress: OnProgress = lambda done, total: None) -> Mirrored | None:
        """Everything that the ledger has now."""
        return await asyncio.to_thread(
            run_mirror,
            self.config,
            until_caught_up=True,
            on_progress=on_progress,
            stop=threading.Event(),
        )

    @contextmanager
    def mirroring(self) -> Iterator[list[BaseException]]:
        """While it lasts, all that comes into the ledger; what ended it before is in the list."""
        stop, failures = threading.Event(), []

        def run() -> None:
            try:
                run_mirror(
                    self.config,
                    until_caught_up=False,
                    on_progress=lambda done, total: None,
                    stop=stop,
                )
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield failures
        finally:
            stop.set()
            thread.join(WITHIN_S)
            assert not thread.is_alive(), "the mirror does not stop"

    def read(self) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """What the consumer of the page finds. Raises `SystemExit` if it finds something wrong."""
        program: dict[str, Any] = {"__name__": "consumer"}
        exec(compile(CONSUMER, "consumer", "exec"), program)
        return list(program["events"](self.broker.address, self.prefix))

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.address})

    def topics(self) -> list[str]:
        admin = self.admin()
        return [n for n in admin.list_topics(timeout=10).topics if n.startswith(self.prefix)]

    def remove_topics(self, *topics: str) -> None:
        """They are gone when this returns, though a mirror at work may have made them anew."""
        admin = self.admin()
        before = _topic_ids(admin, topics)
        for removed in admin.delete_topics(list(topics)).values():
            removed.result()
        wait_until(lambda: not before & _topic_ids(admin, topics))

    def make_topic(self, topic: str, partitions: int) -> None:
        """As somebody else would, with settings that the mirror does not refuse."""
        settings = {"retention.ms": "-1", "retention.bytes": "-1"}
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=settings)
        admin = self.admin()
        for made in admin.create_topics([wanted]).values():
            made.result()

    def remove_messages(self, topic: str) -> None:
        """All of a topic, as its retention does in time."""
        admin = self.admin()
        partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
        wanted = [TopicPartition(topic, number, OFFSET_END) for number in partitions]
        for removed in admin.delete_records(wanted).values():
            removed.result()

    def set_option(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = self.admin()
        for changed in admin.incremental_alter_configs([resource]).values():
            changed.result()

    def write(self, stream: str, value: bytes | None, **options: Any) -> None:
        """As somebody else would."""
        producer = Producer({"bootstrap.servers": self.broker.address})
        producer.produce(self.prefix + stream, value, **options)
        assert producer.flush(10) == 0


def _topic_ids(admin: AdminClient, topics: Sequence[str]) -> set[str]:
    """Those of the ones that exist: a topic that is made anew has another."""
    ids = set()
    for found in admin.describe_topics(TopicCollection([*topics])).values():
        try:
            ids.add(str(found.result().topic_id))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    return ids


def as_mirrored(commits: list[CommitRow], events: list[EventRow]) -> list[tuple[Any, Any]]:
    """What a reader should find of a ledger: the sequences of each commit, and its events."""
    shown = {
        row.ingress_sequence: json.loads(msgspec.json.encode(event_view(row))) for row in events
    }
    return [
        (
            (commit.first_sequence, commit.last_sequence, commit.chain.hex()),
            [shown[n] for n in range(commit.first_sequence, commit.last_sequence + 1)],
        )
        for commit in commits
    ]


def as_read(found: list[tuple[dict[str, Any], list[dict[str, Any]]]]) -> list[tuple[Any, Any]]:
    return [
        ((int(commit["first"]), int(commit["last"]), commit["chain"]), events)
        for commit, events in found
    ]


def wait_until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
