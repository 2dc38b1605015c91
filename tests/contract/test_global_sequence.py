"""Numbers across ledgers, from a second real PostgreSQL that goes away and comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.contract.events import SECOND, ManualClock, draft, drafts, statuses
from tests.contract.frozen import frozen
from tests.contract.stores import Ledger, LedgerHome, all_events, append, append_history
from tests.services.postgres import PostgresServer
from tidemark.clock import SystemClock
from tidemark.config import load_config
from tidemark.ledger.global_sequence import (
    CHECK_AFTER_US,
    RETRY_AFTER_US,
    NoGlobalNumbers,
    PostgresGlobalNumbers,
)
from tidemark.ledger.opening import open_ledger

# Generous, because a connection is made within it on a machine that is busy with other tests.
TIMEOUT_US = 5 * SECOND
SHORT_TIMEOUT_US = SECOND // 5
# Far above what it takes, far below what a connection that nobody limits would wait.
BOUND_S = 10.0


@pytest.fixture
def sequence_url(second_postgres: PostgresServer) -> str:
    """Where no number was given yet."""
    second_postgres.execute("DROP TABLE IF EXISTS tidemark_global_sequence")
    return second_postgres.url()


@pytest.fixture
def numbers(sequence_url: str, clock: ManualClock) -> PostgresGlobalNumbers:
    return PostgresGlobalNumbers(sequence_url, clock, timeout_us=TIMEOUT_US)


@pytest.fixture
async def numbered(
    home: LedgerHome, clock: ManualClock, numbers: PostgresGlobalNumbers
) -> AsyncIterator[Ledger]:
    ledger = await home.open(clock, global_numbers=numbers)
    yield ledger
    await home.close()


async def global_numbers(ledger: Ledger) -> list[int | None]:
    return [event.global_sequence for event in await all_events(ledger)]


async def test_the_commits_of_a_history_have_consecutive_numbers(numbered: Ledger) -> None:
    await append_history(numbered, (5, draft("a")), (6, draft("a")), (7, draft("b")))
    await append(numbered, draft("live"))
    assert await global_numbers(numbered) == [1, 2, 3]


async def append_quickly(ledger: Ledger, *keys: str) -> None:
    """Ingest must not wait for the sequence database longer than its timeout."""
    started = time.monotonic()
    assert statuses(await append(ledger, *drafts(*keys))) == ["accepted"] * len(keys)
    assert time.monotonic() - started < BOUND_S


async def append_until_ready(ledger: Ledger, clock: ManualClock) -> None:
    """A connection may need more than a short timeout when the machine is busy."""
    for _ in range(100):
        clock.pass_time(RETRY_AFTER_US)
        await append(ledger, draft(f"key-{clock.wall_us()}"))
        if ledger.global_numbers.state == ("ready", ""):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(ledger.global_numbers.state)


async def test_without_a_sequence_database_there_are_no_numbers(ledger: Ledger) -> None:
    await append(ledger, draft("a"))
    assert await global_numbers(ledger) == [None]
    assert ledger.global_numbers.state == ("disabled", "sequence.url is not set")


async def test_only_new_events_take_a_number(numbered: Ledger) -> None:
    await append(numbered, *drafts("a", "b", "a"))
    await append(numbered, draft("a"), draft("b", "other"), draft("c"))
    await append(numbered, draft("a"))
    await append(numbered, draft("d"))
    assert await global_numbers(numbered) == [1, 2, 3, 4]
    assert numbered.global_numbers.state == ("ready", "")


async def test_two_ledgers_share_one_row_of_numbers(
    home: LedgerHome, sqlite_home: LedgerHome, sequence_url: str, clock: ManualClock
) -> None:
    other_home = LedgerHome(f"{sqlite_home.url}.other")
    one, other = [
        await place.open(
            clock,
            global_numbers=PostgresGlobalNumbers(sequence_url, clock, timeout_us=TIMEOUT_US),
        )
        for place in (home, other_home)
    ]
    for number in range(6):
        await append((one, other)[number % 2], *drafts(f"{number}-a", f"{number}-b"))
    assert await global_numbers(one) == [1, 2, 5, 6, 9, 10]
    assert await global_numbers(other) == [3, 4, 7, 8, 11, 12]

    await asyncio.gather(
        *(
            append(store, *drafts(*(f"{batch}-{i}" for i in range(5))))
            for store in (one, other)
            for batch in range(100, 110)
        )
    )
    given = [await global_numbers(store) for store in (one, other)]
    for of_ledger in given:
        assert all(lower < higher for lower, higher in pairwise(map(int_, of_ledger)))
    assert sorted(map(int_, given[0] + given[1])) == list(range(1, 113))
    await other_home.close()


def int_(number: int | None) -> int:
    assert number is not None
    return number


async def test_ingest_goes_on_without_numbers_while_the_server_is_away(
    numbered: Ledger, clock: ManualClock, second_postgres: PostgresServer
) -> None:
    await append(numbered, *drafts("a", "b"))
    second_postgres.stop()
    await append_quickly(numbered, "c", "d")
    state, reason = numbered.global_numbers.state
    assert state == "degraded"
    assert "global_sequence" in reason
    clock.pass_time(RETRY_AFTER_US)
    await append_quickly(numbered, "e")
    assert numbered.global_numbers.state[0] == "degraded"

    second_postgres.start()
    await append(numbered, draft("f"))
    assert numbered.global_numbers.state[0] == "degraded", "it is not asked again at once"
    clock.pass_time(RETRY_AFTER_US)
    await append(numbered, *drafts("g", "h"))
    assert numbered.global_numbers.state == ("ready", "")
    assert await global_numbers(numbered) == [1, 2, None, None, None, None, 3, 4]


@pytest.mark.parametrize("how", ["restart", "crash", "kill"])
async def test_a_server_that_comes_back_repeats_no_number(
    numbered: Ledger, clock: ManualClock, second_postgres: PostgresServer, how: str
) -> None:
    await append(numbered, *drafts("a", "b", "c"))
    if how == "kill":
        second_postgres.kill()
        second_postgres.start()
    else:
        second_postgres.restart("immediate" if how == "crash" else "fast")
    for number in range(3):
        await append(numbered, draft(f"key-{number}"))
        clock.pass_time(RETRY_AFTER_US)
    given = [number for number in await global_numbers(numbered) if number is not None]
    assert given[:3] == [1, 2, 3]
    assert len(given) >= 5
    assert all(lower < higher for lower, higher in pairwise(given))
    assert numbered.global_numbers.state == ("ready", "")


async def test_a_connection_that_was_cut_while_idle_costs_no_number(
    numbered: Ledger, second_postgres: PostgresServer
) -> None:
    await append(numbered, draft("a"))
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    assert (True,) in second_postgres.execute(cut)
    await asyncio.sleep(0.2)
    await append(numbered, draft("b"))
    assert await global_numbers(numbered) == [1, 2]


async def test_a_server_that_hangs_is_waited_for_no_longer_than_the_timeout(
    home: LedgerHome, clock: ManualClock, sequence_url: str, second_postgres: PostgresServer
) -> None:
    patient = PostgresGlobalNumbers(sequence_url, clock, timeout_us=TIMEOUT_US)
    assert await patient.take(1) == 1
    await patient.close()
    hasty = PostgresGlobalNumbers(sequence_url, clock, timeout_us=SHORT_TIMEOUT_US)
    ledger = await home.open(clock, global_numbers=hasty)
    await append_until_ready(ledger, clock)
    with frozen(second_postgres):
        await append_quickly(ledger, "in use")
        assert hasty.state[0] == "degraded"
        clock.pass_time(RETRY_AFTER_US)
        await append_quickly(ledger, "while connecting")
        await append_quickly(ledger, "not asked")
        assert "Timeout" in hasty.state[1]
    assert (await global_numbers(ledger))[-3:] == [None, None, None]
    await append_until_ready(ledger, clock)
    given = [number for number in await global_numbers(ledger) if number is not None]
    assert all(lower < higher for lower, higher in pairwise(given))


async def test_who_waits_behind_one_that_fails_does_not_try_it_again(
    numbers: PostgresGlobalNumbers, clock: ManualClock, second_postgres: PostgresServer
) -> None:
    """One timeout for all of them, whether they ask how it is or store events."""
    assert await numbers.take(1) == 1
    clock.pass_time(CHECK_AFTER_US)
    with frozen(second_postgres):
        started = time.monotonic()
        asked = asyncio.create_task(numbers.check())
        await asyncio.sleep(0)
        # They have the turn one after the other.
        takers = [asyncio.create_task(numbers.take(1)) for _ in range(5)]
        await asyncio.sleep(0)
        # Nor is anybody in their way who only asks.
        await numbers.check()
        assert not asked.done()
        assert await asyncio.gather(*takers) == [None] * 5
        assert numbers.state[0] == "degraded"
        assert time.monotonic() - started < 2 * TIMEOUT_US / SECOND
    await numbers.close()


async def test_asking_how_it_is_takes_nothing(
    numbers: PostgresGlobalNumbers, clock: ManualClock, second_postgres: PostgresServer
) -> None:
    assert await numbers.take(2) == 1
    second_postgres.stop()
    clock.pass_time(CHECK_AFTER_US)
    await numbers.check()
    assert numbers.state[0] == "degraded"
    second_postgres.start()
    clock.pass_time(RETRY_AFTER_US)
    await numbers.check()
    assert numbers.state == ("ready", "")
    assert await numbers.take(1) == 3
    await numbers.close()


async def test_asking_again_and_again_writes_nothing(
    numbers: PostgresGlobalNumbers, clock: ManualClock, second_postgres: PostgresServer
) -> None:
    def version() -> list[tuple[object, ...]]:
        return second_postgres.execute("SELECT xmin::text FROM tidemark_global_sequence")

    assert await numbers.take(1) == 1
    before = version()
    for _ in range(4):
        await numbers.check()
        clock.pass_time(CHECK_AFTER_US // 4)
    assert version() == before
    # By then it may have gone away.
    await numbers.check()
    assert version() != before
    await numbers.close()


async def test_a_question_that_nobody_waits_for_any_longer_was_not_answered(
    numbers: PostgresGlobalNumbers, clock: ManualClock, second_postgres: PostgresServer
) -> None:
    """Who asks may be less patient than `sequence.timeout` is."""
    assert await numbers.take(1) == 1
    clock.pass_time(CHECK_AFTER_US)
    with frozen(second_postgres), pytest.raises(TimeoutError):
        async with asyncio.timeout(SHORT_TIMEOUT_US / SECOND):
            await numbers.check()
    assert numbers.state == ("degraded", "new events have no global_sequence: no answer in time")
    clock.pass_time(RETRY_AFTER_US)
    await numbers.check()
    assert numbers.state == ("ready", "")
    assert await numbers.take(1) == 2
    await numbers.close()


@pytest.mark.parametrize(
    "wrong",
    ["no such database", "no such user", "nobody listens", "no such host", "not PostgreSQL"],
)
async def test_a_wrong_address_degrades_and_says_why_without_the_password(
    home: LedgerHome, clock: ManualClock, second_postgres: PostgresServer, wrong: str
) -> None:
    good = second_postgres.url()
    password = good.split(":")[2].split("@")[0]
    async with await asyncio.start_server(speak_http, "127.0.0.1", 0) as not_postgres:
        http_port = not_postgres.sockets[0].getsockname()[1]
        url = {
            "no such database": second_postgres.url("no_such_database"),
            "no such user": good.replace("tidemark:", "nobody:"),
            "nobody listens": good.replace(f":{second_postgres.port}/", ":1/"),
            "no such host": good.replace("@127.0.0.1", "@no-such-host.invalid"),
            "not PostgreSQL": good.replace(f":{second_postgres.port}/", f":{http_port}/"),
        }[wrong]
        numbers = PostgresGlobalNumbers(url, clock, timeout_us=2 * SECOND)
        ledger = await home.open(clock, global_numbers=numbers)
        await append_quickly(ledger, "a", "b")
        await home.close()
    state, reason = numbers.state
    assert state == "degraded"
    assert len(reason) > len("new events have no global_sequence: ")
    assert password not in reason


@pytest.mark.parametrize("right", [True, False])
async def test_health_knows_from_the_start_whether_there_are_numbers(
    tmp_path: Path, second_postgres: PostgresServer, sequence_url: str, right: bool
) -> None:
    config = load_config(
        None,
        {
            "TIDEMARK_STATE_DIR": str(tmp_path),
            "TIDEMARK_SEQUENCE__URL": sequence_url if right else second_postgres.url("nowhere"),
            "TIDEMARK_SEQUENCE__TIMEOUT": "5s",
        },
    )
    ledger = await open_ledger(config, SystemClock())
    assert ledger.global_numbers.state[0] == ("ready" if right else "degraded")
    if right:
        assert await ledger.global_numbers.take(1) == 1
    await ledger.close()


async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(8)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    writer.close()


async def test_several_takers_at_once_get_numbers_of_their_own(
    numbers: PostgresGlobalNumbers,
) -> None:
    firsts = await asyncio.gather(*(numbers.take(count) for count in range(1, 20)))
    ranges = [
        range(int_(first), int_(first) + count)
        for first, count in zip(firsts, range(1, 20), strict=True)
    ]
    assert sorted(number for one in ranges for number in one) == list(range(1, 191))
    await numbers.close()


async def test_no_numbers_are_given_where_none_are_configured() -> None:
    numbers = NoGlobalNumbers()
    assert await numbers.take(5) is None
    await numbers.close()
