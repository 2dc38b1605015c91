"""The way into ClickHouse: over HTTP to a server, or to the engine within this process (chDB).

Both take the same statements, so whoever uses a connection does not ask which of the two it is. The
packages are loaded only where somebody connects: the engine is large.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa

from tidemark.config.problems import redact
from tidemark.config.urls import CHDB_PREFIX
from tidemark.errors import ConfigError, TidemarkError
from tidemark.pipeline.files import Refusals, make_directory, refusals_told
from tidemark.pipeline.landing.errors import LandingRefused, LandingRunning, LandingUnavailable

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_LOCK: Final = "_landing.lock"
_REFUSALS: Final = Refusals(LandingRefused, LandingUnavailable)
_FIELD: Final = "landing.clickhouse.url"
# One insert is one part, at once: nothing is gathered by the server, and nothing that was once
# inserted is passed over.
_INSERT_SETTINGS: Final = {"async_insert": 0, "insert_deduplicate": 0}

# What ClickHouse refuses now and may grant later: time, memory, connections, disk, a restart, and a
# table that somebody altered while a block of it was put together.
_PASSING: Final = frozenset(
    (
        *(74, 75, 122, 159, 160, 202, 203, 209, 210, 236),
        *(241, 242, 243, 252, 319, 394, 425, 473, 517, 999),
    )
)
_BAD_CREDENTIALS: Final = (192, 193, 194, 516)
_UNKNOWN_DATABASE: Final = 81
_ACCESS_DENIED: Final = 497


class ClickHouse:
    """A connection for one thread. Every method may raise `LandingUnavailable`, when trying again
    may help, and `LandingRefused`."""

    def __init__(self, client: Client, place: str) -> None:
        self._client = client
        self._place = place

    def run(self, statement: str) -> None:
        with _refusals_told(self._place):
            self._client.command(statement)

    def rows(self, query: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        with _refusals_told(self._place):
            found = self._client.query(query, parameters=dict(values or {}))
            return [tuple(row) for row in found.result_rows]

    def insert(self, database: str, table: str, rows: pa.Table) -> None:
        """Returns when the rows are durable."""
        with _refusals_told(self._place):
            self._client.insert_arrow(table, rows, database=database, settings=_INSERT_SETTINGS)

    def stream(self, query: str) -> Iterator[pa.RecordBatch]:
        with _refusals_told(self._place), self._client.query_arrow_stream(query) as batches:
            yield from batches


@contextmanager
def connected(url: str, database: str) -> Iterator[ClickHouse]:
    """A connection to a database: on a server it must be there, with chDB it is made."""
    if url.startswith(CHDB_PREFIX):
        with _embedded(Path(url.removeprefix(CHDB_PREFIX))) as client:
            connection = ClickHouse(client, shown_place(url))
            connection.run(f"CREATE DATABASE IF NOT EXISTS {database}")
            yield connection
        return
    with _remote(url, database) as client:
        yield ClickHouse(client, shown_place(url))


def shown_place(url: str) -> str:
    """Where that is, as people may read it."""
    if url.startswith(CHDB_PREFIX):
        return f"in {url.removeprefix(CHDB_PREFIX)}"
    parsed = urlsplit(url)
    return f"at {parsed.scheme}://{parsed.netloc.rpartition('@')[2]}"


@contextmanager
def locked(path: Path, place: str) -> Iterator[None]:
    """Raises `LandingRunning` if another process has the lock; it goes with its process."""
    with refusals_told(path, _REFUSALS):
        make_directory(path.parent)
        lock = path.open("wb")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise running(f"events are landed {place} already") from error
        yield


def running(message: str) -> LandingRunning:
    return LandingRunning(message, hint="`tidemark up` does so too. Stop that process first.")


@contextmanager
def _remote(url: str, database: str) -> Iterator[Client]:
    get_client = _get_client("clickhouse")
    with _refusals_told(shown_place(url)):
        # The scheme is said again: from an address alone the library takes none, and would send
        # what is for `https` in the clear.
        client = get_client(
            dsn=url,
            interface=urlsplit(url).scheme,
            database=database,
            autogenerate_session_id=False,
        )
    try:
        yield client
    finally:
        client.close()


@contextmanager
def _embedded(path: Path) -> Iterator[Client]:
    """One process has a directory of chDB, whatever it does with it."""
    get_client = _get_client("chdb")
    from clickhouse_connect.driver.exceptions import Error

    with locked(path / _LOCK, f"in {path}"):
        try:
            client = get_client(interface="chdb", path=str(path))
        except Error as error:
            raise running(f"chDB cannot open {path}: {_first_line(error)}") from error
        try:
            yield client
        finally:
            client.close()


def _get_client(extra: str) -> Any:
    try:
        import clickhouse_connect

        if extra == "chdb":
            import chdb  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"landing in ClickHouse needs the package {error.name}, which is not installed",
            hint=f"Install Tidemark's extra `{extra}` (pip install '.[{extra}]' in a checkout).",
            field="landing.clickhouse.enabled",
        ) from error
    # What it warns of, our errors say.
    logging.getLogger("clickhouse_connect").setLevel(logging.ERROR)
    return clickhouse_connect.get_client


@contextmanager
def _refusals_told(place: str) -> Iterator[None]:
    from clickhouse_connect.driver.exceptions import ClickHouseError

    try:
        yield
    except ClickHouseError as error:
        raise _refusal(getattr(error, "code", None), error, place) from error


def _refusal(code: int | None, error: Exception, place: str) -> TidemarkError:
    if code is None:
        # Nobody answered, or somebody on the way.
        return LandingUnavailable(
            f"ClickHouse {place} does not answer: {_cause(error)}",
            hint="See that the server runs, and that landing.clickhouse.url is its address.",
            field=_FIELD,
        )
    message = f"ClickHouse {place} refuses it: {_exception(error)}"
    if code in _PASSING:
        hint = "See that it has time, memory and room on its disk."
        return LandingUnavailable(message, hint=hint, field=_FIELD)
    if code in _BAD_CREDENTIALS:
        hint = "Set the user and the password in landing.clickhouse.url."
    elif code == _UNKNOWN_DATABASE:
        hint = "Make that database there, or set landing.clickhouse.database to another one."
    elif code == _ACCESS_DENIED:
        hint = "Give the user the right to make, fill, alter and drop tables in that database."
    else:
        hint = "Landing needs a database in which it may have tables of its own."
    field = "landing.clickhouse.database" if code == _UNKNOWN_DATABASE else _FIELD
    return LandingRefused(message, hint=hint, field=field)


def _cause(error: BaseException) -> str:
    """What the system said, without all that was said about it."""
    last = error
    while last.__cause__ is not None:
        last = last.__cause__
    said = last.strerror if isinstance(last, OSError) else None
    return said or _first_line(error)


def _exception(error: BaseException) -> str:
    """What ClickHouse said, without what the library said about it."""
    line = _first_line(error)
    return line.partition("DB::Exception: ")[2].partition(" (for url ")[0] or line


def _first_line(error: BaseException) -> str:
    return redact((str(error).strip() or type(error).__name__).splitlines()[0])
