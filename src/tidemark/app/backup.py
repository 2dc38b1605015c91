"""A backup of everything that is in files, taken while it is used.

Each store is copied as of one moment, and those that follow another are copied before it: triggers,
then views, then the ledger. So whatever the copies hold is in the copy of what they follow, and a
restored Tidemark goes on from there; what was under way is folded, and sent, once more.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from tidemark.config import Config
from tidemark.errors import TidemarkError
from tidemark.ledger.opening import sqlite_path
from tidemark.ledger.sqlite_connection import (
    BUSY_TIMEOUT_S,
    connect_to_look,
    make_private_directory,
)
from tidemark.live.triggers.opening import triggers_place
from tidemark.views.opening import views_place

LEDGER: Final = "ledger"
VIEWS: Final = "views"
TRIGGERS: Final = "triggers"
_UNFINISHED: Final = ".part"
# So many steps of SQLite's take it some milliseconds.
_STEPS_AT_ONCE: Final = 100_000


class BackupRefused(TidemarkError):
    """There is nothing that could be backed up, or no place to put it."""

    code = "backup_refused"


class Copied(msgspec.Struct, frozen=True, rename="camel"):
    """One store: its file, and the last sequence that is in the copy, where it has sequences."""

    store: str
    file: str
    bytes: int
    last_sequence: int | None


class Backup(msgspec.Struct, frozen=True, rename="camel"):
    """What was copied, and what is on PostgreSQL, of which only PostgreSQL makes backups."""

    directory: str
    copied: list[Copied]
    elsewhere: list[str]


def take_backup(
    config: Config,
    directory: Path,
    stop: threading.Event,
    *,
    on_store: Callable[[str], None] = lambda store: None,
) -> Backup:
    """Copies every store that is a file. The directory must be new or empty.

    Raises `BackupRefused`, also when it is told to stop. Then the directory is empty.
    """
    places = _places(config)
    files = {store: place for store, place in places.items() if isinstance(place, Path)}
    if not files:
        raise BackupRefused(
            "every store is on PostgreSQL, which makes its backups itself",
            hint="`pg_dump` of the database has ledger, views and triggers as of one moment.",
        )
    if not files.get(LEDGER, Path()).exists() and LEDGER in files:
        raise BackupRefused(
            f"there is no ledger at {files[LEDGER]}",
            hint="Name the configuration of the ledger with -c.",
        )
    _require_empty(directory)
    copied = []
    try:
        for store, file in files.items():
            if file.exists():
                on_store(store)
                copied.append(_copy(store, file, directory / f"{store}.db", stop))
        _make_durable(directory)
    except BaseException:
        # Part of a backup is none, and would be in the way of the next.
        for store in files:
            for suffix in (".db", _UNFINISHED, f"{_UNFINISHED}-journal"):
                (directory / f"{store}{suffix}").unlink(missing_ok=True)
        raise
    return Backup(str(directory), copied, [store for store in places if store not in files])


def _places(config: Config) -> dict[str, Path | str]:
    """Those that follow another before it."""
    ledger = sqlite_path(config)
    if ledger is None:
        assert config.ledger.url is not None
    return {
        TRIGGERS: triggers_place(config),
        VIEWS: views_place(config),
        LEDGER: ledger if ledger is not None else str(config.ledger.url),
    }


def _copy(store: str, source: Path, target: Path, stop: threading.Event) -> Copied:
    aside = target.with_suffix(_UNFINISHED)
    address = f"file:{quote(str(source.absolute()))}?mode=rw"
    with (
        _refused(f"{source} cannot be copied to {target}"),
        closing(sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S)) as connection,
    ):
        connection.set_progress_handler(lambda: int(stop.is_set()), _STEPS_AT_ONCE)
        # One statement, so one moment, and nobody who writes has to wait.
        connection.execute("VACUUM INTO ?", (str(aside),))
    with _refused(f"{target} cannot be written"):
        aside.chmod(0o600)
        descriptor = os.open(aside, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        aside.rename(target)
        return Copied(store, target.name, target.stat().st_size, _last_sequence(store, target))


def _last_sequence(store: str, copy: Path) -> int | None:
    """From the copy itself: what can be read of it is in it."""
    queries = {
        LEDGER: "SELECT coalesce(max(last_sequence), 0) FROM commits",
        VIEWS: "SELECT ingress_sequence FROM frontier",
    }
    if store not in queries:
        return None
    with closing(connect_to_look(copy)) as connection:
        [(sequence,)] = connection.execute(queries[store]).fetchall()
    return int(sequence)


def _require_empty(directory: Path) -> None:
    with _refused(f"{directory} cannot be written"):
        make_private_directory(directory)
        if any(directory.iterdir()):
            raise BackupRefused(
                f"{directory} is not empty",
                hint="Name a directory that is new: two backups in one would be neither.",
                field="directory",
            )


def _make_durable(directory: Path) -> None:
    with _refused(f"{directory} cannot be written"):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _refused(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise BackupRefused(
            f"{what}: {said}",
            hint="Look at the disk and at who may write there; then take the backup again, into a"
            " directory that is empty.",
            field="directory",
        ) from error
