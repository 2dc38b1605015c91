"""Kills all that follows a ledger at random moments, and holds its copies against each other.

    python -m tests.crash.order_torture --seed 7 --count 50 [--store sqlite|postgres|both]

Each round has a new ledger, a server that eight publishers send to, a mirror, what is landed in
Parquet and in ClickHouse, and a pipeline that reads Kafka, each a process of its own. The seed
decides which of them, or the broker, is killed next and how long to wait before; the machine
decides what that interrupts. When a round ends, all have caught up by themselves. Then API, Kafka
(read by the consumer of docs/reference/kafka.md), Parquet and ClickHouse must give the same events
in the same order, and so must topics and files that are made anew; and the views must be those that
are made from the ledger in one go, and from the topics, and by a replay. Ends with 1 where they are
not, and keeps the evidence.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.crash.event_copies import of_api
from tests.crash.mirror_torture import BROKER_SETTINGS
from tests.crash.one_order_checks import (
    assert_copies_give,
    assert_made_anew,
    assert_told,
    fold,
    outcome,
)
from tests.crash.one_order_world import Following, Publishers, World, reached, until
from tests.crash.tormenting import STORES, Store, run, say, summary
from tests.services.kafka import KafkaBroker
from tests.services.postgres import PostgresServer
from tests.services.tidemark_server import TidemarkServer

BLOWS_A_ROUND: Final = (10, 20)
# What is killed, and how often. Spark takes long to start, and is to get somewhere.
BLOWS: Final = {"mirror": 0.3, "broker": 0.2, "land": 0.2, "server": 0.15, "pipeline": 0.15}
FOLLOWERS: Final = {
    "mirror": ("mirror",),
    "land": ("landing.parquet", "landing.clickhouse"),
    "pipeline": ("pipeline",),
}
# How often one dies while it starts, and not once it has got somewhere.
STARTING_SHARE: Final = 0.2
LONGEST_START_S: Final = 3.0
LONGEST_WAIT_S: Final = 1.0
LONGEST_AWAY_S: Final = 2.0
LONGEST_REST_S: Final = 1.5
BATCH_EVENTS: Final = (80, 500, 5_000)


class Round:
    """One ledger, and all that follows it."""

    def __init__(
        self,
        choose: random.Random,
        tally: Counter[str],
        directory: Path,
        ledger_url: str,
        views_url: str | None,
        broker: KafkaBroker,
        *,
        variant: str,
    ) -> None:
        self._choose = choose
        self._tally = tally
        self._directory = directory
        self._broker = broker
        self._variant = variant
        self._live = World(
            directory / "live",
            ledger_url,
            views_url=views_url,
            batch_events=choose.choice(BATCH_EVENTS),
            broker=broker,
        )
        self._anew = World(directory / "anew", ledger_url, broker=broker)
        self._calm = World(directory / "calm", ledger_url, source="ledger", broker=broker)
        self._running: dict[str, Following] = {}
        # How far each was when it was started.
        self._before: dict[str, int] = {}

    def run(self, blows: int) -> None:
        with (
            TidemarkServer(self._live.path.read_text(), directory=self._directory) as server,
            Publishers(server.base_url, patient=True) as publishers,
        ):
            try:
                with self._published(publishers):
                    for command in FOLLOWERS:
                        self._start(command, 0)
                    for _ in range(blows):
                        self._strike(server)
                        self._tally["blows"] += 1
                until(
                    lambda: self._all_are_there(server),
                    *self._running.values(),
                    said=lambda: str(reached(server.base_url)),
                )
            finally:
                for process in self._running.values():
                    process.kill()
            self._check(server, publishers)

    @contextlib.contextmanager
    def _published(self, publishers: Publishers) -> Iterator[None]:
        """While it lasts, events come in."""
        ended = threading.Event()
        rests = random.Random(self._choose.random())
        failures: list[BaseException] = []

        def publish() -> None:
            try:
                while not ended.is_set():
                    publishers.send()
                    ended.wait(rests.uniform(0, LONGEST_REST_S))
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        if failures:
            raise failures[0]

    def _start(self, command: str, reached_before: int) -> None:
        self._running[command] = Following(self._live, command, variant=self._variant)
        self._before[command] = reached_before

    # Blows.

    def _strike(self, server: TidemarkServer) -> None:
        [what] = self._choose.choices([*BLOWS], [*BLOWS.values()])
        self._tally[f"killed: {what}"] += 1
        match what:
            case "broker":
                self._wait_a_moment()
                self._broker.kill()
                time.sleep(self._choose.uniform(0, LONGEST_AWAY_S))
                self._broker.start()
            case "server":
                self._wait_a_moment()
                server.kill()
                time.sleep(self._choose.uniform(0, LONGEST_AWAY_S))
                server.start()
            case command:
                if self._choose.random() < STARTING_SHARE:
                    self._kill(server, command)
                    time.sleep(self._choose.uniform(0, LONGEST_START_S))
                else:
                    self._until_it_went_on(server, command)
                    self._wait_a_moment()
                self._kill(server, command)

    def _kill(self, server: TidemarkServer, command: str) -> None:
        process = self._running[command]
        process.require_running()
        process.kill()
        self._start(command, self._reached(server, command))

    def _wait_a_moment(self) -> None:
        time.sleep(self._choose.uniform(0, LONGEST_WAIT_S))

    def _until_it_went_on(self, server: TidemarkServer, command: str) -> None:
        """Since it was started: else it would be killed for nothing."""
        until(
            lambda: self._reached(server, command) > self._before[command],
            *self._running.values(),
            said=lambda: f"{command} does not go on",
        )

    def _reached(self, server: TidemarkServer, command: str) -> int:
        found = reached(server.base_url)
        return min(found[part] for part in FOLLOWERS[command])

    def _all_are_there(self, server: TidemarkServer) -> bool:
        return len({*reached(server.base_url).values()}) == 1

    # What must be there.

    def _check(self, server: TidemarkServer, publishers: Publishers) -> None:
        api = of_api(server.base_url)
        assert_told(api, publishers.told)
        last_commit = assert_copies_give(api, self._live)
        self._anew.catch_up("mirror")
        self._anew.catch_up("land")
        assert assert_copies_give(api, self._anew)["chain"] == last_commit["chain"]
        fold(self._calm)
        expected = outcome(self._calm)
        assert expected.frontier[0] == len(api)
        assert expected.frontier[2].hex() == last_commit["chain"]
        assert outcome(self._live) == expected
        assert_made_anew(self._live, self._anew, expected)
        self._tally["rounds"] += 1
        self._tally["events"] += len(api)

    def keep_evidence(self, fault: str) -> None:
        (self._directory / "fault.txt").write_text(f"{fault}\n")
        self._broker.copy_to(self._directory / "kafka")


def torture(
    seed: int,
    count: int,
    stores: Sequence[Store] = STORES,
    *,
    variant: str = "",
    broker: KafkaBroker | None = None,
) -> int:
    """Strike `count` times; the exit code. `variant` is for a Tidemark that was tampered with."""
    choose = random.Random(seed)
    tally: Counter[str] = Counter()
    began = time.monotonic()
    say(f"seed {seed}: {count} blows to all that follows a ledger on {' and '.join(stores)}")
    with contextlib.ExitStack() as stack:
        postgres = None
        if "postgres" in stores:
            postgres = stack.enter_context(PostgresServer(durable=True))
        if broker is None:
            broker = stack.enter_context(KafkaBroker(settings=BROKER_SETTINGS))
        while tally["blows"] < count:
            store = choose.choice(stores)
            blows = min(choose.randint(*BLOWS_A_ROUND), count - tally["blows"])
            directory = Path(tempfile.mkdtemp(prefix="tidemark-order-torture-"))
            ledger_url, views_url = f"sqlite:///{directory / 'ledger.db'}", None
            if store == "postgres":
                assert postgres is not None
                ledger_url = views_url = postgres.create_database()
            round_ = Round(choose, tally, directory, ledger_url, views_url, broker, variant=variant)
            try:
                round_.run(blows)
            except Exception as error:
                fault = (
                    f"BROKEN after {tally['blows']} blows, in round {tally['rounds'] + 1} on "
                    f"{store}: {''.join(traceback.format_exception(error))}"
                )
                round_.keep_evidence(fault)
                say(
                    f"{fault}\nthe evidence is in {directory}\n"
                    f"the same choices again: make torture-order SEED={seed} N={count}"
                )
                return 1
            shutil.rmtree(directory)
            say(
                f"{tally['blows']}/{count} blows in {time.monotonic() - began:.0f} s; round "
                f"{tally['rounds']}, {store}: {tally['events']} events so far, nothing broken"
            )
    say(summary(tally, "blows", seed, time.monotonic() - began))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    return run(
        torture,
        argv,
        module="tests.crash.order_torture",
        does="Kill all that follows a ledger at random moments and compare all copies of it.",
        strikes=50,
    )


if __name__ == "__main__":
    sys.exit(main())
