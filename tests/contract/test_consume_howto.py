"""The program of docs/howto/consume.md, killed while it copies a ledger that grows."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Message, TopicPartition

from tests.contract.events import draft
from tests.contract.mirrored import STREAMS, assert_mirrored, fill, ledger_and_world, some
from tests.contract.planted_messages import (
    EVENTS,
    Change,
    numbered_on,
    plant,
    with_another_hash,
)
from tests.contract.stores import Ledger, LedgerHome, append
from tests.services.mirroring import MirrorWorld, wait_until
from tidemark.ledger.spelling import spelt
from tidemark.mirror.position import ends, messages, reading
from tidemark.mirror.topics import Topics

HOWTO: Final = Path(__file__).parents[2] / "docs/howto/consume.md"
[PROGRAM] = re.findall(r"^```python\n(.*?)^```$", HOWTO.read_text(), re.MULTILINE | re.DOTALL)
KILLS: Final = 6
LONGEST_LIFE_S: Final = 1.2
# Long enough to say what is wrong.
WAITS_S: Final = 2.0


class Copy:
    """The table, and the process that fills it."""

    def __init__(self, directory: Path, world: MirrorWorld, program: str = PROGRAM) -> None:
        self._world = world
        self._program = directory / "consumer.py"
        self._program.write_text(program)
        self._path = directory / "copy.db"
        # No pipe, which would be full in time: the client says much of brokers that are away.
        self._said = directory / "said.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        world = self._world
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, self._program, world.broker.address, self._path, world.prefix],
                stdout=subprocess.DEVNULL,
                stderr=said,
            )

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """How it ended, and what it said."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        assert self._process is not None
        return self._process.wait(60), self._said.read_text()

    def begin_behind(self, commit: dict[str, Any]) -> None:
        """As the page says it is done by hand."""
        with closing(sqlite3.connect(self._path)) as database, database:
            values = [commit[name] for name in ("ledgerId", "receivedAt", "last", "chain")]
            database.execute("INSERT OR REPLACE INTO taken VALUES (1, ?, ?, ?, ?)", values)

    def is_running(self) -> bool:
        assert self._process is not None
        return self._process.poll() is None

    def events(self) -> list[tuple[int, str]]:
        if not self._path.exists():
            return []
        with closing(sqlite3.connect(self._path)) as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchall():
                return []
            return database.execute("SELECT * FROM events ORDER BY sequence").fetchall()


async def until_it_has(copy: Copy, ledger: Ledger, *, after: int = 0) -> None:
    last = (await ledger.head()).last_sequence

    def has_all() -> bool:
        assert copy.is_running(), copy.ended()
        return len(copy.events()) == last - after

    await asyncio.to_thread(wait_until, has_all)


async def assert_copied(copy: Copy, ledger: Ledger, *, after: int = 0) -> None:
    text = await ledger.read_text(after, (await ledger.head()).last_sequence)
    assert copy.events(), "nothing was copied"
    values = spelt([text], after, after + len(copy.events())).values
    assert copy.events() == [(n, value.decode()) for n, value in enumerate(values, after + 1)]


async def test_killed_at_any_moment_it_has_each_event_once_and_goes_on_in_topics_made_anew(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    source = random.Random(11)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [3, 0, 40])
    await world.mirror()
    copy = Copy(tmp_path, world)
    with world.mirroring() as failures:
        for number in range(KILLS):
            copy.start()
            sizes = [source.choice([0, 1, 5, 60]) for _ in range(20)]
            alive_s = source.uniform(0, LONGEST_LIFE_S)
            await asyncio.gather(fill(ledger, f"{number}", sizes), asyncio.sleep(alive_s))
            assert await asyncio.to_thread(copy.end, signal.SIGKILL) == (-signal.SIGKILL, "")
        # Whoever is away comes back.
        copy.start()
        await asyncio.to_thread(world.broker.kill)
        await append(ledger, *some(source, "meanwhile", 9))
        await asyncio.to_thread(world.broker.start)
        await until_it_has(copy, ledger)
        code, said = await asyncio.to_thread(copy.end, signal.SIGINT)
        # Kafka's client tells of brokers that are away, in its own words.
        assert (code, "Traceback" in said) == (0, False), said
    assert not failures
    await assert_copied(copy, ledger)

    await asyncio.to_thread(world.remove_topics, *world.topics())
    # In one transaction now, and so at other offsets.
    await append(ledger, *some(source, "behind", 30))
    await world.mirror()
    await assert_mirrored(world, ledger)
    copy.start()
    await until_it_has(copy, ledger)
    assert await asyncio.to_thread(copy.end, signal.SIGINT) == (0, "")
    await assert_copied(copy, ledger)


