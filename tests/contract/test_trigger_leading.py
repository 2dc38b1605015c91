"""One process at a time leads, and a store that is away is an error to retry."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from tests.contract.events import START
from tests.contract.triggers_home import (
    Triggers,
    TriggersHome,
    claimed,
    enqueue,
    event,
    ids,
    new_trigger,
)
from tests.services.postgres import PostgresServer
from tidemark.config import load_config
from tidemark.errors import TidemarkError
from tidemark.ledger import sqlite_connection
from tidemark.live.errors import TriggersUnavailable
from tidemark.live.triggers import leading, postgres, store
from tidemark.live.triggers.leading import while_leading
from tidemark.live.triggers.opening import migrate_triggers, open_triggers, triggers_place
from tidemark.live.triggers.port import LeaderReport, Leadership
from tidemark.live.triggers.sqlite import SqliteTriggers

pytest_plugins = ("tests.contract.triggers_fixtures",)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LEADER_POLL_S", 0.02)
    monkeypatch.setattr(leading, "RETRY_S", 0.02)


async def test_the_next_leads_when_the_first_is_done(triggers_home: TriggersHome) -> None:
    one, two = await triggers_home.open(), await triggers_home.open()
    order = []

    async def lead(name: str, triggers: Triggers) -> None:
        async with triggers.lead() as leadership:
            order.append(f"{name} begins")
            await asyncio.sleep(0.2)
            assert not leadership.lost.is_set()
            order.append(f"{name} ends")

    await asyncio.gather(lead("one", one), lead("two", two))
    assert order[0].split()[0] == order[1].split()[0]
    assert order[2].split()[0] == order[3].split()[0]


async def test_what_a_dead_leader_was_delivering_is_due_again(triggers_home: TriggersHome) -> None:
    first = await triggers_home.open()
    trigger = await first.add(new_trigger(), 0, START)
    async with first.lead():
        await enqueue(first, trigger, event("a1"), event("a2"))
        assert ids(await claimed(first)) == ["a1"]
    second = await triggers_home.reopen()
    async with second.lead():
        [again] = await claimed(second)
        assert (again.event_id, again.attempts) == ("a1", 0)


async def test_a_killed_process_leads_no_more(triggers_home: TriggersHome) -> None:
    triggers = await triggers_home.open()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.contract.trigger_leader",
        triggers_home.url,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"leads\n"

    async def lead() -> None:
        async with triggers.lead():
            pass

    waiting = asyncio.create_task(lead())
    await asyncio.sleep(0.2)
    assert not waiting.done()
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    await asyncio.wait_for(waiting, 20)


async def test_a_leader_whose_session_is_ended_notices(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LEADER_CHECK_S", 0.05)
    home = TriggersHome(postgres_url)
    triggers, other = await home.open(), await home.open()
    begun: asyncio.Queue[str] = asyncio.Queue()

    async def work() -> None:
        await begun.put("begun")
        await asyncio.Event().wait()

    working = asyncio.create_task(while_leading(triggers, work))
    await begun.get()
    await _end_leaders(postgres_url)
    # It begins again, because nobody else wants to lead.
    await asyncio.wait_for(begun.get(), 20)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    async with other.lead() as leadership:
        assert isinstance(leadership, Leadership)
        await _end_leaders(postgres_url)
        await asyncio.wait_for(leadership.lost.wait(), 20)
    await home.close()


async def test_work_that_fails_is_not_hidden_and_work_that_ends_is_over(
    triggers: Triggers,
) -> None:
    async def fail() -> None:
        raise ValueError("a bug")

    async def end() -> None:
        pass

    with pytest.raises(ValueError, match="a bug"):
        await while_leading(triggers, fail)
    await asyncio.wait_for(while_leading(triggers, end), 20)


async def test_work_is_begun_again_when_the_store_was_away(triggers: Triggers) -> None:
    attempts = []

    async def work() -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise TriggersUnavailable("away")

    await asyncio.wait_for(while_leading(triggers, work), 20)
    assert len(attempts) == 3


async def test_a_locked_file_can_be_read_and_is_written_once_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_TIMEOUT_S", 0.2)
    triggers = await SqliteTriggers.open(tmp_path / "triggers.db")
    made = await triggers.add(new_trigger(), 0, START)
    with closing(sqlite3.connect(tmp_path / "triggers.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TriggersUnavailable, match="locked"):
            await triggers.remove("hot")
        assert await triggers.listed() == [made]
    assert await triggers.remove("hot") == made
    await triggers.close()


async def test_the_store_works_again_when_postgres_is_back(second_postgres: PostgresServer) -> None:
    home = TriggersHome(second_postgres.create_database())
    triggers = await home.open()
    made = await triggers.add(new_trigger(), 0, START)
    second_postgres.stop("immediate")
    for ask in (triggers.listed(), triggers.remove("hot"), triggers.claim(START, 1, 1, ())):
        with pytest.raises(TriggersUnavailable) as caught:
            await ask
        assert caught.value.hint
    with pytest.raises(TriggersUnavailable):
        await home.open()
    with pytest.raises(TriggersUnavailable):
        async with triggers.lead():
            pass
    second_postgres.start()
    assert await triggers.listed() == [made]
    await home.close()


async def test_what_the_leader_told_last_is_what_all_are_told(triggers_home: TriggersHome) -> None:
    leader, other = await triggers_home.open(), await triggers_home.open()
    assert await other.told() is None
    trouble = TidemarkError("no \0 secret \udc80", hint="Make one.", code="unsigned")
    await leader.tell(LeaderReport(START, trouble))
    told = await other.told()
    assert told is not None
    assert told.told_at == START
    assert told.trouble is not None
    assert told.trouble.as_dict() == {
        "code": "unsigned", "message": "no  secret ?", "hint": "Make one."
    }  # fmt: skip
    await leader.tell(LeaderReport(START + 1))
    assert await other.told() == LeaderReport(START + 1)


async def test_triggers_are_kept_beside_the_ledger(tmp_path: Path, postgres_url: str) -> None:
    state_dir = {"TIDEMARK_STATE_DIR": str(tmp_path / "state")}
    embedded = load_config(None, state_dir)
    shared = load_config(None, state_dir | {"TIDEMARK_LEDGER__URL": postgres_url})
    assert triggers_place(embedded) == tmp_path / "state" / "triggers.db"
    assert triggers_place(shared) == postgres_url
    elsewhere = {"TIDEMARK_TRIGGER_STORE__URL": f"sqlite:///{tmp_path}/t.db"}
    assert triggers_place(load_config(None, state_dir | elsewhere)) == tmp_path / "t.db"
    elsewhere = {"TIDEMARK_TRIGGER_STORE__URL": postgres_url}
    assert triggers_place(load_config(None, state_dir | elsewhere)) == postgres_url
    for config in (embedded, shared):
        assert await migrate_triggers(config, dry_run=True) != []
        opened = await open_triggers(config)
        assert await opened.listed() == []
        await opened.close()
        assert await migrate_triggers(config, dry_run=False) == []


async def test_triggers_that_cannot_be_made_say_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TriggersUnavailable):
        await SqliteTriggers.open(tmp_path / "file" / "triggers.db")


async def _end_leaders(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
    )
    await connection.close()
