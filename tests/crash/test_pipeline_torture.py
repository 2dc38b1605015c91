"""The torture of the pipeline itself: a short run passes, and says what it did."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.crash.pipeline_torture import main, torture


def test_a_kill_at_a_random_moment_breaks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    # Of this seed the ledger is small, and Spark is what takes long.
    assert asyncio.run(torture(seed=235, count=1, stores=["sqlite"], sources=["ledger"])) == 0
    said = capsys.readouterr().out
    assert said.startswith("seed 235: 1 kills of the pipeline on sqlite, from ledger\n")
    assert re.search(r"seed 235: 1 kills in \d+ s over 1 ledgers .+, nothing broken", said)


def test_an_unknown_store_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--store", "oracle"])
    assert "invalid choice: 'oracle'" in capsys.readouterr().err