@pytest.mark.parametrize(
    ("change", "is_summed", "said"),
    [
        (numbered_on, True, "not the events of commit 8"),
        (with_another_hash, True, "not the history of commit 8"),
        (with_another_hash, False, "altered: commit 8"),
    ],
)
async def test_it_ends_where_messages_are_not_those_of_the_ledger(
    change: Change,
    is_summed: bool,
    said: str,
    sqlite_home: LedgerHome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, change, is_summed=is_summed)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, *(draft(f"{n}") for n in range(EVENTS)))
    await world.mirror()
    copy = Copy(tmp_path, world)
    copy.start()
    assert await asyncio.to_thread(copy.ended) == (1, f"{said}\n")
    assert copy.events() == []


async def test_it_ends_where_a_message_is_gone_and_tells_of_strangers(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    for name in ("before", "after"):
        await append(ledger, *(draft(f"{name} {n}") for n in range(9)))
        await world.mirror()
        if name == "before":
            world.write("usage", b"{}", partition=0)
    copy = Copy(tmp_path, world)
    copy.start()
    await until_it_has(copy, ledger)
    code, said = await asyncio.to_thread(copy.end, signal.SIGINT)
    assert re.fullmatch(rf"not written by the mirror: \('{world.prefix}usage', 0, \d\)\n", said), (
        said
    )
    assert code == 0
    await assert_copied(copy, ledger)

    await fill(ledger, "gone", [9])
    await world.mirror()
    await asyncio.to_thread(world.remove_messages, f"{world.prefix}usage")
    copy.start()
    code, said = await asyncio.to_thread(copy.ended)
    assert code == 1
    assert "offset" in said.lower() or "missing" in said, said
    assert len(copy.events()) == 18


async def test_it_waits_while_everything_is_mirrored_anew(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    for name in ("first", "second"):
        await fill(ledger, name, [7, 0, 4])
        await world.mirror()
    copy = Copy(tmp_path, world)
    copy.start()
    await until_it_has(copy, ledger)
    assert await asyncio.to_thread(copy.end, signal.SIGINT) == (0, "")
    older, *_ = await asyncio.to_thread(commits_in, world)
    await asyncio.to_thread(world.remove_topics, *world.topics())
    copy.start()
    code, said = await asyncio.to_thread(copy.ended)
    assert (code, "Traceback" in said) == (1, False), said

    # After the first transactions of a mirror that begins anew, and before any.
    for is_begun in (True, False):
        await asyncio.to_thread(Topics(world.config).ensure, [world.commits_topic])
        if is_begun:
            world.write("tidemark.commits", older.value(), timestamp=older.timestamp()[1])
        copy.start()
        await asyncio.sleep(WAITS_S)
        assert copy.is_running(), copy.ended()
        if is_begun:
            await asyncio.to_thread(copy.end, signal.SIGKILL)
            await asyncio.to_thread(world.remove_topics, world.commits_topic)
    await append(ledger, *some(random.Random(5), "behind", 30))
    await world.mirror()
    await until_it_has(copy, ledger)
    assert await asyncio.to_thread(copy.end, signal.SIGINT) == (0, "")
    await assert_copied(copy, ledger)


def commits_in(world: MirrorWorld) -> list[Message]:
    with reading(world.config) as consumer:
        topic = world.commits_topic
        return [*messages(consumer, topic, 0, *ends(consumer, topic, 0))]


async def test_it_goes_on_in_no_other_history(sqlite_home: LedgerHome, tmp_path: Path) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [9, 0])
    await world.mirror()
    copy = Copy(tmp_path, world)
    copy.start()
    await until_it_has(copy, ledger)
    await asyncio.to_thread(copy.end, signal.SIGINT)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    home = LedgerHome(f"sqlite:///{elsewhere / 'ledger.db'}")
    try:
        other, other_world = await ledger_and_world(home, elsewhere)
        await fill(other, "others", [20, 0])
        await other_world.mirror()
        other_copy = Copy(tmp_path, other_world)
        other_copy.start()
        code, said = await asyncio.to_thread(other_copy.ended)
    finally:
        await home.close()
    assert (code, "is of another ledger: begin anew" in said) == (1, True), said


async def test_it_takes_so_many_events_at_once_and_a_larger_commit_by_itself(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    at_once, sizes = 20, [9, 0, 11, 12, 70, 1, 0, 19, 20, 300, 4]
    program = re.sub("EVENTS_AT_ONCE = [0-9_]+", f"EVENTS_AT_ONCE = {at_once}", PROGRAM)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", sizes)
    await world.mirror()

    def batches() -> tuple[list[list[int]], int]:
        """How many events the commits of each batch have, and how many messages ran ahead."""
        parts: dict[str, Any] = {"__name__": "consumer"}
        exec(compile(program, "consumer", "exec"), parts)
        commits = parts["Commits"](world.broker.address, world.prefix, None)
        messages = parts["Messages"](world.broker.address)
        found: list[list[int]] = []
        most = 0
        while sum(map(len, found)) < len(sizes):
            if batch := commits.next():
                places = [place for commit in batch for place in parts["places_of"](commit)]
                assert len(messages.at(places)) == len(places)
                most = max(most, len(messages.waiting))
                found.append([int(c["last"]) - int(c["first"]) + 1 for c in batch])
        return found, most

    found, most = await asyncio.to_thread(batches)
    assert found == [[9, 0, 11], [12], [70], [1, 0, 19], [20], [300], [4]]
    # One of each partition is read before it is seen that it is ahead.
    assert most <= at_once + 2 * world.config.mirror.partitions

    copy = Copy(tmp_path, world, program)
    copy.start()
    await until_it_has(copy, ledger)
    assert await asyncio.to_thread(copy.end, signal.SIGINT) == (0, "")
    await assert_copied(copy, ledger)


async def test_where_topics_have_forgotten_it_begins_behind_a_commit_that_is_put_into_its_table(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    world.configure(mirror__allow_short_retention=True)
    await fill(ledger, "old", [9, 0, 5])
    await world.mirror()
    for stream in STREAMS:
        await asyncio.to_thread(world.remove_messages, world.prefix + stream)
    await fill(ledger, "new", [3, 0, 40])
    await world.mirror()
    oldest = (await asyncio.to_thread(commits_in, world))[2]
    forgotten = TopicPartition(world.commits_topic, 0, oldest.offset() or 0)
    admin = world.admin()
    for removed in admin.delete_records([forgotten]).values():
        await asyncio.to_thread(removed.result)
    copy = Copy(tmp_path, world)
    copy.start()
    code, said = await asyncio.to_thread(copy.ended)
    assert code == 1
    assert "a gap: 10 comes after 0" in said or "Offset out of range" in said, said

    copy.begin_behind(json.loads(oldest.value() or b""))
    copy.start()
    await until_it_has(copy, ledger, after=14)
    assert await asyncio.to_thread(copy.end, signal.SIGINT) == (0, "")
    await assert_copied(copy, ledger, after=14)

    # It does not run for longer than topics keep what they have.
    await fill(ledger, "newer", [2, 6])
    await world.mirror()
    newest = (await asyncio.to_thread(commits_in, world))[-1]
    forgotten = TopicPartition(world.commits_topic, 0, newest.offset() or 0)
    for removed in admin.delete_records([forgotten]).values():
        await asyncio.to_thread(removed.result)
    copy.start()
    code, said = await asyncio.to_thread(copy.ended)
    assert code == 1
    assert f"the commit that was taken last is not in {world.commits_topic} any more" in said, said
    copy.begin_behind(json.loads(newest.value() or b""))
    copy.start()
    await fill(ledger, "newest", [5])
    await world.mirror()
    await asyncio.to_thread(wait_until, lambda: copy.events()[-1][0] == 70)
    assert await asyncio.to_thread(copy.end, signal.SIGINT) == (0, "")
