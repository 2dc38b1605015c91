"""An import that is killed at any point is finished by running it again: the same ledger."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.crash.history import History, violations
from tests.crash.reading import SQLITE_SCHEME, read_history
from tests.services.nursery import run
from tidemark.config.sample import sample_text
from tidemark.ledger.importer import EVENTS_TOGETHER

IMPORT_POINTS: Final = ("import.before_commit", "import.after_commit", "ledger.before_commit")
# Two commits are written in one transaction, a third would be too much for it.
EVENTS_PER_COMMIT: Final = EVENTS_TOGETHER * 2 // 5
COMMITS: Final = 6
EVENTS: Final = COMMITS * EVENTS_PER_COMMIT


@pytest.fixture(scope="module")
def history_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events of several moments, in no order."""
    events = [
        {
            "tenantId": "acme",
            "metric": "api_calls",
            "customerRef": f"mark-{number}",
            "ts": f"2024-12-31T00:00:{number % 60:02}Z",
            "quantity": "1",
            "receivedAt": f"2025-01-01T00:00:{number % COMMITS:02}Z",
        }
        for number in range(EVENTS)
    ]
    random.Random(1).shuffle(events)
    path = tmp_path_factory.mktemp("import") / "history.jsonl"
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return path


@pytest.fixture(scope="module")
def undisturbed(history_file: Path) -> History:
    """The ledger that an import makes that nobody kills."""
    ledger_url = f"{SQLITE_SCHEME}{history_file.with_name('undisturbed.db')}"
    assert_imported(run_import(history_file, ledger_url))
    return asyncio.run(read_sound(ledger_url))


def run_import(
    history_file: Path, ledger_url: str, crash_at: str | None = None
) -> subprocess.CompletedProcess[str]:
    config = history_file.with_name("tidemark.yaml")
    config.write_text(sample_text())
    environment = {n: v for n, v in os.environ.items() if not n.startswith("TIDEMARK_")}
    environment |= {"TIDEMARK_LEDGER__URL": ledger_url, "TIDEMARK_LEDGER__SALT": "the same salt"}
    if crash_at is not None:
        environment["TIDEMARK_CRASH_AT"] = crash_at
    arguments = ["-m", "tidemark", "import", str(history_file), "--config", str(config)]
    return run(arguments, env=environment)


def assert_imported(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout


async def read_sound(ledger_url: str) -> History:
    history = await read_history(ledger_url)
    assert violations(history) == []
    return history


@pytest.mark.parametrize("point", IMPORT_POINTS)
async def test_an_import_killed_at_a_point_goes_on_and_ends_as_if_it_had_not_been(
    ledger_url: str, point: str, history_file: Path, undisturbed: History
) -> None:
    killed = run_import(history_file, ledger_url, crash_at=f"{point}:2")
    assert killed.returncode == -signal.SIGKILL, killed.stdout
    begun = await read_sound(ledger_url)
    assert len(begun.commits) == (4 if point == "import.after_commit" else 2)
    assert_imported(run_import(history_file, ledger_url))
    finished = await read_sound(ledger_url)
    assert finished.commits[: len(begun.commits)] == begun.commits
    assert (len(finished.events), len(finished.commits)) == (EVENTS, COMMITS)
    assert finished == undisturbed


async def test_an_import_that_is_run_once_more_changes_nothing(
    ledger_url: str, history_file: Path
) -> None:
    assert_imported(run_import(history_file, ledger_url))
    once = await read_sound(ledger_url)
    assert_imported(run_import(history_file, ledger_url))
    assert await read_sound(ledger_url) == once
