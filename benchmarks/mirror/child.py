"""What is measured, in a process of its own: `python -m benchmarks.mirror.child`.

    mirror CONFIG           the mirror, until all of the ledger is in Kafka
    plain CONFIG PREFIX     a plain producer that sends what is in the topics with this prefix

Each gets ready, says so with a line, and begins when it is given one; what it found is the next.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from benchmarks.ingest.services import peak_rss_mib_of
from benchmarks.mirror.rig import config_at
from tests.services.processes import resident_bytes
from tidemark.app.mirror import run_mirror
from tidemark.config import Config
from tidemark.mirror.ahead import MOST_EVENTS
from tidemark.mirror.kafka import ANSWER_WITHIN_S, TRANSACTION_WITHIN_S, producer
from tidemark.mirror.messages import COMMITS_TOPIC, decode_commit
from tidemark.mirror.position import sequence_of
from tidemark.mirror.topics import Topics

_COMMAND: Final = (sys.executable, "-m", "benchmarks.mirror.child")
_MIB: Final = 1024 * 1024
_AT_ONCE: Final = 10_000
_ANSWERED_WITHIN_S: Final = 30.0
_POLL_S: Final = 0.1


class Point(msgspec.Struct, frozen=True):
    """When so many events were there, what the process had of memory."""

    events: int
    seconds: float
    rss_mib: float


class Sent(msgspec.Struct, frozen=True):
    """Everything sent once. `cpu_s` is of all threads, those of Kafka's client too."""

    seconds: float
    cpu_s: float
    peak_rss_mib: float
    points: list[Point]


class Child:
    """One such process. Made, it gets ready; `wait_until_ready` comes before `go`."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*_COMMAND, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._log = log

    def wait_until_ready(self) -> None:
        self._line()

    def go(self) -> Sent:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._line(), type=Sent)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"what is measured has ended:\n{self._log.read_text()[-4000:]}")
        return line


Told = Callable[[int], None]
"""How many events are there, now and then."""


def the_mirror(config: Config) -> Callable[[Told], None]:
    """With topics that are there and empty, as the other has them. It looks at them first."""
    topics = Topics(config)
    topics.ensure([topics.commits, *map(topics.name_of, config.streams)])

    def work(told: Told) -> None:
        run_mirror(
            config,
            until_caught_up=True,
            on_progress=lambda done, total: told(done),
            stop=threading.Event(),
        )

    return work


def plain_producer(config: Config, prefix: str) -> Callable[[Told], None]:
    """The same messages to as many topics, in transactions as large, with the same settings.

    They are in memory. It waits only for the end of each transaction, and asks for no place.
    """
    topics = Topics(config)
    names = {prefix + stream: topics.name_of(stream) for stream in (COMMITS_TOPIC, *config.streams)}
    topics.ensure(list(names.values()))
    transactions = _transactions(config, names, prefix + COMMITS_TOPIC)
    named = f"plain-{topics.commits}"
    sender: Any = producer(config, named, topics.batch_bytes, lambda text: None)

    def work(told: Told) -> None:
        sender.init_transactions(ANSWER_WITHIN_S)
        done = 0
        for messages, events in transactions:
            sender.begin_transaction()
            for topic, key, value, timestamp, headers in messages:
                while True:
                    try:
                        # Without names, as the mirror does it: with them it takes half as long
                        # again.
                        sender.produce(topic, value, key, -1, None, None, timestamp, headers)
                        break
                    except BufferError:
                        sender.poll(_POLL_S)
            sender.commit_transaction(TRANSACTION_WITHIN_S)
            done += events
            told(done)

    return work


def _transactions(
    config: Config, names: dict[str, str], commits_topic: str
) -> list[tuple[list[tuple[Any, ...]], int]]:
    """Events in their order and then their commits, as many at once as the mirror sends."""
    events: list[tuple[int, tuple[Any, ...]]] = []
    commits: list[tuple[int, tuple[Any, ...]]] = []
    for message in _all_messages(config, list(names)):
        sent = (
            names[message.topic()],
            message.key(),
            message.value(),
            message.timestamp()[1],
            dict(message.headers() or ()),
        )
        if message.topic() == commits_topic:
            commits.append((decode_commit(message.value()).last_sequence, sent))
        else:
            events.append((sequence_of(message) or 0, sent))
    events.sort(key=itemgetter(0))
    commits.sort(key=itemgetter(0))
    found, told = [], 0
    for begin in range(0, len(events), MOST_EVENTS):
        part = events[begin : begin + MOST_EVENTS]
        end = told
        while end < len(commits) and commits[end][0] <= part[-1][0]:
            end += 1
        found.append(([sent for _, sent in [*part, *commits[told:end]]], len(part)))
        told = end
    return found


def _all_messages(config: Config, topics: Sequence[str]) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": config.mirror.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    there = consumer.list_topics(timeout=_ANSWERED_WITHIN_S).topics
    partitions = [
        TopicPartition(topic, number, OFFSET_BEGINNING)
        for topic in topics
        for number in there[topic].partitions
    ]
    consumer.assign(partitions)
    found, unread = [], len(partitions)
    deadline = time.monotonic() + _ANSWERED_WITHIN_S
    while unread:
        # It waits until it has as many, also behind the last.
        received = consumer.consume(_AT_ONCE, _POLL_S)
        if received:
            deadline = time.monotonic() + _ANSWERED_WITHIN_S
        elif time.monotonic() > deadline:
            raise RuntimeError("the broker does not answer")
        for message in received:
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                unread -= 1
            else:
                raise RuntimeError(error.str())
    consumer.close()
    return found


def main(arguments: Sequence[str]) -> None:
    kind, path, *more = arguments
    config = config_at(Path(path))
    work = the_mirror(config) if kind == "mirror" else plain_producer(config, *more)
    pid, points = os.getpid(), list[Point]()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if not sys.stdin.readline():
        # Whoever measures is gone.
        return
    cpu_s, began = time.process_time(), time.perf_counter()

    def told(events: int) -> None:
        points.append(Point(events, time.perf_counter() - began, resident_bytes(pid) / _MIB))

    work(told)
    seconds = time.perf_counter() - began
    found = Sent(seconds, time.process_time() - cpu_s, peak_rss_mib_of(pid), points)
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
