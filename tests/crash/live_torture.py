"""Kills Tidemark at random moments while rows change, and holds what is live against the rows.

    python -m tests.crash.live_torture --seed 7 --count 200 [--store sqlite|postgres|both]

The seed decides what changes, which triggers come and go, what is killed and how long to wait
before; the machine decides what that interrupts. Each round has new stores, one or two servers,
a receiver of webhooks that fails at random, and subscribers that lose their connection and resume
by PROGRESS. Now and then it is PostgreSQL itself that is killed. At every PROGRESS a subscriber has
the rows of that time; when a round ends, every event has arrived, in order for its row, and none
that the committed changes do not explain. Ends with 1 at the first broken rule, and keeps the
evidence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.crash.live_followers import Follower
from tests.crash.live_past import Told, Watch, Where, shown
from tests.crash.live_receiving import MoodyReceiver, faults
from tests.crash.live_world import (
    LiveWorld,
    Refused,
    kill_database,
    settings,
    some_change,
)
from tests.crash.tormenting import STORES, Broken, Store, run, say, summary
from tests.services.postgres import PostgresServer
from tidemark.live.errors import TriggersUnavailable
from tidemark.live.triggers.definition import Trigger, read_where

KILLS_A_ROUND: Final = (6, 12)
# Counted from when a server is ready.
LONGEST_WAIT_S: Final = 2.0
LONGEST_START_S: Final = 1.5
LONGEST_PAUSE_S: Final = 0.1
# How often it is the database that is killed, how often a server before it is ready, and how often
# one is asked to stop, which must not be worse than a kill.
DATABASE_SHARE: Final = 0.2
STARTING_SHARE: Final = 0.15
STOPPING_SHARE: Final = 0.1
TWO_SERVERS_SHARE: Final = 0.4
ROUND_ENDS_WITHIN_S: Final = 60.0
POLL_S: Final = 0.05

NAMES: Final = ("one", "two", "three")
WHERES: Final[tuple[Where, ...]] = (
    {},
    {"quantity": {"_gt": "7"}},
    {"account": {"_in": ["account-0", "account-3"]}},
    {"_or": [{"symbol": {"_eq": "Ü"}}, {"quantity": {"_lt": "3"}}]},
    {"_not": {"account": {"_eq": "account-1"}}, "quantity": {"_gte": "4"}},
)
CREATE: Final = (
    "mutation ($input: positionsTriggerInput!) { create_positions_trigger(input: $input) { name } }"
)
CHANGE: Final = "mutation ($name: String!) {{ {verb}_positions_trigger(name: $name) {{ name }} }}"


class Round:
    """One deployment, and everybody who uses it."""

    def __init__(
        self,
        choose: random.Random,
        tally: Counter[str],
        directory: Path,
        postgres: PostgresServer | None,
        *,
        variant: str,
        patience_s: float,
    ) -> None:
        self._choose = choose
        self._tally = tally
        self._postgres = postgres
        self._store_url = None if postgres is None else postgres.create_database()
        self._receiver = MoodyReceiver(choose)
        self._world = LiveWorld(
            directory,
            settings(self._receiver.url),
            store_url=self._store_url,
            servers=2 if choose.random() < TWO_SERVERS_SHARE else 1,
            variant=variant,
        )
        self._patience_s = patience_s
        self._tasks: list[asyncio.Task[None]] = []
        self._settled = asyncio.Event()

    async def run(self, kills: int) -> None:
        async with self._receiver, self._world as world:
            for server in world.servers:
                await asyncio.to_thread(server.start)
            await world.until_declared()
            followers = [
                Follower(world.past, where, world.servers, self._choose) for where in WHERES
            ]
            changing = asyncio.create_task(self._change_rows(random.Random(self._choose.random())))
            managing = asyncio.create_task(self._manage(random.Random(self._choose.random())))
            listening = [asyncio.create_task(follower.run()) for follower in followers]
            self._tasks = [changing, managing, *listening]
            try:
                for _ in range(kills):
                    await self._go_on(asyncio.sleep(self._choose.uniform(0, LONGEST_WAIT_S)))
                    await self._kill_something()
                    self._tally["kills"] += 1
                self._settled.set()
                await self._go_on(asyncio.wait([changing, managing]))
                await self._come_to_rest(followers)
            except TimeoutError as error:
                raise Broken(f"it does not come to rest: {await self._open_matters()}") from error
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tally["rounds"] += 1
        self._tally["commits"] += len(world.past.commits)
        self._tally["requests"] += len(self._receiver.received)
        for follower in followers:
            self._tally.update(follower.heard)

    async def close(self) -> None:
        if self._postgres is not None and self._store_url is not None:
            await asyncio.to_thread(self._postgres.drop_database, self._store_url)

    # What goes on meanwhile.

    async def _change_rows(self, choose: random.Random) -> None:
        world = self._world
        while not self._settled.is_set():
            rows, deleted = some_change(choose, list(world.past.rows.values()))
            await world.commit(rows, deleted=deleted)
            await asyncio.sleep(choose.uniform(0, LONGEST_PAUSE_S))

    async def _manage(self, choose: random.Random) -> None:
        """Triggers come, go, rest and go on; at the end those that there are go on."""
        present: set[str] = set()
        while not self._settled.is_set():
            name = choose.choice(NAMES)
            verb = choose.choice(["disable", "enable", "delete"]) if name in present else "create"
            if verb == "create":
                await self._create(choose, name)
                present.add(name)
            else:
                await self._do(CHANGE.format(verb=verb), "not_found", name=name)
                if verb == "delete":
                    present.discard(name)
            self._tally["triggers managed"] += 1
            await asyncio.sleep(choose.uniform(0, 10 * LONGEST_PAUSE_S))
        for name in sorted(present):
            await self._do(CHANGE.format(verb="enable"), name=name)

    async def _create(self, choose: random.Random, name: str) -> None:
        match = {"quantity": {"_gte": str(choose.choice([6, 9, 12]))}}
        unmatch = choose.choice([None, {"quantity": {"_lt": "3"}}])
        wanted = {"name": name, "webhook": self._receiver.url, "match": match, "unmatch": unmatch}
        before = self._world.committed
        await self._do(CREATE, "trigger_exists", input=wanted)
        after = self._world.past.commits[-1].received_at
        made = [life for life in await self._lives_of(name) if life.until is None]
        if not made or not before <= made[0].since <= after:
            raise Broken(f"{name} was made between {before} and {after}: {made}")

    async def _lives_of(self, name: str) -> list[Trigger]:
        found = await self._patiently(self._world.triggers)
        return [trigger for trigger in found if trigger.name == name]

    async def _do(self, mutation: str, *done_before: str, **variables: Any) -> None:
        """A mutation whose answer was lost may have been done: then the next says one of these."""
        try:
            server = self._choose.choice(self._world.servers)
            await self._world.ask(mutation, server=server, **variables)
        except Refused as refused:
            if refused.code not in done_before:
                raise Broken(f"{mutation} {variables}: {refused}") from refused

    # Killing.

    async def _kill_something(self) -> None:
        if self._postgres is not None and self._choose.random() < DATABASE_SHARE:
            said = await asyncio.to_thread(kill_database, self._choose, self._postgres)
            self._tally[f"killed: {said}"] += 1
            return
        server = self._choose.choice(self._world.servers)
        moment = self._choose.random()
        if moment < STOPPING_SHARE:
            self._tally["stopped: server"] += 1
            code = await asyncio.to_thread(server.stop)
            if code != 0:
                raise Broken(f"a server that was asked to stop ended with {code}")
            await asyncio.to_thread(server.start)
            return
        if moment < STOPPING_SHARE + STARTING_SHARE:
            # Twice: the second time while it finds its way back from the first.
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start, wait=False)
            await asyncio.sleep(self._choose.uniform(0, LONGEST_START_S))
            self._tally["killed: server, starting"] += 1
        else:
            self._tally["killed: server"] += 1
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)

    # The end of a round.

    async def _come_to_rest(self, followers: Sequence[Follower]) -> None:
        world = self._world
        self._receiver.moody = False
        for follower in followers:
            follower.moody = False
        lives = self._told(await self._patiently(world.triggers))
        due = {event.event_id for life in lives if life[0].until is None for event in life[1]}
        async with asyncio.timeout(self._patience_s):
            while due - self._receiver.taken or any(
                follower.progress != world.committed for follower in followers
            ):
                await self._go_on(asyncio.sleep(POLL_S))
        of_name: dict[str, list[list[Told]]] = {}
        for trigger, events in lives:
            of_name.setdefault(trigger.name, []).append(events)
        found = list(faults(self._receiver.received, of_name))
        stored = {key: shown(row) for key, row in (await world.stored_rows()).items()}
        if stored != {key: shown(row) for key, row in world.past.rows.items()}:
            found.append("the store does not have the rows that were committed")
        for follower in followers:
            wanted = {key: row for key, row in stored.items() if follower.lets_through(row)}
            if follower.rows != wanted:
                found.append(f"{follower.where}: {follower.rows} and not {wanted}")
        if found:
            raise Broken("\n".join(found[:20]))
        self._tally["events"] += len(due)

    def _told(self, triggers: Sequence[Trigger]) -> list[tuple[Trigger, list[Told]]]:
        return [(trigger, list(self._world.past.events(_watch(trigger)))) for trigger in triggers]

    async def _open_matters(self) -> str:
        lives = self._told(await self._patiently(self._world.triggers))
        missing = [
            (trigger.name, event)
            for trigger, events in lives
            if trigger.until is None
            for event in events
            if event.event_id not in self._receiver.taken
        ]
        return f"{len(missing)} events are missing, such as {missing[:3]}; {[t for t, _ in lives]}"

    async def _go_on(self, waiting: Awaitable[Any]) -> None:
        """Wait, unless one of those who watch has seen something that must not be."""
        await waiting
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def _patiently(self, ask: Callable[[], Awaitable[list[Trigger]]]) -> list[Trigger]:
        while True:
            try:
                return await ask()
            except TriggersUnavailable:
                await asyncio.sleep(POLL_S)


def _watch(trigger: Trigger) -> Watch:
    match, unmatch = read_where(trigger.match), None
    if trigger.unmatch is not None:
        unmatch = read_where(trigger.unmatch)
    assert isinstance(match, dict)
    assert unmatch is None or isinstance(unmatch, dict)
    return Watch(trigger.name, match, unmatch, trigger.since, trigger.until)


async def torture(
    seed: int,
    count: int,
    stores: Sequence[Store] = STORES,
    *,
    variant: str = "",
    patience_s: float = ROUND_ENDS_WITHIN_S,
) -> int:
    """Kill `count` times; the exit code. `variant` is for a Tidemark that was tampered with."""
    choose = random.Random(seed)
    tally: Counter[str] = Counter()
    began = time.monotonic()
    say(f"seed {seed}: {count} kills of what is live on {' and '.join(stores)}")
    with contextlib.ExitStack() as stack:
        postgres = None
        if "postgres" in stores:
            # Durable, with full pages: it is killed in the middle of its writes, too.
            postgres = stack.enter_context(PostgresServer(durable=True))
        while tally["kills"] < count:
            store = choose.choice(stores)
            kills = min(choose.randint(*KILLS_A_ROUND), count - tally["kills"])
            directory = Path(tempfile.mkdtemp(prefix="tidemark-live-torture-"))
            round_ = Round(
                choose,
                tally,
                directory,
                postgres if store == "postgres" else None,
                variant=variant,
                patience_s=patience_s,
            )
            try:
                try:
                    await round_.run(kills)
                finally:
                    await round_.close()
            except Exception as error:
                say(
                    f"BROKEN after {tally['kills']} kills, in round {tally['rounds'] + 1} on "
                    f"{store}: {type(error).__name__}: {error}\n"
                    f"the evidence is in {directory}\n"
                    f"the same choices again: make torture-live SEED={seed} N={count}"
                )
                return 1
            shutil.rmtree(directory)
            seconds = time.monotonic() - began
            say(
                f"{tally['kills']}/{count} kills in {seconds:.0f} s; round {tally['rounds']}, "
                f"{store}: {tally['events']} events, {tally['checks']} checks of subscribers so far"
            )
    say(summary(tally, "kills", seed, time.monotonic() - began))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    # That a pool finds its database away is what is meant to happen.
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)
    return run(
        torture,
        argv,
        module="tests.crash.live_torture",
        does="Kill Tidemark at random moments and hold what is live against the rows.",
        strikes=200,
    )


if __name__ == "__main__":
    sys.exit(main())
