"""`tidemark up` with its pipeline: usage moves, nothing is left behind, errors are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_runs import started, stop, wait_until
from tests.acceptance.pipelines import CONFIG, java_of, write_config
from tests.services.http_calls import call
from tests.services.processes import children_of, is_running
from tidemark.config import sample_text

USAGE = {
    "tenantId": "acme",
    "metric": "api_calls",
    "customerRef": "c",
    "quantity": "1",
    "ts": "2026-01-01T00:00:00Z",
}


@pytest.fixture
def demo_home(tmp_path: Path) -> Path:
    (tmp_path / "tidemark.yaml").write_text(sample_text())
    return tmp_path


def ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    document = json.loads(process.stdout.readline() or "null")
    assert document is not None, process.communicate()
    assert document["event"] == "ready"
    url: str = document["url"]
    return url


def pipeline_part(url: str) -> Any:
    return call(url, "GET", "/readyz").json["parts"]["pipeline"]


def usage(url: str) -> list[Any]:
    entries: list[Any] = call(url, "GET", "/v1/usage").json["usage"]
    return entries


def total(url: str) -> int:
    return sum(int(entry["count"]) for entry in usage(url))


def child_of(process: subprocess.Popen[str]) -> int:
    [child] = children_of(process.pid)
    return child


def descendants(pid: int) -> list[int]:
    found = children_of(pid)
    return found + [each for child in found for each in descendants(child)]


def test_usage_moves_goes_on_after_a_crash_and_all_processes_end_together(
    demo_home: Path,
) -> None:
    with started("up", "--demo", "--port", 0, "--json", cwd=demo_home) as process:
        url = ready(process)
        wait_until(lambda: total(url) > 0)
        seen = total(url)
        wait_until(lambda: total(url) > seen)

        first = child_of(process)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: children_of(process.pid) not in ([], [first]))
        seen = int(pipeline_part(url)["lastSequence"])
        wait_until(lambda: int(pipeline_part(url)["lastSequence"]) > seen)

        everything = descendants(process.pid)
        assert len(everything) >= 2
        ran = stop(process, signal.SIGINT)
        wait_until(lambda: not any(map(is_running, everything)))
    assert (ran.code, ran.json) == (0, {"event": "stopped"})
    assert "the pipeline ended with -9; it is started again" in ran.err
    assert len(ran.err.splitlines()) == 1, ran.err


def test_nothing_is_left_behind_when_it_is_killed(demo_home: Path) -> None:
    with started("up", "--port", 0, "--json", "--workers", 2, cwd=demo_home) as process:
        ready(process)
        wait_until(lambda: any(java_of(child) for child in children_of(process.pid)))
        everything = descendants(process.pid)
        process.kill()
        wait_until(lambda: not any(map(is_running, everything)))


@pytest.fixture
def unusable(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    write_config(tmp_path, CONFIG + "spark: {java_home: /nowhere}\n")
    with started("up", "--json", cwd=tmp_path) as process:
        yield process


def test_a_pipeline_that_cannot_run_is_told_and_events_are_taken(
    unusable: subprocess.Popen[str],
) -> None:
    url = ready(unusable)
    assert unusable.stdout is not None
    told = json.loads(unusable.stdout.readline())
    assert (told["event"], told["error"]["code"]) == ("pipeline_failed", "java_missing")
    answer = call(url, "POST", "/v1/events", json={"events": [USAGE]})
    assert answer.json["accepted"] == 1
    health = call(url, "GET", "/readyz")
    assert (health.status, health.json["status"]) == (200, "degraded")
    part = health.json["parts"]["pipeline"]
    assert part["state"] == "degraded"
    assert "/nowhere/bin/java" in part["reason"]
    assert "Install a Java" in part["reason"]
    ran = stop(unusable)
    assert ran.code == 0
    assert "the pipeline stopped: spark.java_home is /nowhere" in ran.err
    assert "Tidemark goes on without the pipeline" in ran.err


def test_serve_runs_no_pipeline_and_a_disabled_one_is_not_run(demo_home: Path) -> None:
    disabled = {"TIDEMARK_PIPELINE__ENABLED": "false"}
    for args, env in ((["serve"], {}), (["up"], disabled)):
        with started(*args, "--port", 0, "--json", cwd=demo_home, env=env) as process:
            ready(process)
            assert children_of(process.pid) == []
            assert stop(process).code == 0
