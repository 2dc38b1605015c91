"""The torture of all that follows a ledger: a short run passes, and says what it did."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.crash.order_torture import main, torture
from tests.services.kafka import shared_broker

# Of these the first kills the broker and the second the pipeline, once it has got somewhere.
SEED: Final = 196


def test_kills_at_random_moments_leave_all_copies_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert torture(SEED, 2, ["sqlite"], broker=shared_broker()) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"seed {SEED}: 2 blows to all that follows a ledger on sqlite\n")
    assert re.search(rf"seed {SEED}: 2 blows in \d+ s, nothing broken", said)
    assert re.search(r"^ +1 killed: broker$", said, re.MULTILINE)
    assert re.search(r"^ +1 killed: pipeline$", said, re.MULTILINE)


def test_an_unknown_store_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--store", "oracle"])
    assert "invalid choice: 'oracle'" in capsys.readouterr().err
