"""How long landing that is to end waits for a mirror: for as long as that moves."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from tests.contract.events import draft
from tidemark.app import landing as app
from tidemark.clock import SystemClock
from tidemark.config import Config, load_config
from tidemark.ingress.drafts import Submission, no_corrections
from tidemark.ledger.opening import open_ledger
from tidemark.ledger.port import PlacedEvents
from tidemark.mirror.places import PlaceColumns
from tidemark.pipeline.landing.errors import LandingUnavailable

LANDED = 5
HEAD = 8
# Two of them are more than a minute.
LOOK_S = 40


class Clock(SystemClock):
    """Time passes when it is told to."""

    passed_s = 0

    def elapsed_us(self) -> int:
        return self.passed_s * 1_000_000


class Mirroring(threading.Event):
    """Between two looks all is mirrored anew, an event at a time and up to one of them."""

    def __init__(self, config: Config, upto: int) -> None:
        super().__init__()
        self._config = config
        self._left = iter(range(1, upto + 1))

    def wait(self, timeout: float | None = None) -> bool:
        Clock.passed_s += LOOK_S
        sequence = next(self._left, None)
        if sequence is not None:
            asyncio.run(self._place(sequence))
        return self.is_set()

    async def _place(self, sequence: int) -> None:
        ledger = await open_ledger(self._config, SystemClock())
        placed = PlacedEvents(sequence, sequence, PlaceColumns.unknown(1).packed())
        await ledger.place_events(placed)
        await ledger.close()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Of a ledger of which the first events were landed before there was a mirror."""
    path = tmp_path / "tidemark.yaml"
    path.write_text(f"""
state_dir: {tmp_path}
streams: {{usage: {{kind: usage}}}}
mirror: {{enabled: true, bootstrap_servers: "127.0.0.1:1"}}
landing: {{parquet: {{enabled: true}}}}
""")
    config = load_config(path, {})
    asyncio.run(grow(config, range(1, LANDED + 1)))
    land(load_config(path, {"TIDEMARK_MIRROR__ENABLED": "false"}), threading.Event())
    asyncio.run(grow(config, range(LANDED + 1, HEAD + 1)))
    monkeypatch.setattr(Clock, "passed_s", 0)
    monkeypatch.setattr(app, "SystemClock", Clock)
    return config


async def grow(config: Config, numbers: range) -> None:
    ledger = await open_ledger(config, SystemClock())
    drafts = [draft(f"key {number}") for number in numbers]
    await ledger.append_group([Submission("request", drafts)], no_corrections)
    await ledger.close()


def land(config: Config, stop: threading.Event) -> int:
    [landing] = (
        app.run_landing(config, until_caught_up=True, on_progress=lambda *_: None, stop=stop) or []
    )
    return landing.last_sequence


def test_a_mirror_that_is_behind_what_is_landed_is_waited_for_while_it_moves(
    config: Config,
) -> None:
    assert land(config, Mirroring(config, HEAD)) == HEAD


def test_a_mirror_that_stands_still_behind_what_is_landed_is_waited_for_a_minute(
    config: Config,
) -> None:
    said = "landed up to 5, where they are in Kafka is known up to 3, and the ledger has 8"
    with pytest.raises(LandingUnavailable, match=said):
        land(config, Mirroring(config, 3))
    # Two looks after the last at which there was more.
    assert Clock.passed_s == (3 + 2) * LOOK_S
