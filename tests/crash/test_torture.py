"""The torture itself: a short run passes, and a Tidemark that cheats does not."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from tests.crash.torture import main, torture
from tests.crash.variants import LAZY_COMMITS


def test_a_few_kills_at_random_moments_break_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert asyncio.run(torture(seed=1, count=3)) == 0
    said = capsys.readouterr().out
    assert said.startswith("seed 1: 3 kills on sqlite and postgres\n")
    assert re.search(r"seed 1: \d+ kills in \d+ s \(.+ a second\), nothing broken", said)


def test_a_planted_server_that_acknowledges_before_the_commit_does_not_survive_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert asyncio.run(torture(1, 40, ["sqlite"], variant=LAZY_COMMITS)) == 1
    said = capsys.readouterr().out
    assert "lost: Acknowledgement(" in said
    assert "make torture-ledger SEED=1 N=40" in said
    [place] = re.findall(r"the evidence is in (\S+)", said)
    kept = {path.name for path in Path(place).iterdir()}
    assert kept == {"events.txt", "commits.txt", "acknowledgements.txt", "servers.log"}
    shutil.rmtree(place)


def test_an_unknown_store_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--store", "oracle"])
    assert "invalid choice: 'oracle'" in capsys.readouterr().err
