"""Kills the mirror and its broker at random moments and reads the topics after each.

    python -m tests.crash.mirror_torture --seed 7 --count 50 [--store sqlite|postgres|both]

The seed decides what comes in, what is killed or paused and how long to wait before; the machine
decides what that interrupts, so a run repeats its choices and not its moments. Each round has a new
ledger with several publishers, topics of its own and a mirror in a process of its own. After each
blow the consumer of docs/reference/kafka.md finds the beginning of the ledger, and no less than
before; when a round ends it finds everything, once and in order, where the ledger says it is. Ends
with 1 at the first broken rule, and keeps the evidence.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException

from tests.contract.mirrored import some
from tests.contract.stores import Ledger, LedgerHome, all_commits, all_events, append
from tests.crash.tormenting import STORES, Broken, Store, run, say, summary
from tests.services.kafka import KafkaBroker
from tests.services.mirror_process import MirrorProcess
from tests.services.mirroring import MirrorWorld, as_mirrored, as_read
from tests.services.postgres import PostgresServer
from tidemark.mirror.places import Place, place_in
from tidemark.mirror.telling import MIRROR

BLOWS_A_ROUND: Final = (6, 12)
# Counted from when the mirror has sent something.
LONGEST_WAIT_S: Final = 1.5
LONGEST_START_S: Final = 1.5
LONGEST_PAUSE_S: Final = 3.0
LONGEST_AWAY_S: Final = 2.0
PUBLISHERS: Final = (2, 4)
LONGEST_REST_S: Final = 0.15
LARGEST: Final = (1, 10, 60)
# How often a publisher only lets time pass.
TICK_SHARE: Final = 0.1
LONGEST_COMMIT_S: Final = 0.02
BLOWS: Final = {
    "killed: mirror": 0.35,
    "killed: mirror, starting": 0.15,
    "killed: broker": 0.1,
    "killed: broker, committing": 0.15,
    "killed: broker, committing, and mirror": 0.15,
    "paused: broker": 0.1,
}
# A commit takes the broker a few milliseconds, and only who asks for it knows when.
_KILLS_THE_BROKER: Final = """
import signal, time
from pathlib import Path
from tidemark.mirror import sending

asked_to = Path(sys.argv[1]).with_name("kill-the-broker")
honest_point = sending.crash_point

def kill(pid, wait_s):
    time.sleep(wait_s)
    os.kill(pid, signal.SIGKILL)

def point(name):
    if name == "mirror.before_commit" and asked_to.exists():
        pid, wait_s = asked_to.read_text().split()
        asked_to.unlink()
        threading.Thread(target=kill, args=[int(pid), float(wait_s)]).start()
    honest_point(name)

