"""One Spark session for a process: started with our options, stopped with its Java process.

Everything Spark writes by itself is under `spark` in the state directory: its log, and scratch
space that is removed with the session or, after a crash, by the next one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from py4j.protocol import Py4JError
from pyspark import SparkContext, accumulators
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import tidemark
from tidemark.ledger.sqlite_connection import make_private_directory
from tidemark.pipeline.errors import SparkUnavailable
from tidemark.pipeline.gateway import Gateway, start_gateway
from tidemark.pipeline.java import find_java
from tidemark.pipeline.known_classes import remember_classes
from tidemark.pipeline.session_options import (
    OptionValue,
    SparkSettings,
    is_local,
    session_options,
)

_WORKER_PYTHON = "spark.pyspark.python"


def _unheard(self: object, request: object, client_address: object) -> None:
    """In place of a traceback when Java is gone, which is told by those who miss it."""


accumulators.AccumulatorTCPServer.handle_error = _unheard  # type: ignore[method-assign]


@dataclass
class _Running:
    session: SparkSession
    gateway: Gateway
    scratch: Path
    lock: IO[bytes]
    asked: tuple[str, dict[str, OptionValue]]


_running: _Running | None = None
_starting = threading.Lock()


def start_session(
    config: SparkSettings,
    *,
    state_dir: Path,
    app_name: str = "tidemark",
) -> SparkSession:
    """The session of this process, started if it is not there yet.

    Asking again for the same master and options gives the same session; asking for others is
    refused with `SparkUnavailable`.
    """
    global _running
    with _starting:
        asked = (config.master, dict(config.options))
        if _running is not None:
            if _running.asked != asked:
                raise SparkUnavailable(
                    "a Spark session with other options is running in this process",
                    hint="Stop it first: a process has one session.",
                )
            return _running.session
        home = _writable(state_dir.absolute() / "spark")
        _remove_left_behind(home / "scratch")
        lock, scratch = _make_scratch(home / "scratch")
        try:
            options = session_options(config, scratch=scratch, warehouse=home / "warehouse")
            options["spark.app.name"] = app_name
            java = find_java(config.java_home)
            os.environ["PYSPARK_PYTHON"] = options.get(_WORKER_PYTHON, sys.executable)
            gateway = start_gateway(java, options, log_dir=home)
            try:
                session = _open_session(gateway, options, home)
            except BaseException:
                _forget_gateway()
                gateway.stop()
                raise
        except BaseException:
            _remove_scratch(lock, scratch)
            raise
        _running = _Running(session, gateway, scratch, lock, asked)
        return session


def stop_session() -> None:
    """Stop the session of this process, if there is one, and its Java with it."""
    global _running
    with _starting:
        if _running is None:
            return
        running, _running = _running, None
        # Java may be gone already; then there is nothing left to stop in it.
        with suppress(Py4JError, PySparkException, OSError), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            running.session.stop()
        _forget_gateway()
        running.gateway.stop()
        _remove_scratch(running.lock, running.scratch)


def _open_session(gateway: Gateway, options: dict[str, str], home: Path) -> SparkSession:
    builder = SparkSession.builder
    for name, value in options.items():
        builder = builder.config(name, value)
    try:
        with gateway.offered(), _own_signals():
            session = builder.getOrCreate()
        _know_no_other_sources(session)
        remember_classes(session)
        if not is_local(options["spark.master"]):
            session.sparkContext.addPyFile(str(_packed(home)))
    except (Py4JError, PySparkException, OSError) as error:
        raise SparkUnavailable(
            f"Spark did not start on {options['spark.master']}: {_first_line(error)}",
            hint=f"Look at spark.master and spark.options; Spark's log is {home / 'spark.log'}.",
            field="spark",
        ) from error
    return session


def _know_no_other_sources(session: SparkSession) -> None:
    """Else Spark starts two Python processes to look for data sources in other packages, and waits
    some two seconds for them. Ours are registered; where this has changed, Spark looks."""
    java: Any = session._jvm
    with suppress(Py4JError, AttributeError, TypeError):
        manager, empty = (
            java.java.lang.Class.forName(name).getField("MODULE$").get(None)
            for name in (
                "org.apache.spark.sql.execution.datasources.DataSourceManager$",
                "scala.collection.immutable.Map$EmptyMap$",
            )
        )
        getattr(manager, "dataSourceBuilders_$eq")(java.scala.Option.apply(empty))


@contextmanager
def _own_signals() -> Iterator[None]:
    """PySpark takes Ctrl-C for itself; who runs the process decides what it means."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _forget_gateway() -> None:
    """Else PySpark would talk to the Java that is gone."""
    gateway = SparkContext._gateway
    SparkContext._gateway = None
    SparkContext._jvm = None
    # A session whose Java died does not get as far as to forget itself.
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()


def _first_line(error: Exception) -> str:
    """Java puts its own message after the name of the call that failed."""
    java_exception = getattr(error, "java_exception", None)
    said = str(java_exception if java_exception is not None else error).strip()
    return said.splitlines()[0] if said else type(error).__name__


def _packed(home: Path) -> Path:
    """This version of Tidemark as one file, for the workers of a cluster."""
    package = Path(tidemark.__file__).parent
    packed = home / "tidemark.zip"
    aside = packed.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(package.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, Path(package.name) / file.relative_to(package))
    return aside.replace(packed)


def _writable(home: Path) -> Path:
    try:
        make_private_directory(home)
        make_private_directory(home / "scratch")
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        raise SparkUnavailable(
            f"Spark cannot write to {home}: {error.strerror}",
            hint="Set state_dir (TIDEMARK_STATE_DIR) to a directory this user may write to.",
            field="state_dir",
        ) from error
    return home


def _make_scratch(parent: Path) -> tuple[IO[bytes], Path]:
    """A directory whose lock says, for as long as this process lives, that it is in use."""
    name = f"{os.getpid()}-{os.urandom(4).hex()}"
    lock = (parent / f"{name}.lock").open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    scratch = parent / name
    make_private_directory(scratch)
    return lock, scratch


def _remove_scratch(lock: IO[bytes], scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    Path(lock.name).unlink(missing_ok=True)
    lock.close()


def _remove_left_behind(parent: Path) -> None:
    for left in parent.glob("*.lock"):
        with suppress(OSError), left.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left.with_suffix(""), ignore_errors=True)
            left.unlink(missing_ok=True)
