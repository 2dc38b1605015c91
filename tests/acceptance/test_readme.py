"""The README, run as it is written, against the real server with the sample configuration."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli_runs import tidemark
from tests.services.tidemark_server import TidemarkServer
from tidemark.cli.program import VERBS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DEFAULT_URL = "http://127.0.0.1:8787"


@pytest.fixture(scope="module")
def server() -> Iterator[TidemarkServer]:
    with TidemarkServer() as running:
        yield running


def block(language: str, containing: str) -> str:
    """The one code block of the README in this language that contains this text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    [found] = [text for text in blocks if containing in text]
    return str(found)


def run_curl(server: TidemarkServer) -> dict[str, object]:
    command = block("sh", "curl").replace(DEFAULT_URL, server.base_url)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_the_two_commands_are_named_first() -> None:
    first_block = README.split("```sh\n", 1)[1].split("```", 1)[0]
    assert [line.split("  ")[0] for line in first_block.splitlines()] == ["make run", "make test"]


def test_the_first_event_is_accepted_and_the_same_again_is_a_duplicate(
    server: TidemarkServer,
) -> None:
    shown = json.loads(block("json", "accepted").replace("…Z", "").replace("…", ""))
    first = run_curl(server)
    assert first.keys() == shown.keys()
    assert first["accepted"] == shown["accepted"] == 1
    again = run_curl(server)
    assert (again["accepted"], again["duplicates"]) == (0, 1)
    assert _places(again) == _places(first)


def test_the_command_that_shows_usage_is_one(server: TidemarkServer) -> None:
    """Without a pipeline there is nothing to show yet; the tutorial's test has one."""
    [program, *args] = block("sh", "tidemark usage").split()
    assert program == "tidemark"
    ran = tidemark(*args, "--url", server.base_url, cwd=server.directory)
    assert (ran.code, len(ran.out.splitlines())) == (0, 1), ran.err


def test_every_command_is_named() -> None:
    [named] = re.findall(r"lists the commands: `([^`]+)`", README)
    assert named.split() == list(VERBS)


def test_the_python_example_sends(server: TidemarkServer, tmp_path: Path) -> None:
    program = block("python", "Client").replace(DEFAULT_URL, server.base_url)
    program = program.replace("client.send(", "results = client.send(")
    program += "\nprint([result.status for result in results])\n"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout == "['accepted']\n"


def _places(answer: dict[str, object]) -> list[tuple[str, str]]:
    results = answer["results"]
    assert isinstance(results, list)
    return [(result["ingressSequence"], result["receivedAt"]) for result in results]
