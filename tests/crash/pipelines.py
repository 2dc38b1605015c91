"""Pipelines in processes of their own, and what they make of a ledger that others write."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from tests.services.processes import is_running

ROOT: Final = Path(__file__).resolve().parents[2]
COMMAND: Final = (sys.executable, "-m", "tests.crash.pipeline_child")
PATIENCE_S: Final = 300.0
JAVA_ENDS_WITHIN_S: Final = 30.0
# All that a batch has, in two lots that can be died at side by side.
SOME_POINTS: Final = ("pipeline.batch_begun", "pipeline.ordered_written", "views.before_commit")
OTHER_POINTS: Final = ("pipeline.batch_folded", "views.after_commit", "pipeline.batch_committed")
# The most rows of a batch, by turns, so that what was given up is not cut the same way again.
_MAX_ROWS: Final = (14, 6, 11)


def job(
    settings: Mapping[str, Any],
    directory: Path,
    ledger_url: str,
    views_url: str,
    *,
    max_rows: int = 1_000_000,
    follow: bool = False,
    hold: Path | None = None,
) -> dict[str, Any]:
    """What a process is to do, with its state in this directory: to catch up, or to `follow`. Its
    tasks wait until there is a file `go` in the directory `hold`."""
    return {
        "settings": settings,
        "state_dir": str(directory),
        "ledger_url": ledger_url,
        "views_url": views_url,
        "max_rows": max_rows,
        "follow": follow,
        "hold": None if hold is None else str(hold),
    }


class PipelineProcess:
    """A process that does jobs one after the other, unless it dies before."""

    def __init__(
        self,
        jobs: Sequence[Mapping[str, Any]],
        crash_at: str | None = None,
        spark: Mapping[str, Any] | None = None,
    ) -> None:
        environ = {name: value for name, value in os.environ.items() if name != "TIDEMARK_CRASH_AT"}
        if crash_at is not None:
            environ["TIDEMARK_CRASH_AT"] = crash_at
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [*COMMAND, json.dumps(jobs), *([] if spark is None else [json.dumps(spark)])],
            cwd=ROOT,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._java_pid: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def started(self) -> None:
        """Waits until Spark runs."""
        self._java_pid = self._told()["java_pid"]

    def outcomes(self, count: int) -> list[Any]:
        """Waits until so many jobs are done."""
        return [self._told()["outcome"] for _ in range(count)]

    def killed_itself(self) -> None:
        """Waits until it is dead by its own hand, and Java with it."""
        code = self._process.wait(PATIENCE_S)
        assert code == -signal.SIGKILL, self.errors()
        self._await_java()

    def kill(self) -> None:
        """SIGKILL, wherever it is."""
        self._process.kill()
        self._process.wait()
        self._await_java()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def _await_java(self) -> None:
        deadline = time.monotonic() + JAVA_ENDS_WITHIN_S
        while self._java_pid is not None and is_running(self._java_pid):
            assert time.monotonic() < deadline, "Java is still there"
            time.sleep(0.02)

    def _told(self) -> dict[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], PATIENCE_S)
        line = stdout.readline() if ready else b""
        if not line:
            what = "has ended" if ready else f"has said nothing for {PATIENCE_S:.0f} s"
            raise AssertionError(f"the pipeline {what}: {self.errors()}")
        told: dict[str, Any] = json.loads(line)
        return told


def die_at_each(points: Sequence[str], work: Mapping[str, Any]) -> None:
    """Begins the job and dies at each of the points by turns. Spark takes seconds to start, so a
    process that goes on after a crash is the next to die."""
    for point, max_rows in zip(points, _MAX_ROWS, strict=True):
        cut = {**work, "max_rows": max_rows}
        # In its second batch: the first is where it goes on after the crash before.
        with PipelineProcess([cut], crash_at=f"{point}:2") as process:
            process.started()
            process.killed_itself()
