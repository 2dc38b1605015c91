"""An import that was interrupted goes on; a ledger with anything else in it is refused."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.events import START, draft
from tests.contract.histories import (
    SALT,
    Event,
    amend,
    contents,
    lines_of,
    note,
    run_import,
    usage,
    void,
)
from tests.contract.stores import (
    SQLITE_SCHEME,
    Ledger,
    LedgerHome,
    all_commits,
    append,
    append_history,
)
from tests.services.nursery import run
from tests.unit.planted import assert_catches
from tidemark.crash import POINTS
from tidemark.errors import ImportRefused, LedgerUnavailable
from tidemark.event_files import EventLine
from tidemark.ledger import importer
from tidemark.ledger.history import Place
from tidemark.ledger.history_order import HistoryOrder


@pytest.fixture
async def ledger(home: LedgerHome) -> Ledger:
    return await home.open(salt=SALT)


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    return tmp_path / "work"


async def refused(ledger: Ledger, history: Sequence[Event], work_dir: Path) -> ImportRefused:
    before = await contents(ledger)
    with pytest.raises(ImportRefused) as caught:
        await run_import(ledger, history, work_dir)
    assert caught.value.hint
    assert await contents(ledger) == before
    return caught.value


def five_commits() -> list[Event]:
    return [
        usage("a", 10),
        usage("b", 10),
        usage("b", 20, occurred=9),
        note("n", 30),
        void("a", 30),
        usage("c", 40),
        usage("d", 50),
    ]


async def test_what_is_imported_already_is_not_imported_again(
    ledger: Ledger, work_dir: Path
) -> None:
    await run_import(ledger, five_commits(), work_dir)
    before = await contents(ledger)
    report = await run_import(ledger, five_commits(), work_dir)
    assert (report.accepted, report.already_imported, report.duplicates) == (0, 6, 1)
    assert (report.commits, report.first_sequence, report.last_sequence) == (0, None, None)
    assert await contents(ledger) == before


async def test_a_history_that_has_grown_at_its_end_is_imported_from_there(
    ledger: Ledger, work_dir: Path
) -> None:
    await run_import(ledger, five_commits()[:3], work_dir)
    report = await run_import(ledger, five_commits(), work_dir)
    assert (report.already_imported, report.accepted, report.first_sequence) == (2, 4, 3)


@pytest.mark.parametrize(
    "change",
    [
        lambda history: [*history[:5], *history[6:]],
        lambda history: [usage("a", 10, quantity=7), *history[1:]],
        lambda history: [*history[:5], usage("other", 40), *history[6:]],
        lambda history: [usage("a", 10, tenantId="else"), *history[1:3]],
        lambda history: [usage("a", 11), *history[1:]],
        lambda history: [usage("early", 5), *history],
        lambda history: history[:-1],
        lambda history: [],
    ],
    ids=["fewer", "content", "key", "tenant", "time", "earlier", "shorter", "none"],
)
async def test_another_history_is_refused(
    ledger: Ledger, work_dir: Path, change: Callable[[list[Event]], list[Event]]
) -> None:
    await run_import(ledger, five_commits(), work_dir)
    error = await refused(ledger, change(five_commits()), work_dir)
    assert error.code == "import_refused"
    assert "new ledger" in error.hint


async def test_a_key_is_compared_though_it_is_in_no_content(ledger: Ledger, work_dir: Path) -> None:
    await run_import(ledger, [usage("a", 10), usage("b", 10, occurred=9.5)], work_dir)
    error = await refused(ledger, [usage("a", 10), usage("B", 10, occurred=9.5)], work_dir)
    assert "sequence 2" in error.message
    assert "history.jsonl, line 2" in error.message


async def test_live_events_before_a_history_are_refused(ledger: Ledger, work_dir: Path) -> None:
    await append(ledger, draft("live"))
    error = await refused(ledger, five_commits(), work_dir)
    assert "sequences 1 to 1" in error.message


async def test_live_events_in_the_midst_of_a_history_are_refused(
    ledger: Ledger, work_dir: Path
) -> None:
    await run_import(ledger, five_commits()[:3], work_dir)
    await append(ledger, draft("live"))
    error = await refused(ledger, five_commits(), work_dir)
    assert "sequences 3 to 3" in error.message


async def test_live_events_behind_a_whole_history_are_refused_and_it_says_so(
    ledger: Ledger, work_dir: Path
) -> None:
    await run_import(ledger, five_commits(), work_dir)
    await append(ledger, draft("live"))
    error = await refused(ledger, five_commits(), work_dir)
    assert "behind the end of this history" in error.message
    assert "whole" in error.hint


async def test_a_tick_is_refused(ledger: Ledger, work_dir: Path) -> None:
    await ledger.tick(0)
    error = await refused(ledger, five_commits(), work_dir)
    assert "a tick at" in error.message


class Interference:
    """A store in which something else happens around a transaction of an import."""

    def __init__(
        self, ledger: Ledger, moment: int, *, after: bool, act: Callable[[Ledger], Any]
    ) -> None:
        self._ledger = ledger
        self._moment = moment
        self._after = after
        self._act = act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def append_history(self, *arguments: Any) -> Any:
        self._moment -= 1
        if self._moment == 0 and not self._after:
            await self._act(self._ledger)
        result = await self._ledger.append_history(*arguments)
        if self._moment == 0 and self._after:
            await self._act(self._ledger)
        return result


async def test_a_live_event_while_the_import_runs_stops_it(ledger: Ledger, work_dir: Path) -> None:
    busy = Interference(
        ledger, 3, after=False, act=lambda real: append(real, draft("live", occurred_at=None))
    )
    with pytest.raises(ImportRefused) as caught:
        await run_import(busy, five_commits(), work_dir, events_together=1)
    assert caught.value.hint
    assert [c.last_sequence for c in await all_commits(ledger)] == [2, 4, 5]


async def test_another_import_while_this_one_runs_stops_it(ledger: Ledger, work_dir: Path) -> None:
    async def import_another(real: Ledger) -> None:
        await append_history(real, (START + 35_000_000, draft("other")))

    busy = Interference(ledger, 3, after=False, act=import_another)
    with pytest.raises(ImportRefused, match="something else writes") as caught:
        await run_import(busy, five_commits(), work_dir, events_together=1)
    assert caught.value.hint


async def test_nothing_is_left_in_the_work_directory(ledger: Ledger, work_dir: Path) -> None:
    def lines() -> Iterator[EventLine]:
        for line in lines_of(five_commits()):
            assert os.listdir(work_dir) == []
            yield line

    await run_import(ledger, lines(), work_dir)
    assert os.listdir(work_dir) == []
    await refused(ledger, [usage("x", 1)], work_dir)
    assert os.listdir(work_dir) == []


# Few of everything, so that much is equal.
SECONDS = st.integers(min_value=1, max_value=3)
KEYS = st.sampled_from(["a", "b", None])
TENANTS = st.sampled_from(["acme", "bolt"])
EVENTS = st.one_of(
    st.builds(
        usage,
        KEYS,
        SECONDS,
        occurred=st.sampled_from([1, 2]),
        tenantId=TENANTS,
        quantity=st.sampled_from([1, 2]),
        source=st.sampled_from([None, "here", "there"]),
    ),
    st.builds(note, st.sampled_from("ab"), SECONDS, st.sampled_from("xy"), tenantId=TENANTS),
    st.builds(
        void,
        st.sampled_from("ab"),
        SECONDS,
        tenantId=TENANTS,
        idempotencyKey=KEYS,
        reason=st.sampled_from([None, "error"]),
    ),
    st.builds(amend, st.sampled_from("ab"), SECONDS, st.sampled_from([7, 8]), tenantId=TENANTS),
    st.builds(usage, KEYS, SECONDS, quantity=st.just("not a number")),
)
HISTORIES = st.lists(EVENTS, min_size=1, max_size=12)
TOGETHER = st.integers(min_value=1, max_value=5)
# In which transaction each of the first runs is interrupted, and on which side of its commit.
INTERRUPTIONS = st.lists(
    st.tuples(st.integers(min_value=1, max_value=3), st.booleans()), max_size=3
)


async def lose_the_ledger(ledger: Ledger) -> None:
    raise LedgerUnavailable("interrupted", hint="by the test")


async def imported(
    home: LedgerHome, runs: list[list[Event]], interruptions: Any, work: Path, together: int
) -> Any:
    """What an empty ledger holds after these runs, of which only the last is left alone."""
    await wipe(home)
    for lines, (moment, after) in zip(runs, [*interruptions, (0, True)], strict=True):
        ledger = await home.open(salt=SALT)
        store: Any = Interference(ledger, moment, after=after, act=lose_the_ledger)
        try:
            report = await run_import(
                store, lines, work, skip_invalid=True, events_together=together
            )
        except LedgerUnavailable:
            continue
        except ImportRefused as error:
            raise AssertionError("the import did not know its own beginning") from error
        else:
            counts = (report.read, report.duplicates, report.conflicts, report.rejected)
            held = report.accepted + report.already_imported
            return *await contents(ledger), counts, held
        finally:
            await home.close()
    raise AssertionError("the last run was interrupted too")


async def wipe(home: LedgerHome) -> None:
    if home.kind == "sqlite":
        for path in home.place.parent.glob("ledger.db*"):
            path.unlink()
    else:
        await home.sql("DROP SCHEMA IF EXISTS tidemark CASCADE")


def any_order_and_any_interruption_give_one_ledger(
    order_type: type[HistoryOrder], url: str, work: Path
) -> Callable[[], None]:
    @given(st.data(), HISTORIES, INTERRUPTIONS, TOGETHER)
    def check(data: st.DataObject, history: list[Event], interruptions: Any, some: int) -> None:
        runs = [data.draw(st.permutations(history)) for _ in range(len(interruptions) + 1)]
        home = LedgerHome(url)
        with patch.object(importer, "HistoryOrder", order_type):
            expected = asyncio.run(imported(home, [history], [], work, together=1))
            assert asyncio.run(imported(home, runs, interruptions, work, some)) == expected

    return check


class ByTimeOfReceiptOnly(HistoryOrder):
    """A planted bug: equal times keep the order of the lines."""

    def in_order(self) -> Iterator[Place]:
        return iter(sorted(self._run, key=lambda place: place.received_at))


class ByTimesAndKeyOnly(HistoryOrder):
    """A planted bug: of two events with one key, the line that comes first wins."""

    def in_order(self) -> Iterator[Place]:
        return iter(sorted(self._run, key=lambda place: place[:3]))


def test_any_order_of_lines_and_any_interruption_give_one_ledger(
    home: LedgerHome, work_dir: Path
) -> None:
    examples = 40 if home.kind == "sqlite" else 10
    check = any_order_and_any_interruption_give_one_ledger(HistoryOrder, home.url, work_dir)
    settings(max_examples=examples)(check)()


@pytest.mark.parametrize("broken", [ByTimeOfReceiptOnly, ByTimesAndKeyOnly])
def test_that_property_catches_an_order_that_depends_on_the_lines(
    broken: type[HistoryOrder], tmp_path: Path
) -> None:
    url = f"{SQLITE_SCHEME}{tmp_path / 'ledger.db'}"
    assert_catches(
        lambda order: any_order_and_any_interruption_give_one_ledger(order, url, tmp_path / "work"),
        broken,
    )


@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("import.")])
async def test_an_import_that_is_killed_goes_on_where_it_was(
    point: str, home: LedgerHome, work_dir: Path, tmp_path: Path
) -> None:
    # Each of the transactions of the child has two commits.
    history = [usage(f"{n}", n // 4 + 1, occurred=n % 3) for n in range(40)]
    expected = await contents_of_one_run(history, tmp_path)
    for armed in (f"{point}:2", f"{point}:2", None):
        random.Random(point).shuffle(history)
        path = tmp_path / "history.jsonl"
        path.write_text("".join(json.dumps(event) + "\n" for event in history))
        ended = await asyncio.to_thread(import_in_a_child, home.url, path, work_dir, armed)
        assert ended == (-signal.SIGKILL if armed else 0)
        assert os.listdir(work_dir) == []
    assert await contents(await home.open()) == expected


async def contents_of_one_run(history: list[Event], directory: Path) -> Any:
    home = LedgerHome(f"{SQLITE_SCHEME}{directory / 'expected.db'}")
    ledger = await home.open(salt=SALT)
    await run_import(ledger, history, directory / "expected")
    try:
        return await contents(ledger)
    finally:
        await home.close()


def import_in_a_child(url: str, path: Path, work_dir: Path, armed: str | None) -> int:
    environment = os.environ | ({} if armed is None else {"TIDEMARK_CRASH_AT": armed})
    arguments = ["-m", "tests.contract.import_child", url, str(path), str(work_dir)]
    return run(arguments, env=environment).returncode
