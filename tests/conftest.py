"""What every test may ask for, and two rules for all of them.

No test is skipped: a service that is missing is a failure that says what to install. And generated
cases have no deadline, because a busy machine is no bug; where CI runs they are the same each time,
so that a change is judged by what it changed. `HYPOTHESIS_PROFILE=thorough` looks much longer.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from tests.services.postgres import PostgresServer
from tests.temporary_files import keep_in_memory, leave_behind

settings.register_profile(
    "local",
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "ci", settings.get_profile("local"), derandomize=True, print_blob=True, database=None
)
settings.register_profile("thorough", settings.get_profile("local"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "local"))

# A shell that runs this in the background has it ignore Ctrl-C, and with it all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

R = TypeVar("R", pytest.TestReport, pytest.CollectReport)

NO_SKIP = "this test was skipped, and here a test passes or fails: "


def pytest_configure(config: pytest.Config) -> None:
    # A process of several is told by the one that starts it.
    if not hasattr(config, "workerinput"):
        keep_in_memory()


def pytest_sessionfinish(exitstatus: int) -> None:
    if exitstatus != pytest.ExitCode.OK:
        leave_behind()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    return _failed_if_skipped(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    return _failed_if_skipped(report)


def _failed_if_skipped(report: R) -> R:
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{NO_SKIP}{reason}"
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Who runs which file, where several processes of pytest run at once."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.scheduling import FewJavas

    return FewJavas(config, log)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server that tests share. One that stops it must start it again."""
    with PostgresServer(durable=False) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """A database of this test's own, empty."""
    postgres.start()
    url = postgres.create_database()
    yield url
    postgres.start()
    postgres.drop_database(url)


@pytest.fixture(scope="session")
def _second_server() -> Iterator[PostgresServer]:
    with PostgresServer(durable=False) as server:
        yield server


@pytest.fixture
def second_postgres(_second_server: PostgresServer) -> PostgresServer:
    """Another server, running when the test begins, for it to take away as it likes."""
    _second_server.start()
    return _second_server
