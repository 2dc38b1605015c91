"""The tutorial, done step by step as it is written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.acceptance.cli_runs import environment, started, wait_until
from tests.services.http_calls import call
from tests.services.ports import free_port

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs/tutorial/first-events.md").read_text()
BLOCKS: list[str] = re.findall(r"```sh\n(.*?)```", TUTORIAL, re.DOTALL)


def test_every_step_does_what_the_tutorial_says(tmp_path: Path) -> None:
    port = free_port()
    env = environment({"TIDEMARK_HTTP__PORT": str(port)})
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"

    def step(number: int) -> str:
        command = BLOCKS[number].replace("127.0.0.1:8787", f"127.0.0.1:{port}")
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    step(0)
    with started("up", "--json", cwd=tmp_path, env={"TIDEMARK_HTTP__PORT": str(port)}) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        four = json.loads(step(1))["results"]
        assert [result["status"] for result in four] == [
            "accepted",
            "duplicate",
            "conflict",
            "rejected",
        ]
        assert [result.get("ingressSequence") for result in four] == ["1", "1", "1", None]
        assert len(json.loads(step(2))["rejects"]) == 2
        step(3)
        run = json.loads(step(4))["events"]
        assert [event["ingressSequence"] for event in run] == ["2", "3"]
        wait_until(lambda: folded(url) >= 3)
        [header, row] = [line.split("\t") for line in step(5).splitlines()]
        used = dict(zip(header, row, strict=True))
        assert (used["customerRef"], used["total"]) == ("c-1", "3")
        both = json.loads(step(6))["results"]
        assert [result["status"] for result in both] == ["accepted", "accepted"]
        assert "append-only" in step(7)
        seen = step(8).splitlines()
        assert [line.split()[0] for line in seen if line.strip()][:5] == ["1", "2", "3", "4", "5"]
        wait_until(lambda: folded(url) >= 5)
        assert "No difference." in step(9)
    assert len(BLOCKS) == 10


def folded(url: str) -> int:
    """The sequence that the pipeline has come to."""
    return int(call(url, "GET", "/readyz").json["parts"]["pipeline"]["lastSequence"])
