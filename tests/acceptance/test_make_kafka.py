"""`make kafka`: a broker to try things out with, as its user starts and stops it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.services.kafka import ROOT
from tests.services.ports import free_port

ENDED_WITHIN_S: Final = 60.0


@contextmanager
def kafka(directory: Path, port: int, number: signal.Signals) -> Iterator[str]:
    """What the Makefile runs, until it is told to end by this signal; its address."""
    asked = ("--port", str(port), "--directory", str(directory))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.services.kafka", *asked],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = f"127.0.0.1:{port}"
        assert process.stdout.readline().startswith(f"Kafka listens on {address}; ")
        yield address
        process.send_signal(number)
        assert process.wait(ENDED_WITHIN_S) == 0
    finally:
        process.kill()
        process.communicate()


def test_it_keeps_its_messages_however_it_is_stopped(tmp_path: Path) -> None:
    port = free_port()
    for count, number in enumerate([signal.SIGINT, signal.SIGTERM, signal.SIGINT]):
        with kafka(tmp_path / "kafka", port, number) as address:
            assert read(address, count) == [b"%d" % n for n in range(count)]
            producer = Producer({"bootstrap.servers": address})
            producer.produce("trial", b"%d" % count, partition=0)
            assert producer.flush(30) == 0


def read(address: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none"})
    consumer.assign([TopicPartition("trial", 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, 30)] if count else []
    finally:
        consumer.close()
