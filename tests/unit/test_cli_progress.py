"""What is said while long work goes on, wherever it is said."""

from __future__ import annotations

import logging

import pytest

from tests.contract.events import ManualClock
from tidemark.cli.progress import show_progress
from tidemark.mirror import hanging
from tidemark.pipeline.kafka import source


@pytest.mark.parametrize("name", ["tidemark.app.pipeline", hanging.__name__, source.__name__])
def test_what_any_part_logs_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(ManualClock()):
        logging.getLogger(name).warning("%d messages are foreign", 3)
    logging.getLogger(name).warning("and nobody looks any more")
    assert capsys.readouterr().err == "3 messages are foreign\n"
