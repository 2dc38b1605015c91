"""Which process runs which test file, when several run at once.

A process that uses the shared Spark session or the shared Kafka starts a Java of its own, which is
slow until it is warm. So only two processes get files of each kind; they get them first, since
these take longest; all other files go to whoever is free, in their order. A file is run by one
process from its first test to its last.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

ROOT: Final = Path(__file__).parents[1]
SHARED_SESSION: Final = ROOT / "tests" / "services" / "spark.py"
SHARED_BROKER: Final = ROOT / "tests" / "services" / "kafka.py"
# How many processes may use each. A file that uses both is one of the first kind here.
PROCESSES: Final = {SHARED_BROKER: 2, SHARED_SESSION: 2}


class FewJavas(LoadFileScheduling):
    """As `--dist loadfile` does it, but for who gets a file that uses a shared service."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        file = self._next_file(node)
        if file is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        # There is work, but not for this one.
        if self.workqueue and not node.shutting_down and self._next_file(node) is None:
            node.shutdown()
        super()._reschedule(node)

    def _next_file(self, node: WorkerController) -> str | None:
        """The first file in the queue that this process should take."""
        first, later = [], []
        for file in self.workqueue:
            service = service_of(file)
            if service is None:
                later.append(file)
            elif self._may_use(node, service):
                first.append(file)
        candidates = first + later
        return candidates[0] if candidates else None

    def _may_use(self, node: WorkerController, service: Path) -> bool:
        users = [
            other
            for other, files in self.assigned_work.items()
            if any(service_of(file) == service for file in files)
        ]
        return node in users or len(users) < PROCESSES[service]


@cache
def service_of(file: str) -> Path | None:
    """The shared service that a test file, given by its path from the root, can use: of several the
    one that `PROCESSES` names first."""
    path = ROOT / file
    conftests = (folder / "conftest.py" for folder in path.relative_to(ROOT).parents)
    to_look_at = [path, *(ROOT / conftest for conftest in conftests)]
    seen: set[Path] = set()
    while to_look_at:
        looked_at = to_look_at.pop()
        if looked_at not in seen and looked_at.exists():
            seen.add(looked_at)
            to_look_at += _loaded_by(looked_at)
    return next((service for service in PROCESSES if service in seen), None)


@cache
def _loaded_by(path: Path) -> list[Path]:
    """The modules of the tests that a module names in its imports or as plugins."""
    names = _named_in(ast.parse(path.read_bytes()))
    return [
        ROOT.joinpath(*name.split(".")).with_suffix(".py")
        for name in names
        if name.startswith("tests.")
    ]


def _named_in(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(str(package), names):
                yield package
                yield from (f"{package}.{alias.name}" for alias in names)
            case ast.Assign([ast.Name("pytest_plugins")], ast.Tuple(plugins)):
                yield from (ast.literal_eval(plugin) for plugin in plugins)
