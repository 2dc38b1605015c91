"""One ledger, its publishers, and all that is made of it by processes that are killed."""

from __future__ import annotations

import itertools
import random
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.acceptance.cli_runs import environment
from tests.acceptance.pipelines import java_of
from tests.services.http_calls import Answer, call
from tests.services.kafka import KafkaBroker, shared_broker
from tests.services.mirroring import MirrorWorld
from tests.services.nursery import run, shared_nursery
from tests.services.processes import is_running
from tests.services.spark import SHARED_CONFIG

PUBLISHERS: Final = 8
REQUESTS: Final = 2
LARGEST: Final = 6
PATIENCE_S: Final = 180.0
POLL_S: Final = 0.05
PARTITIONS: Final = 3
STREAMS: Final = ("usage", "trades", "quiet")
# In the view each trade takes the place of the one before it, and in the meter what is late is
# set apart: both depend on the order.
CONFIG: Final = """
state_dir: "{directory}/state"
ledger: {{url: "{ledger_url}"}}
view_store: {{url: "{views_url}"}}
streams:
  usage: {{kind: usage}}
  trades: {{identity: [id], fields: {{id: string, symbol: string, price: decimal}}}}
  quiet: {{identity: [id], fields: {{id: string}}}}
meters:
  calls: {{aggregate: sum, period: month, lateness: 48h}}
views:
  prices: {{stream: trades, key: [symbol]}}
mirror:
  enabled: true
  bootstrap_servers: "{brokers}"
  topic_prefix: "{prefix}"
  partitions: {partitions}
  java_options: {java_options}
landing:
  parquet: {{enabled: true, block_events: 50, every: 100ms}}
  clickhouse: {{enabled: true, block_events: 50, every: 100ms}}
pipeline: {{source: {source}, max_batch_events: {batch_events}}}
spark: {{master: "local[2]", options: {spark_options}}}
"""
# So that Spark says soon that nobody answers.
JAVA_OPTIONS: Final = {
    "kafka.default.api.timeout.ms": 5000,
    "kafka.request.timeout.ms": 5000,
    "kafkaConsumer.pollTimeoutMs": 5000,
    "fetchOffset.numRetries": 1,
}

# It is held by its standard input: when the one who started it is gone, so is the process.
_PROGRAM: Final = """
import os, sys, threading

def outlive_nobody():
    os.read(0, 1)
    os._exit(70)

threading.Thread(target=outlive_nobody, daemon=True).start()
{hook}
from tidemark.cli import main

sys.argv[0] = "tidemark"
main()
"""
# Only the mirror knows when it is in the middle of a transaction.
_KILLS_THE_BROKER: Final = """
import signal
from pathlib import Path
from tidemark.mirror import sending

asked_to = Path("kill-the-broker")
honest_point = sending.crash_point

def point(name):
    if name == "mirror.events_sent" and asked_to.exists():
        os.kill(int(asked_to.read_text()), signal.SIGKILL)
        asked_to.unlink()
    honest_point(name)

sending.crash_point = point
"""


