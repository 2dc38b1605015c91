"""A real Spark cluster on this machine, from PySpark's own files: a master and its workers.

    python -m tests.services.spark_cluster [--workers 2] [--cores 1]     one to try things out with

Each is a Java process of its own and starts executors in Java processes of their own, as on several
machines. Of the environment of the one who starts them they have nothing but where programs are.
They listen on 127.0.0.1 only, and end when that process does, however it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from tests.services.ports import free_port
from tests.services.processes import children_of
from tidemark.pipeline.class_archive import sharing
from tidemark.pipeline.java import find_java

HOST: Final = "127.0.0.1"
STARTED_WITHIN_S: Final = 120.0
EXECUTOR_MEMORY_MIB: Final = 512
_HOME: Final = Path(pyspark.__file__).parent
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
# Ends a process and all that it started when the pipe to the one who started it is closed.
_WATCH: Final = 'read -r done; kill -s KILL -- "-$1" 2>/dev/null; sleep 1; rm -rf "$2"'
# They work for seconds, so what compiles slowly is of no use to them.
QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_LOGGING: Final = """\
rootLogger.level = warn
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""


class ClusterFailed(Exception):
    """The cluster did not do as told; the message holds the end of what it said."""


class _Daemon:
    """A master or a worker."""

    def __init__(self, home: Path, name: str, arguments: list[str]) -> None:
        self.log = home / f"{name}.log"
        java = find_java()
        environ = {
            "JAVA_HOME": str(java.home),
            "PATH": os.environ.get("PATH", ""),
            "SPARK_HOME": str(_HOME),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(home / "local"),
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(java.program),
                    *("-cp", f"{_HOME}/conf:{_HOME}/jars/*", "-Xmx256m"),
                    *QUICK_JAVA.split(),
                    *sharing(java),
                    f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}",
                    # It would listen on a port of its own.
                    "-Dspark.master.rest.enabled=false",
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home,
                env=environ,
                # A group of its own, with its executors; and Ctrl-C is for the one who started it.
                start_new_session=True,
            )
        self._watch = subprocess.Popen(
            ["sh", "-c", _WATCH, "watch", str(self._process.pid), str(home)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, to it and to the executors that it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._watch.kill()
        self._watch.wait()
        if self._watch.stdin is not None:
            self._watch.stdin.close()

    def says(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")


class SparkCluster:
    """A master and some workers, with a directory of their own."""

    def __init__(self, *, workers: int = 2, cores: int = 1) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="tidemark-spark-cluster-"))
        (self._home / "log4j2.properties").write_text(_LOGGING)
        self._port = free_port()
        self._cores = cores
        self._wanted = workers
        self._master: _Daemon | None = None
        self.workers: list[_Daemon] = []

    @property
    def url(self) -> str:
        """What `spark.master` is set to."""
        return f"spark://{HOST}:{self._port}"

    def start(self) -> None:
        """Returns when the master knows its workers."""
        address = ["--host", HOST, "--webui-port", "0"]
        self._master = _Daemon(self._home, "master", [_MASTER, *address, "--port", str(self._port)])
        # A worker tries again only after some seconds.
        self._wait(lambda: self.master_says("New state: ALIVE"))
        size = ["--cores", str(self._cores), "--memory", f"{2 * EXECUTOR_MEMORY_MIB}m"]
        for number in range(self._wanted):
            place = ["--work-dir", str(self._home / f"work-{number}")]
            arguments = [_WORKER, *address, "--port", "0", *size, *place, self.url]
            self.workers.append(_Daemon(self._home, f"worker-{number}", arguments))
        self._wait(lambda: all(w.says("Successfully registered with master") for w in self.workers))

    def worker_of(self, pid: int) -> _Daemon:
        """The worker one of whose executors started this process, or started who did."""
        for worker in self.workers:
            family = [worker.pid]
            for member in family:
                family += children_of(member)
            if pid in family:
                return worker
        raise ClusterFailed(f"no worker has started the process {pid}")

    def master_says(self, text: str) -> bool:
        """Whether this is in the master's log."""
        return self._master is not None and self._master.says(text)

    def close(self) -> None:
        """End all of it at once, executors too."""
        for daemon in filter(None, [*self.workers, self._master]):
            daemon.kill()
        self.workers, self._master = [], None
        shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _wait(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STARTED_WITHIN_S
        while not is_so():
            daemons = [d for d in (self._master, *self.workers) if d is not None]
            if time.monotonic() > deadline or not all(d.is_running for d in daemons):
                said = "\n".join(d.log.read_text(errors="replace")[-2000:] for d in daemons)
                raise ClusterFailed(f"the cluster did not start:\n{said}")
            time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description="A Spark cluster to try things out with.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=1)
    asked = parser.parse_args()
    # Whoever asks it to end, ends it in order.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    with (
        contextlib.suppress(KeyboardInterrupt),
        SparkCluster(workers=asked.workers, cores=asked.cores) as cluster,
    ):
        sys.stdout.write(f"The master is {cluster.url}. Ctrl-C stops it.\n")
        sys.stdout.flush()
        signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
