"""Files that use a shared service go to few processes, and nothing is left out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import scheduling
from tests.scheduling import PROCESSES, SHARED_BROKER, SHARED_SESSION, FewJavas, service_of


class Process:
    """A process of pytest, which runs what it is told, one test after the other."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.told: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        assert not self.shutting_down
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def distributed(files: Sequence[str], processes: int, tests: int = 5) -> list[list[str]]:
    """The files that each process has run, in order."""
    collection = [f"{file}::test_{number}" for file in files for number in range(tests)]
    config: Any = SimpleNamespace(
        getvalue=lambda name: [f"{processes}*popen"],
        option=SimpleNamespace(loadscopereorder=False),
    )
    scheduler = FewJavas(config)
    nodes: list[Any] = [Process(f"gw{number}") for number in range(processes)]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, collection)
    scheduler.schedule()
    run: dict[Any, list[int]] = {node: [] for node in nodes}
    # A process runs its last test only when it knows what comes next, or that nothing does.
    while ready := [
        node for node in nodes if len(node.told) - len(run[node]) > (0 if node.shutting_down else 1)
    ]:
        for node in ready:
            test = node.told[len(run[node])]
            run[node].append(test)
            scheduler.mark_test_complete(node, test)
    assert sorted(itertools.chain.from_iterable(run.values())) == list(range(len(collection)))
    assert all(node.shutting_down for node in nodes)
    assert scheduler.tests_finished
    return [
        list(dict.fromkeys(files[test // tests] for test in tests_of)) for tests_of in run.values()
    ]


SERVICES = {"spark": SHARED_SESSION, "kafka": SHARED_BROKER}


def kind_of(file: str) -> str:
    return file.partition("-")[0]


@pytest.fixture
def by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "service_of", lambda file: SERVICES.get(kind_of(file)))


@pytest.mark.usefixtures("by_name")
@pytest.mark.parametrize("processes", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("spark", "kafka", "others"),
    [(6, 3, 9), (6, 0, 9), (1, 1, 9), (9, 4, 1), (5, 1, 0), (0, 3, 0), (0, 0, 5)],
)
def test_every_file_is_run_once_and_few_processes_use_a_service(
    processes: int, spark: int, kafka: int, others: int
) -> None:
    files = [f"other-{number}" for number in range(others)]
    files += [f"spark-{number}" for number in range(spark)]
    files += [f"kafka-{number}" for number in range(kafka)]
    run = distributed(files, processes)
    assert sorted(itertools.chain.from_iterable(run)) == sorted(files)
    for name, service in SERVICES.items():
        using = [taken for taken in run if any(kind_of(file) == name for file in taken)]
        assert len(using) <= PROCESSES[service]
    for taken in run:
        # What takes longest comes first.
        assert taken == sorted(taken, key=lambda file: kind_of(file) == "other")


@pytest.mark.parametrize(
    "file",
    [
        pytest.param("contract/test_ledger_source.py", id="itself"),
        pytest.param("integration/test_http_explain.py", id="what it imports"),
        pytest.param("acceptance/test_cli_verify.py", id="the program in this process"),
    ],
)
def test_a_file_that_uses_the_session_is_known_by_what_it_imports(file: str) -> None:
    assert service_of(f"tests/{file}") == SHARED_SESSION


@pytest.mark.parametrize(
    "file",
    [
        pytest.param("crash/test_pipeline_crash.py", id="processes of its own"),
        pytest.param("integration/test_http_health.py", id="no Spark"),
    ],
)
def test_a_file_without_one_is_for_everybody(file: str) -> None:
    assert service_of(f"tests/{file}") is None


def test_of_two_services_the_broker_decides() -> None:
    assert service_of("tests/contract/test_mirror.py") == SHARED_BROKER


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("tests/test_some.py", "from tests.services.spark import shared_session"),
        ("tests/test_some.py", "from tests.services import spark"),
        ("tests/test_some.py", "def test_it():\n    import tests.services.spark"),
        ("tests/test_some.py", "import tests.helper"),
        ("tests/test_some.py", "pytest_plugins = ('tests.helper',)"),
        ("tests/conftest.py", "from tests.helper import spark"),
    ],
)
def test_every_way_to_the_session_is_found(
    place: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = tmp_path / "tests" / "services" / "spark.py"
    monkeypatch.setattr(scheduling, "ROOT", tmp_path)
    monkeypatch.setattr(scheduling, "PROCESSES", {session: 1})
    session.parent.mkdir(parents=True)
    session.touch()
    (tmp_path / "tests" / "helper.py").write_text("from tests.services.spark import shared_session")
    (tmp_path / "tests" / "test_some.py").touch()
    assert service_of.__wrapped__("tests/test_some.py") is None
    scheduling._loaded_by.cache_clear()
    (tmp_path / place).write_text(text)
    assert service_of.__wrapped__("tests/test_some.py") == session
