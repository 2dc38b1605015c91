"""The torture of the mirror: a short run passes, and a planted mirror does not survive it."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.crash.mirror_torture import main, torture
from tests.crash.mirror_variants import GOES_ON_FROM_A_FILE
from tests.services.kafka import shared_broker

# Kills the mirror first: a broker takes longer to come back.
SEED: Final = 342


def test_a_kill_at_a_random_moment_breaks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert asyncio.run(torture(SEED, 1, ["sqlite"], broker=shared_broker())) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"seed {SEED}: 1 blows to the mirror and its broker on sqlite\n")
    assert re.search(rf"seed {SEED}: 1 blows in \d+ s, nothing broken", said)
    assert re.search(r"^ +1 killed: mirror$", said, re.MULTILINE)


def test_a_mirror_that_does_not_go_on_from_the_topics_does_not_survive_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    variant = GOES_ON_FROM_A_FILE
    assert asyncio.run(torture(SEED, 1, ["sqlite"], variant=variant, broker=shared_broker())) == 1
    said = capsys.readouterr().out
    assert "Broken: the consumer of the page finds: a gap: " in said
    assert f"make torture-mirror SEED={SEED} N=1" in said
    [place] = re.findall(r"the evidence is in (\S+)", said)
    assert (Path(place) / "mirror.log").exists()
    assert "a gap: " in (Path(place) / "fault.txt").read_text()
    assert (Path(place) / "kafka" / "broker.log").exists()
    assert [*(Path(place) / "kafka" / "data").glob("*.tidemark.commits-0/*.log")]
    shutil.rmtree(place)


def test_an_unknown_store_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--store", "oracle"])
    assert "invalid choice: 'oracle'" in capsys.readouterr().err
