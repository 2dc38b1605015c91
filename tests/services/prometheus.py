"""A Prometheus for tests, as Debian has it: the server, and `promtool`, which tests rules.

`PROMETHEUS` names a directory that has both; otherwise they are looked for on PATH, and where
`make prometheus` puts them. Tests never skip for want of them.

    python -m tests.services.prometheus [--quiet]     says which, or what to install
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.services.ports import free_port

UNPACKED: Final = Path(__file__).parents[2] / ".venv" / "debian" / "prometheus" / "usr" / "bin"
PROGRAMS: Final = ("prometheus", "promtool")
READY_WITHIN_S: Final = 60.0
ANSWER_WITHIN_S: Final = 10.0
POLL_S: Final = 0.1


class PrometheusMissing(Exception):
    """There is none to test with; the message says how to get one."""


def find_prometheus(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory of the programs."""
    named = environ.get("PROMETHEUS")
    places = [named] if named else [*environ.get("PATH", "").split(os.pathsep), str(UNPACKED)]
    for place in filter(None, places):
        if all(shutil.which(program, path=place) for program in PROGRAMS):
            return Path(place)
    raise PrometheusMissing(
        "no Prometheus with its promtool was found. Install one (Debian, Ubuntu: the package"
        " 'prometheus'), run 'make prometheus', or set PROMETHEUS to the directory of both"
    )


def promtool(*args: object) -> subprocess.CompletedProcess[str]:
    command = [str(find_prometheus() / "promtool"), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


class Prometheus:
    """A server that scrapes one address every second and evaluates rules as often."""

    def __init__(self, directory: Path, target: str, rules: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self._config = directory / "prometheus.yaml"
        self._config.write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(rules)],
                    "scrape_configs": [
                        {"job_name": "tidemark", "static_configs": [{"targets": [target]}]}
                    ],
                }
            )
        )

    def ask(self, path: str, **parameters: str) -> Any:
        """What its API answers; `data` of it."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urlencode(parameters)}"
        with urlopen(url, timeout=ANSWER_WITHIN_S) as answer:
            document = json.load(answer)
        assert document["status"] == "success", document
        return document["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Ready meanwhile, and gone afterwards."""
        with (self._directory / "prometheus.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    find_prometheus() / "prometheus",
                    f"--config.file={self._config}",
                    f"--storage.tsdb.path={self._directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_ready(process)
            yield self
        finally:
            process.kill()
            process.wait()

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while not self._is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                said = (self._directory / "prometheus.log").read_text()[-2000:]
                raise AssertionError(f"Prometheus did not start:\n{said}")
            time.sleep(POLL_S)

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=ANSWER_WITHIN_S):
                return True
        except (URLError, OSError):
            return False


def main() -> int:
    quiet = "--quiet" in sys.argv[1:]
    try:
        found = find_prometheus()
    except PrometheusMissing as error:
        if not quiet:
            sys.stderr.write(f"tests: {error}\n")
        return 1
    if not quiet:
        sys.stdout.write(f"tests: Prometheus of {found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