class World(MirrorWorld):
    """Topics, landed events and views of a ledger, in places of their own."""

    def __init__(
        self,
        directory: Path,
        ledger_url: str,
        *,
        views_url: str | None = None,
        source: str = "kafka",
        batch_events: int = 200_000,
        broker: KafkaBroker | None = None,
    ) -> None:
        directory.mkdir()
        super().__init__(directory, ledger_url, broker or shared_broker())
        self.directory = directory
        self.landed = directory / "state" / "landing"
        text = CONFIG.format(
            directory=directory,
            ledger_url=ledger_url,
            views_url=views_url or f"sqlite:///{directory / 'views.db'}",
            brokers=self.broker.address,
            prefix=self.prefix,
            partitions=PARTITIONS,
            java_options=JAVA_OPTIONS,
            source=source,
            batch_events=batch_events,
            spark_options=dict(SHARED_CONFIG.options),
        )
        self.path.write_text(text)

    def catch_up(self, command: str) -> None:
        """Runs a command until it has all that the ledger has."""
        arguments = ["-m", "tidemark", command, "--until-caught-up", "--config", str(self.path)]
        done = run(arguments, cwd=self.directory, env=environment())
        assert done.returncode == 0, done.stdout

    def die_at_each(self, command: str, points: Sequence[str]) -> None:
        """Begins with it and dies at each of the points, by turns."""
        for point in points:
            with Following(self, command, crash_at=point) as process:
                process.killed_itself()

    def kill_broker_in_transaction(self) -> None:
        """In the next one of a mirror that `kills_the_broker`."""
        asked = self.directory / "kill-the-broker.new"
        asked.write_text(str(self.broker.pid))
        asked.rename(asked.with_suffix(""))


class Following:
    """A command that follows the ledger, as a process of its own, until it is killed."""

    def __init__(
        self,
        world: World,
        command: str,
        *,
        crash_at: str | None = None,
        kills_the_broker: bool = False,
        variant: str = "",
    ) -> None:
        """`variant` is text that tampers with Tidemark."""
        program = _PROGRAM.format(hook=_KILLS_THE_BROKER if kills_the_broker else variant)
        self._command = command
        self._log = world.directory / f"{command}.log"
        with self._log.open("ab") as log:
            self._process = shared_nursery().fork(
                ["-c", program, command, "--config", str(world.path)],
                output=log,
                cwd=world.directory,
                env=environment({} if crash_at is None else {"TIDEMARK_CRASH_AT": crash_at}),
            )
        self._javas: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """Returns when its Java is gone too, which has to see for itself that nobody is there."""
        self._javas.update(java_of(self._process.pid))
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        until(lambda: not any(map(is_running, self._javas)))

    def killed_itself(self) -> None:
        """Waits until it is dead by its own hand."""
        until(self._has_ended, said=self._said)
        assert self._process.returncode == -signal.SIGKILL, self._said()

    def require_running(self) -> None:
        assert self._process.poll() is None, self._said()

    def _has_ended(self) -> bool:
        self._javas.update(java_of(self._process.pid))
        return self._process.poll() is not None

    def _said(self) -> str:
        said = self._log.read_text(errors="replace")[-4000:]
        return f"{self._command}, exit code {self._process.returncode}, has said: {said}"


