"""A backup is whole, or the directory is as it was."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tidemark.app import backup
from tidemark.app.backup import BackupRefused, take_backup
from tidemark.config import Config, load_config
from tidemark.ledger import sqlite_migrate
from tidemark.ledger.opening import sqlite_path
from tidemark.views import sqlite as views
from tidemark.views.opening import views_place


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "tidemark.yaml").touch()
    config = load_config(tmp_path / "tidemark.yaml", {})
    ledger, live = sqlite_path(config), views_place(config)
    assert ledger is not None
    assert isinstance(live, Path)
    views.migrate(live)
    sqlite_migrate.migrate(ledger)
    return config


def test_all_that_is_in_files_is_copied(config: Config, tmp_path: Path) -> None:
    taken = take_backup(config, tmp_path / "backup", threading.Event())
    assert [copied.file for copied in taken.copied] == ["views.db", "ledger.db"]
    assert {file.name for file in (tmp_path / "backup").iterdir()} == {"views.db", "ledger.db"}


def test_one_that_is_told_to_stop_leaves_nothing(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "_STEPS_AT_ONCE", 1)
    stop = threading.Event()
    begun: list[str] = []

    def on_store(store: str) -> None:
        begun.append(store)
        if len(begun) == 2:
            stop.set()

    with pytest.raises(BackupRefused, match="interrupted"):
        take_backup(config, tmp_path / "backup", stop, on_store=on_store)
    assert begun == ["views", "ledger"]
    assert list((tmp_path / "backup").iterdir()) == []


def test_one_that_fails_leaves_nothing_and_can_be_taken_again(
    config: Config, tmp_path: Path
) -> None:
    ledger = sqlite_path(config)
    assert ledger is not None
    content = ledger.read_bytes()
    ledger.write_bytes(b"no database" * 1_000)
    for suffix in ("-wal", "-shm"):
        ledger.with_name(ledger.name + suffix).unlink(missing_ok=True)
    with pytest.raises(BackupRefused, match=r"ledger.db cannot be copied to .*not a database"):
        take_backup(config, tmp_path / "backup", threading.Event())
    assert list((tmp_path / "backup").iterdir()) == []
    ledger.write_bytes(content)
    take_backup(config, tmp_path / "backup", threading.Event())
