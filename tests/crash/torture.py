"""Kills Tidemark at random moments under load and holds the ledger against the answers each time.

    python -m tests.crash.torture --seed 7 --count 300 [--store sqlite|postgres|both]

The seed decides what is sent, what is killed and how long to wait before; the machine decides what
that interrupts, so a run repeats its choices and not its moments. Each round has a new ledger, one
or two API processes, and publishers that repeat every request byte for byte until it is answered.
Now and then it is PostgreSQL itself that is killed. Ends with 1 at the first broken rule, and keeps
the evidence.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tests.crash.audit import faults
from tests.crash.history import History
from tests.crash.reading import SQLITE_SCHEME
from tests.crash.senders import Publishers, traffic
from tests.crash.tormenting import STORES, Broken, Store, run, say
from tests.crash.variants import VariantServer
from tests.services.postgres import PostgresServer

KILLS_A_ROUND: Final = (6, 12)
LONGEST_WAIT_S: Final = 0.5
ASKED_AGAIN_EVERY: Final = 10
# How often it is the database that is killed, and how often a process before it is ready.
DATABASE_SHARE: Final = 0.1
STARTING_SHARE: Final = 0.15
TWO_PROCESSES_SHARE: Final = 0.5
ROUND_ENDS_WITHIN_S: Final = 60.0


@dataclasses.dataclass
class Tally:
    """What a run has done so far."""

    kills: Counter[str] = dataclasses.field(default_factory=Counter)
    rounds: int = 0
    checks: int = 0
    events: int = 0
    commits: int = 0
    acknowledgements: int = 0
    refusals: int = 0
    disconnections: int = 0


class Round:
    """One ledger, its processes and its publishers."""

    def __init__(
        self,
        choose: random.Random,
        tally: Tally,
        directory: Path,
        postgres: PostgresServer | None,
        variant: str,
    ) -> None:
        self._choose = choose
        self._tally = tally
        self._directory = directory
        self._postgres = postgres
        self.store: Store = "sqlite" if postgres is None else "postgres"
        if postgres is None:
            self._ledger_url = f"{SQLITE_SCHEME}{directory / 'ledger.db'}"
        else:
            self._ledger_url = postgres.create_database()
        processes = 2 if choose.random() < TWO_PROCESSES_SHARE else 1
        self._servers = [
            VariantServer(variant, ledger_url=self._ledger_url, directory=directory)
            for _ in range(processes)
        ]

    async def run(self, kills: int) -> None:
        planned = traffic(
            self._choose,
            senders=self._choose.randint(3, 8),
            largest=self._choose.choice([1, 10, 40]),
            overlap=self._choose.choice([0.0, 0.3, 0.8]),
        )
        for server in self._servers:
            await asyncio.to_thread(server.start)
        urls = [server.base_url for server in self._servers]
        async with Publishers(planned, urls) as publishers:
            try:
                for _ in range(kills):
                    await asyncio.sleep(self._choose.uniform(0, LONGEST_WAIT_S))
                    await self._kill_something()
                    await self._check(publishers)
                await publishers.wind_down(ROUND_ENDS_WITHIN_S)
                history = await self._check(publishers, all_answered=True)
                await publishers.ask_again(every=ASKED_AGAIN_EVERY)
                if await self._check(publishers, all_answered=True) != history:
                    raise Broken("asking again changed the ledger")
            except TimeoutError as error:
                raise Broken("requests stay without an answer") from error
        self._tally.rounds += 1
        self._tally.events += len(history.events)
        self._tally.commits += len(history.commits)
        self._tally.acknowledgements += len(publishers.acknowledgements)
        self._tally.refusals += publishers.refusals.total()
        self._tally.disconnections += publishers.disconnections.total()

    async def close(self) -> None:
        for server in self._servers:
            await asyncio.to_thread(server.close)
        if self._postgres is not None:
            await asyncio.to_thread(self._postgres.drop_database, self._ledger_url)

    def logs(self) -> str:
        return "\n\n".join(server.log_tail(40) for server in self._servers)

    async def _kill_something(self) -> None:
        if self._postgres is not None and self._choose.random() < DATABASE_SHARE:
            await asyncio.to_thread(self._kill_database, self._postgres)
            return
        server = self._choose.choice(self._servers)
        moment = self._choose.random()
        if moment < STARTING_SHARE:
            # Twice: the second time while it finds its way back from the first.
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start, wait=False)
            await asyncio.sleep(self._choose.uniform(0, LONGEST_WAIT_S))
            self._tally.kills[f"{self.store} API process"] += 1
            self._tally.kills[f"{self.store} API process, starting"] += 1
        else:
            self._tally.kills[f"{self.store} API process"] += 1
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)

    def _kill_database(self, postgres: PostgresServer) -> None:
        if self._choose.random() < 0.5:
            self._tally.kills["PostgreSQL, SIGKILL"] += 1
            postgres.kill()
        else:
            self._tally.kills["PostgreSQL, immediate stop"] += 1
            postgres.stop("immediate")
        postgres.start()

    async def _check(self, publishers: Publishers, *, all_answered: bool = False) -> History:
        publishers.check()
        found, history = await faults(self._ledger_url, publishers, all_answered=all_answered)
        self._tally.checks += 1
        if found:
            place = Path(tempfile.mkdtemp(prefix="tidemark-torture-"))
            _write_lines(place / "events.txt", history.events)
            _write_lines(place / "commits.txt", history.commits)
            _write_lines(place / "acknowledgements.txt", publishers.acknowledgements)
            (place / "servers.log").write_text(self.logs())
            raise Broken("\n".join([*found, f"the evidence is in {place}"]))
        return history


async def torture(
    seed: int, count: int, stores: Sequence[Store] = STORES, *, variant: str = ""
) -> int:
    """Kill `count` times; the exit code. `variant` is for a Tidemark that was tampered with."""
    choose = random.Random(seed)
    tally = Tally()
    began = time.monotonic()
    say(f"seed {seed}: {count} kills on {' and '.join(stores)}")
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-")))
        postgres = None
        if "postgres" in stores:
            # Durable, with full pages: it is killed in the middle of its writes, too.
            postgres = stack.enter_context(PostgresServer(durable=True))
        while tally.kills.total() < count:
            store = choose.choice(stores)
            kills = min(choose.randint(*KILLS_A_ROUND), count - tally.kills.total())
            place = directory / f"round-{tally.rounds + 1}"
            place.mkdir()
            round_ = Round(choose, tally, place, postgres if store == "postgres" else None, variant)
            try:
                await round_.run(kills)
            except Exception as error:
                say(
                    f"BROKEN after {tally.kills.total()} kills, in round {tally.rounds + 1} on "
                    f"{store}: {type(error).__name__}: {error}\n{round_.logs()}\n"
                    f"the same choices again: make torture-ledger SEED={seed} N={count}"
                )
                return 1
            finally:
                await round_.close()
            say(
                f"{tally.kills.total()}/{count} kills in {time.monotonic() - began:.0f} s; round "
                f"{tally.rounds}, {store}: {tally.events} events and {tally.acknowledgements} "
                f"acknowledgements so far, {tally.checks} checks, nothing broken"
            )
    say(summary(tally, seed, time.monotonic() - began))
    return 0


def summary(tally: Tally, seed: int, seconds: float) -> str:
    return "\n".join(
        [
            f"seed {seed}: {tally.kills.total()} kills in {seconds:.0f} s "
            f"({tally.kills.total() / seconds:.1f} a second), nothing broken",
            *(f"  {times:5} {what}" for what, times in sorted(tally.kills.items())),
            f"  {tally.rounds} ledgers, {tally.events} events in {tally.commits} commits, "
            f"{tally.acknowledgements} acknowledgements, {tally.checks} checks of everything",
            f"  {tally.disconnections} requests were cut off and {tally.refusals} told to try "
            "again; all of them were answered in the end",
        ]
    )


def _write_lines(path: Path, rows: Iterable[object]) -> None:
    path.write_text("".join(f"{row}\n" for row in rows))


def main(argv: Sequence[str] | None = None) -> int:
    return run(
        torture,
        argv,
        module="tests.crash.torture",
        does="Kill Tidemark at random moments under load and check its ledger each time.",
        strikes=200,
    )


if __name__ == "__main__":
    sys.exit(main())
