"""A real PostgreSQL server for tests and benchmarks, driven by its own binaries.

It runs as an ordinary user (PostgreSQL refuses root), listens on 127.0.0.1 only, and is gone with
its data when the test process is, however that ends. Servers may run side by side.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

import asyncpg

from tests.services.ports import free_port
from tests.services.postgres_binaries import copy_of_wheel, find_binaries
from tests.services.processes import children_of, is_running

StopMode = Literal["smart", "fast", "immediate"]
T = TypeVar("T")

USER = "tidemark"
STARTED_WITHIN_S = 60.0
STOPPED_WITHIN_S = 60.0
POLL_S = 0.01

STOP_SIGNALS: Mapping[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}

# Held by a shell that outlives a killed test process: when the pipe closes, it ends the server and
# removes the data. `postmaster.pid` is read then, because a restart changes it.
WATCH = """
read -r done && exit 0
kill -QUIT "$(head -n 1 "$1/data/postmaster.pid")" 2>/dev/null && sleep 1
rm -rf "$1"
"""


class PostgresFailed(Exception):
    """The server did not do as told; the message holds the end of its log."""


class PostgresServer:
    """One cluster in a directory of its own.

    `durable=False` leaves out the flush to disk: nothing is lost when the server is stopped or
    killed, only when the machine is, and no test pulls that plug. Benchmarks keep it on.
    `settings` are server settings that win over those set here.
    """

    def __init__(
        self,
        *,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
        directory: Path | None = None,
        binaries: Path | None = None,
    ) -> None:
        self._owner = os.getpid()  # a forked copy of the test process must not end the server
        self._account = _unprivileged_account()
        self._home = self._make_home(directory)
        self._data = self._home / "data"
        self._log = self._home / "server.log"
        self._password = secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "timezone": "UTC",
            "jit": "off",
            **({} if durable else {"fsync": "off", "full_page_writes": "off"}),
            **(settings or {}),
        }
        self._watch: subprocess.Popen[bytes] | None = self._start_watch()
        atexit.register(self.close)
        self.port = free_port()
        try:
            self._binaries = self._within_reach(binaries or find_binaries())
            self._initialise()
        except BaseException:
            self.close()
            raise

    # What a test says about the server.

    def start(self) -> None:
        """Returns when connections are accepted. A running server is left as it is."""
        if self.is_running:
            return
        command = [str(self._binaries / "postgres"), "-D", str(self._data)]
        for name, value in {**self._settings, "port": str(self.port)}.items():
            command += ["-c", f"{name}={value}"]
        with self._log.open("ab") as log:
            self._process = self._spawn(command, log)
        deadline = time.monotonic() + STARTED_WITHIN_S
        while not self._accepts_connections(self._process.pid):
            if self._process.poll() is not None:
                raise PostgresFailed(f"PostgreSQL did not start:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise PostgresFailed(f"PostgreSQL is not ready in time:\n{self.log_tail()}")
            time.sleep(POLL_S)

    def stop(self, mode: StopMode = "fast") -> None:
        """`fast` ends sessions in order; `immediate` is a crash that the next start recovers."""
        if self._process is None:
            return
        self._process.send_signal(STOP_SIGNALS[mode])
        try:
            self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PostgresFailed(f"PostgreSQL did not stop ({mode}):\n{self.log_tail()}") from None
        self._process = None

    def restart(self, mode: StopMode = "fast") -> None:
        """Stops and starts on the same port."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """SIGKILL to the server and every process of it, all at once."""
        if self._process is None or self._process.poll() is not None:
            self._process = None
            return
        # Frozen first, so that no child is born between the listing and the killing. Each child is
        # a session of its own, out of reach of a signal to the server's group.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGSTOP)
        family = [*children_of(self._process.pid), self._process.pid]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(STOPPED_WITHIN_S)
        self._process = None
        deadline = time.monotonic() + STOPPED_WITHIN_S
        while any(is_running(pid) for pid in family) and time.monotonic() < deadline:
            time.sleep(POLL_S)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def url(self, dbname: str = "postgres") -> str:
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self.port}/{dbname}"

    def create_database(self, template: str = "template0") -> str:
        """The URL of a database that nothing else uses, empty unless a template is named."""
        self._databases += 1
        name = f"test_{self._databases}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Ends the sessions of a database and removes it."""
        name = urlsplit(url).path.removeprefix("/")
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(self, sql: str, dbname: str = "postgres") -> list[tuple[Any, ...]]:
        """Runs one statement in a connection of its own, also from inside a running event loop."""

        async def run() -> list[tuple[Any, ...]]:
            connection = await asyncpg.connect(self.url(dbname))
            try:
                return [tuple(row) for row in await connection.fetch(sql)]
            finally:
                await connection.close()

        return _in_a_thread(run())

    @contextlib.contextmanager
    def held(self, url: str, sql: str) -> Iterator[None]:
        """Keeps what a statement locks until the block is left, from a connection of its own."""
        locked = threading.Event()
        release = threading.Event()

        async def hold() -> None:
            connection = await asyncpg.connect(url)
            try:
                async with connection.transaction():
                    await connection.execute(sql)
                    locked.set()
                    await asyncio.to_thread(release.wait)
            finally:
                await connection.close()

        with ThreadPoolExecutor(max_workers=1) as executor:
            holding = executor.submit(asyncio.run, hold())
            try:
                while not locked.wait(POLL_S):
                    if holding.done():
                        holding.result()
                yield
            finally:
                release.set()
                holding.result()

    def log_tail(self, lines: int = 20) -> str:
        """The end of the server's log, for messages."""
        if not self._log.exists():
            return ""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def close(self) -> None:
        """Ends the server and removes its data. A second call does nothing."""
        atexit.unregister(self.close)
        if self._watch is None or self._owner != os.getpid():
            return
        try:
            if self._process is not None:
                self.stop("immediate")
        finally:
            shutil.rmtree(self._home, ignore_errors=True)
            self._watch.communicate(b"done\n")
            self._watch = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # How it is done.

    def _make_home(self, directory: Path | None) -> Path:
        """A directory that the account can reach, which root's temporary one may not be."""
        places = [directory] if directory else [Path(tempfile.gettempdir()), *_COMMON_TEMPORARY]
        for place in places:
            home = Path(tempfile.mkdtemp(prefix="tidemark-postgres-", dir=place))
            if self._account is None:
                return home
            os.chown(home, self._account.pw_uid, self._account.pw_gid)
            reach = self._run(["/bin/sh", "-c", 'test -w "$1"', "sh", str(home)], home)
            if reach.returncode == 0:
                return home
            home.rmdir()
        raise PostgresFailed(
            f"user {self._account.pw_name if self._account else USER!r} cannot reach any of"
            f" {', '.join(map(str, places))}; name a temporary directory with TMPDIR"
        )

    def _within_reach(self, binaries: Path) -> Path:
        """The binaries, or a copy of them where the account cannot reach into the checkout."""
        if self._account is None:
            return binaries
        with contextlib.suppress(PermissionError):
            if self._run([str(binaries / "postgres"), "--version"]).returncode == 0:
                return binaries
        return copy_of_wheel(binaries, self._home / "postgresql")

    def _initialise(self) -> None:
        password_file = self._home / "password"
        password_file.write_text(self._password)
        if self._account is not None:
            os.chown(password_file, self._account.pw_uid, self._account.pw_gid)
        made = self._run(
            [
                str(self._binaries / "initdb"),
                f"--pgdata={self._data}",
                f"--username={USER}",
                f"--pwfile={password_file}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
                "--no-instructions",
            ]
        )
        if made.returncode != 0:
            raise PostgresFailed(f"initdb failed:\n{made.stdout}{made.stderr}")

    def _accepts_connections(self, pid: int) -> bool:
        # The same that pg_ctl looks at: the first line is the process, the eighth its state.
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"

    def _start_watch(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/sh", "-c", WATCH, "sh", str(self._home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _spawn(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C in the terminal is for the tests, which then stop the server.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=self._home,
            env=self._environment(),
            **self._identity(),
        )

    def _run(self, command: list[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd or self._home,
            env=self._environment(),
            **self._identity(),
        )

    def _identity(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}

    @staticmethod
    def _environment() -> dict[str, str]:
        # PG* variables of whoever runs the tests must not steer this server.
        return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


_COMMON_TEMPORARY = (Path("/tmp"), Path("/var/tmp"))


def _unprivileged_account() -> pwd.struct_passwd | None:
    """Who runs the server instead of root; None when the tests are run by an ordinary user."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresFailed("root cannot run PostgreSQL, and there is no user 'postgres' or 'nobody'")


def _in_a_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(asyncio.run, coroutine).result()
