"""A real Kafka broker on this machine, from the archives that `scripts/jars kafka` brings.

    python -m tests.services.kafka [--port 9092] [--directory DIR]     one to try things out with

It is broker and controller in one, listens on 127.0.0.1 only, and ends when the process that
started it does, however that ends.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.services.ports import free_port
from tidemark.pipeline.java import find_java

ROOT: Final = Path(__file__).parents[2]
JARS: Final = ROOT / ".venv" / "jars" / "kafka"
STARTED_WITHIN_S: Final = 120.0
_CLUSTER: Final = "tidemark-tests-0000000"
# Ends the broker when the pipe to the one who started it is closed.
_WATCH: Final = 'read -r done; kill -KILL "$1" 2>/dev/null'
_JAVA_OPTIONS: Final = (
    *("-XX:-UsePerfData", "-Djava.awt.headless=true"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_QUICK_TO_START: Final = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class KafkaFailed(Exception):
    """The broker did not do as told; the message holds the end of what it said."""


class KafkaBroker:
    """One broker with a directory and a port of its own, that it keeps when it is started again."""

    def __init__(
        self,
        *,
        directory: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = _QUICK_TO_START,
    ) -> None:
        if not JARS.is_dir():
            raise KafkaFailed("there is no Kafka: run `make jars`")
        self._is_ours = directory is None
        self._home = directory or Path(tempfile.mkdtemp(prefix="tidemark-kafka-"))
        self._home.mkdir(parents=True, exist_ok=True)
        self._log = self._home / "broker.log"
        self._properties = self._home / "server.properties"
        self.port = port or free_port()
        self._java_options = (*_JAVA_OPTIONS, *java_options)
        self._settings = self._wanted(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        atexit.register(self.close)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when the broker answers. One that runs is left as it is."""
        if self.is_running:
            return
        # What is left of one that somebody else has killed.
        self.kill()
        self._properties.write_text("".join(f"{n}={v}\n" for n, v in self._settings.items()))
        if not (self._home / "data" / "meta.properties").exists():
            arguments = ["kafka.tools.StorageTool", "format", "--standalone", "-t", _CLUSTER]
            self._java([*arguments, "-c", str(self._properties)]).wait()
        self._process = self._java(["kafka.Kafka", str(self._properties)])
        self._watch = subprocess.Popen(
            ["sh", "-c", _WATCH, "watch", str(self._process.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._wait_until_it_answers()

    def stop(self) -> None:
        """In order, as an operator does it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """It answers nobody, and keeps its connections, until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def directory_of(self, topic: str, partition: int) -> Path:
        """Where it writes what is in one."""
        return self._home / "data" / f"{topic}-{partition}"

    def copy_to(self, directory: Path) -> None:
        """All that it has written: its log, and each message of each topic."""
        # It may remove files meanwhile.
        with contextlib.suppress(shutil.Error):
            shutil.copytree(self._home, directory)

    def close(self) -> None:
        # A forked copy of the test process must not end it.
        if self._owner != os.getpid():
            return
        self.kill()
        if self._is_ours:
            shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _wanted(self, settings: Mapping[str, str]) -> dict[str, str]:
        controller = free_port()
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "log.dirs": str(self._home / "data"),
            "num.partitions": "1",
            "default.replication.factor": "1",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "num.network.threads": "2",
            "num.io.threads": "4",
            **settings,
        }

    def _java(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        command = [str(find_java().program), *self._java_options, "-cp", f"{JARS}/*", *arguments]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
                # Ctrl-C is for the one who started it.
                start_new_session=True,
            )

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + STARTED_WITHIN_S
        while not self._answers():
            if not self.is_running or time.monotonic() > deadline:
                self.kill()
                raise KafkaFailed(f"Kafka did not start:\n{self.log_tail()}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-4000:] if self._log.exists() else ""

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(number)
            self._process.wait()
        if self._watch is not None:
            self._watch.kill()
            self._watch.wait()
            if self._watch.stdin is not None:
                self._watch.stdin.close()
        self._process = self._watch = None


_broker: KafkaBroker | None = None


def shared_broker() -> KafkaBroker:
    """The one of this process. A test that stops it starts it again."""
    global _broker
    if _broker is None:
        _broker = KafkaBroker()
    _broker.start()
    return _broker


def main() -> int:
    parser = argparse.ArgumentParser(prog="make kafka", description="A Kafka broker to try with.")
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--directory", type=Path, default=Path("tidemark-state/kafka"))
    asked = parser.parse_args()
    # Whoever asks it to end, ends it in order.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    broker = KafkaBroker(directory=asked.directory.absolute(), port=asked.port)
    try:
        broker.start()
        sys.stdout.write(f"Kafka listens on {broker.address}; its data is in {asked.directory}.\n")
        sys.stdout.write("Ctrl-C stops it.\n")
        sys.stdout.flush()
        while broker.is_running:
            time.sleep(0.2)
    except KeyboardInterrupt:
        pass
    except KafkaFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
