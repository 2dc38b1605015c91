"""The program `tidemark`, run in this process, with the Spark that the tests of it share.

To start Spark takes longer than all else that a command does in a test. So where its start is not
what is tested, a command finds it running; all but that is as in `cli_runs`.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import SparkSession

from tests.acceptance.cli_runs import Ran, environment
from tests.services.spark import shared_session
from tidemark.app import beside, pipeline
from tidemark.cli.program import run


def tidemark_on_spark(*args: object, cwd: Path, env: Mapping[str, str] | None = None) -> Ran:
    """Run a command to its end, in pipes."""
    out, err = _Pipe(), _Pipe()
    with _this_process_as(cwd, environment(env)), _running_spark(), ExitStack() as streams:
        for name, stream in (("stdout", out), ("stderr", err), ("stdin", io.StringIO())):
            streams.enter_context(patch.object(sys, name, stream))
        code = run([str(arg) for arg in args])
    ran = Ran(int(code), out.content(), err.content())
    assert "Traceback" not in ran.err, ran.err
    return ran


class _Pipe(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def content(self) -> str:
        self.seek(0)
        return self.read()


@contextmanager
def _running_spark() -> Iterator[None]:
    def start_session(*args: object, **options: object) -> SparkSession:
        return shared_session()

    with ExitStack() as patches:
        for module in (pipeline, beside):
            patches.enter_context(patch.object(module, "start_session", start_session))
            patches.enter_context(patch.object(module, "stop_session", lambda: None))
        yield


@contextmanager
def _this_process_as(cwd: Path, env: Mapping[str, str]) -> Iterator[None]:
    """What a command changes of its process is changed back."""
    before = Path.cwd()
    heard = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    root = logging.getLogger()
    filters, handlers = list(root.filters), list(root.handlers)
    levels = {name: logging.getLogger(name).level for name in ("py4j", "pyspark", "tidemark")}
    os.chdir(cwd)
    try:
        with (
            patch.dict(os.environ, env, clear=True),
            patch.object(sys, "unraisablehook", sys.unraisablehook),
        ):
            yield
    finally:
        os.chdir(before)
        for number, handler in heard.items():
            signal.signal(number, handler)
        root.filters[:], root.handlers[:] = filters, handlers
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