sending.crash_point = point
"""
# One that was killed is let in again only when it has been missed for so long, by default 9 s.
BROKER_SETTINGS: Final = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}
GOES_ON_WITHIN_S: Final = 120.0
# A transaction ends in one partition after the other, and a broker that has just started does not
# have all its topics at once.
SETTLES_WITHIN_S: Final = 20.0
POLL_S: Final = 0.05
# The consumer says other things of a transaction of which it sees a part, and of a broker that is
# not there yet. These do not pass.
_PERMANENT: Final = (
    *("a gap", "altered", "not the events", "out of order", "header or key", "not the history"),
)


class Unsettled(Broken):
    """What might have passed did not, within the time that it has."""


class Round:
    """One ledger and its publishers, a mirror, and topics on a broker that others use too."""

    def __init__(
        self,
        choose: random.Random,
        tally: Counter[str],
        directory: Path,
        ledger_url: str,
        broker: KafkaBroker,
        *,
        variant: str,
    ) -> None:
        self._choose = choose
        self._tally = tally
        self._directory = directory
        self._home = LedgerHome(ledger_url)
        self._world = MirrorWorld(directory, ledger_url, broker)
        self._mirror = MirrorProcess(
            self._world.path, directory / "mirror.log", variant=variant, hook=_KILLS_THE_BROKER
        )
        self._publishing: list[asyncio.Task[None]] = []
        self._settled = asyncio.Event()
        self._commits_seen = 0

    async def run(self, blows: int) -> None:
        self._ledger = await self._home.open()
        try:
            with self._mirror:
                await self._publish()
                for _ in range(blows):
                    await self._until_it_goes_on()
                    await asyncio.sleep(self._choose.uniform(0, LONGEST_WAIT_S))
                    await self._strike()
                    self._tally["blows"] += 1
                self._settled.set()
                await asyncio.gather(*self._publishing)
                await self._until_all_is_told()
                await self._check_all()
                await self._require_stopped_in_order()
        finally:
            for task in self._publishing:
                task.cancel()
            await asyncio.gather(*self._publishing, return_exceptions=True)
            await self._home.close()

    def keep_evidence(self, fault: str) -> None:
        (self._directory / "fault.txt").write_text(f"{fault}\n")
        self._world.broker.copy_to(self._directory / "kafka")

    def log_tail(self) -> str:
        return self._mirror.log_tail()

    # What goes on meanwhile.

    async def _publish(self) -> None:
        for number in range(self._choose.randint(*PUBLISHERS)):
            # Each with a connection of its own, as other processes would have.
            ledger = await self._home.open()
            choose = random.Random(self._choose.random())
            publisher = self._publisher(ledger, f"p{number}", choose)
            self._publishing.append(asyncio.create_task(publisher))

    async def _publisher(self, ledger: Ledger, name: str, choose: random.Random) -> None:
        count = 0
        largest = choose.choice(LARGEST)
        while not self._settled.is_set():
            if choose.random() < TICK_SHARE:
                await ledger.tick(0)
            else:
                count += 1
                drafts = some(choose, f"{name}-{count}", choose.randint(1, largest))
                await append(ledger, *drafts)
            await asyncio.sleep(choose.uniform(0, LONGEST_REST_S))

    async def _until_it_goes_on(self) -> None:
        """A mirror that never gets to send anything would be killed for nothing."""
        before = await self._ledger.placed_upto()
        async with _patience("the mirror does not go on", GOES_ON_WITHIN_S):
            while await self._ledger.placed_upto() <= before:
                self._require_all_well()
                await asyncio.sleep(POLL_S)

    # Blows.

    async def _strike(self) -> None:
        self._require_all_well()
        [blow] = self._choose.choices([*BLOWS], [*BLOWS.values()])
        self._tally[blow] += 1
        broker = self._world.broker
        match blow:
            case "killed: mirror":
                await asyncio.to_thread(self._mirror.kill)
            case "killed: mirror, starting":
                # Twice: the second time while it finds out where it was.
                await asyncio.to_thread(self._mirror.kill)
                self._mirror.start()
                await asyncio.sleep(self._choose.uniform(0, LONGEST_START_S))
                self._require_all_well()
                await asyncio.to_thread(self._mirror.kill)
            case "killed: broker":
                await asyncio.to_thread(broker.kill)
                await self._start_broker()
            case "killed: broker, committing":
                await self._kill_broker_committing()
                await self._start_broker()
            case "killed: broker, committing, and mirror":
                await self._kill_broker_committing()
                await asyncio.to_thread(self._mirror.kill)
                await self._start_broker()
            case "paused: broker":
                broker.pause()
                try:
                    await asyncio.sleep(self._choose.uniform(0, LONGEST_PAUSE_S))
                finally:
                    broker.resume()
        try:
            await self._check_what_is_there()
        except Unsettled:
            # A broker that is killed between two partitions may leave a transaction open in the
            # second (KAFKA-20734), also by chance. Then it is for the mirror to end it.
            if not blow.startswith("killed: broker"):
                raise
            self._tally["settled by the mirror only"] += 1
            self._start_again(blow)
            await self._until_it_goes_on()
            await self._check_what_is_there()
        self._start_again(blow)

    def _start_again(self, blow: str) -> None:
        if not self._mirror.is_running and "mirror" in blow:
            self._mirror.start()

    async def _check_what_is_there(self) -> None:
        # The consumer of the page reads what is there, not what comes while it reads.
        with self._mirror.held_still():
            await self._check()

    async def _kill_broker_committing(self) -> None:
        wait_s = self._choose.uniform(0, LONGEST_COMMIT_S)
        asked = self._directory / "kill-the-broker.new"
        asked.write_text(f"{self._world.broker.pid} {wait_s}")
        asked.rename(asked.with_suffix(""))
        async with _patience("the mirror commits nothing", GOES_ON_WITHIN_S):
            while self._world.broker.is_running:
                self._require_all_well()
                await asyncio.sleep(POLL_S)

    async def _start_broker(self) -> None:
        await asyncio.sleep(self._choose.uniform(0, LONGEST_AWAY_S))
        await asyncio.to_thread(self._world.broker.start)

    def _require_all_well(self) -> None:
        if not self._mirror.is_running:
            raise Broken("the mirror ended by itself")
        for task in self._publishing:
            if task.done():
                task.result()

    # What must be there.

    async def _check(self, *, all_of_it: bool = False) -> list[tuple[Any, Any]]:
        """What the consumer of the page finds, which is right."""
        deadline = time.monotonic() + SETTLES_WITHIN_S
        while True:
            found, fault = await asyncio.to_thread(self._read)
            # Read after the topics: they cannot be ahead of it.
            expected = as_mirrored(await all_commits(self._ledger), await all_events(self._ledger))
            self._tally["checks"] += 1
            if fault is None:
                _require_beginning(found, expected)
                if len(found) < self._commits_seen:
                    fault = f"{len(found)} commits, and there were {self._commits_seen}"
                elif all_of_it and len(found) < len(expected):
                    fault = f"{len(found)} commits of {len(expected)}"
                else:
                    self._commits_seen = len(found)
                    return found
            if fault.startswith(_PERMANENT):
                raise Broken(f"the consumer of the page finds: {fault}")
            if time.monotonic() > deadline:
                raise Unsettled(f"the consumer of the page finds: {fault}")
            await asyncio.sleep(POLL_S)

    async def _check_all(self) -> None:
        found = await self._check(all_of_it=True)
        places: set[tuple[str, Place]] = set()
        events = [event for _, of_commit in found for event in of_commit]
        placed = None
        for event in events:
            sequence = int(event["ingressSequence"])
            if placed is None or sequence > placed.last_sequence:
                placed = await self._ledger.places_of(sequence)
            if placed is None:
                raise Broken(f"the ledger does not say where event {sequence} is")
            places.add((event["stream"], place_in(placed, sequence)))
        if len(places) != len(events):
            raise Broken(f"{len(events)} events are in {len(places)} places")
        self._tally["rounds"] += 1
        self._tally["left open by Kafka"] += self._mirror.log_text().count("KAFKA-20734")
        self._tally["commits"] += len(found)
        self._tally["events"] += len(events)

    async def _until_all_is_told(self) -> None:
        head = await self._ledger.head()
        async with _patience("the mirror does not catch up", GOES_ON_WITHIN_S):
            while True:
                self._require_all_well()
                told = (await self._ledger.copies()).get(MIRROR)
                if told is not None and told.error is None and told.received_at == head.received_at:
                    return
                await asyncio.sleep(POLL_S)

    async def _require_stopped_in_order(self) -> None:
        code = await asyncio.to_thread(self._mirror.stop)
        if code != 0:
            raise Broken(f"a mirror that was asked to stop ended with {code}")

    def _read(self) -> tuple[list[tuple[Any, Any]], str | None]:
        try:
            if self._world.commits_topic not in self._world.topics():
                return [], None
            return as_read(self._world.read()), None
        except SystemExit as ended:
            return [], str(ended)
        except KafkaException as error:
            return [], error.args[0].str()


def _require_beginning(found: list[tuple[Any, Any]], expected: list[tuple[Any, Any]]) -> None:
    for number, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            raise Broken(f"commit {number} is {one} in Kafka and {other} in the ledger")
    if len(found) > len(expected):
        raise Broken(f"Kafka has {len(found)} commits, and the ledger {len(expected)}")


@contextlib.asynccontextmanager
async def _patience(what: str, seconds: float) -> Any:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise Broken(f"{what} within {seconds:.0f} s") from error


async def torture(
    seed: int,
    count: int,
    stores: Sequence[Store] = STORES,
    *,
    variant: str = "",
    broker: KafkaBroker | None = None,
) -> int:
    """Strike `count` times; the exit code. `variant` is for a mirror that was tampered with."""
    choose = random.Random(seed)
    tally: Counter[str] = Counter()
    began = time.monotonic()
    say(f"seed {seed}: {count} blows to the mirror and its broker on {' and '.join(stores)}")
    with contextlib.ExitStack() as stack:
        postgres = None
        if "postgres" in stores:
            postgres = stack.enter_context(PostgresServer(durable=True))
        if broker is None:
            broker = stack.enter_context(KafkaBroker(settings=BROKER_SETTINGS))
        while tally["blows"] < count:
            store = choose.choice(stores)
            blows = min(choose.randint(*BLOWS_A_ROUND), count - tally["blows"])
            directory = Path(tempfile.mkdtemp(prefix="tidemark-mirror-torture-"))
            url = f"sqlite:///{directory / 'ledger.db'}"
            if store == "postgres":
                assert postgres is not None
                url = postgres.create_database()
            round_ = Round(choose, tally, directory, url, broker, variant=variant)
            try:
                await round_.run(blows)
            except Exception as error:
                fault = (
                    f"BROKEN after {tally['blows']} blows, in round {tally['rounds'] + 1} on "
                    f"{store}: {type(error).__name__}: {error}"
                )
                await asyncio.to_thread(round_.keep_evidence, fault)
                say(
                    f"{fault}\n{round_.log_tail()}\n"
                    f"the evidence is in {directory}\n"
                    f"the same choices again: make torture-mirror SEED={seed} N={count}"
                )
                return 1
            shutil.rmtree(directory)
            say(
                f"{tally['blows']}/{count} blows in {time.monotonic() - began:.0f} s; round "
                f"{tally['rounds']}, {store}: {tally['events']} events in {tally['commits']} "
                f"commits so far, {tally['checks']} checks, nothing broken"
            )
    say(summary(tally, "blows", seed, time.monotonic() - began))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    return run(
        torture,
        argv,
        module="tests.crash.mirror_torture",
        does="Kill the mirror and its broker at random moments and read the topics.",
        strikes=50,
    )


if __name__ == "__main__":
    sys.exit(main())