class Publishers:
    """Several that send at once. `patient` ones send again what was not answered."""

    def __init__(self, base_url: str, *, patient: bool = False) -> None:
        self._base_url = base_url
        self._patience_s = PATIENCE_S if patient else 0.0
        self._threads = ThreadPoolExecutor(PUBLISHERS)
        self._rounds = itertools.count()
        self.told: list[dict[str, Any]] = []
        """What each event was answered with."""

    def send(self) -> None:
        """Each sends its requests, one after the other and beside those of the others."""
        number = next(self._rounds)
        # Not always: what is corrected is folded anew from the ledger, which takes long.
        corrects = number % 3 == 0

        def publish(publisher: int) -> list[dict[str, Any]]:
            return self._publish(f"{number}-{publisher}", publisher, corrects=corrects)

        for told in self._threads.map(publish, range(PUBLISHERS)):
            self.told += told

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown()

    def _publish(self, name: str, publisher: int, *, corrects: bool) -> list[dict[str, Any]]:
        source = random.Random(name)
        told: list[dict[str, Any]] = []
        first = event_of(source, f"{name}-first", is_usage=publisher % 4 < 2)
        [corrected] = self._sent([first])
        told.append(corrected)
        for request in range(REQUESTS):
            events = [
                event_of(source, f"{name}-{request}-{n}", is_usage=source.random() < 0.5)
                for n in range(source.randint(1, LARGEST))
            ]
            if corrects and request == 1 and publisher < 4:
                target = corrected["idempotencyKey"]
                events.append(correction_of(source, first, target, is_void=publisher % 2 == 0))
            told += self._sent(events)
        return told

    def _sent(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        deadline = time.monotonic() + self._patience_s
        while (answer := self._answer(events)) is None:
            assert time.monotonic() < deadline, "nobody answers"
            time.sleep(POLL_S)
        assert answer.status == 200, answer.json
        stored = answer.json["accepted"] + (answer.json["duplicates"] if self._patience_s else 0)
        assert stored == len(events), answer.json
        results: list[dict[str, Any]] = answer.json["results"]
        return results

    def _answer(self, events: list[dict[str, Any]]) -> Answer | None:
        """None from a server that is not there, or died while it was asked."""
        try:
            return call(self._base_url, "POST", "/v1/events", json={"events": events})
        except (OSError, HTTPException):
            if not self._patience_s:
                raise
            return None


def event_of(source: random.Random, name: str, *, is_usage: bool) -> dict[str, Any]:
    """An event of one of two streams, with a time that has nothing to do with its place."""
    common = {
        **({"causalityKey": f"run-{source.randint(1, 4)}"} if source.random() < 0.5 else {}),
        **({"source": source.choice(["till", "web ä"])} if source.random() < 0.3 else {}),
    }
    if not is_usage:
        return {
            "stream": "trades",
            "tenantId": "acme",
            "occurredAt": time_of(source),
            "data": {"id": name, **trade_of(source)},
            **common,
        }
    return {
        "tenantId": source.choice(["acme", "zeta"]),
        "metric": "calls",
        "customerRef": f"c-{source.randint(1, 5)}",
        "ts": time_of(source),
        "quantity": f"{source.randint(-9, 99)}.{source.randint(0, 99)}",
        **({"resourceId": name} if source.random() < 0.5 else {}),
        **({"meta": {"plan": '"x" ä', "seats": 10}} if source.random() < 0.3 else {}),
        **common,
    }


def correction_of(
    source: random.Random, event: dict[str, Any], target: str, *, is_void: bool
) -> dict[str, Any]:
    correction = {"tenantId": event["tenantId"], "target": target, "reason": "wrong"}
    if is_void:
        return {"control": "void", **correction}
    if "data" in event:
        new = {"data": {**event["data"], **trade_of(source)}, "occurredAt": event["occurredAt"]}
    else:
        new = {"ts": time_of(source), "quantity": "7.5"}
    return {"control": "amend", **correction, "event": new}


def trade_of(source: random.Random) -> dict[str, str]:
    return {"symbol": source.choice("ABCDE"), "price": f"{source.randint(1, 99)}.25"}


def time_of(source: random.Random) -> str:
    day, hour, fraction = source.randint(1, 28), source.randint(0, 23), source.randrange(10**6)
    return f"2025-01-{day:02}T{hour:02}:00:00.{fraction:06}Z"


def reached(base_url: str) -> dict[str, int]:
    """How far the ledger is, and how far each copy, as operators see it."""
    parts = call(base_url, "GET", "/admin/event-health").json["parts"]
    names = ("ledger", "mirror", "landing.parquet", "landing.clickhouse", "pipeline")
    return {name: int(parts[name].get("lastSequence", 0)) for name in names}


def in_trouble(base_url: str) -> set[str]:
    """What cannot go on for now, as operators see it."""
    parts = call(base_url, "GET", "/admin/event-health").json["parts"]
    return {name for name, part in parts.items() if part["state"] == "degraded"}


def until(
    is_so: Callable[[], object], *processes: Following, said: Callable[[], str] = lambda: ""
) -> None:
    """Waits for it, as long as the processes run that should. `said` is asked if it was in vain."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        for process in processes:
            process.require_running()
        assert time.monotonic() < deadline, f"it did not happen in time. {said()}"
        time.sleep(POLL_S)
