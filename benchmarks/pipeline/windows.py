"""Windows over a stream, and the stream written in the order of its time, beside plain engines."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from benchmarks.pipeline.rig import Caught, Rig
from benchmarks.pipeline.trades import commits, trades
from benchmarks.pipeline.window_limits import WindowLimits, measure_window_limits, write_trades
from benchmarks.pipeline.workload import append_commits
from tidemark.config import Config
from tidemark.views.port import RowFilter

WINDOW_STORE: Final = "sqlite"
SIZE: Final = "1m"
TOLERANCE: Final = "2s"


class Windowed(msgspec.Struct, frozen=True):
    """The runs of windows, of the order of time, and what plain engines take for less."""

    limits: WindowLimits
    windows: list[Caught]
    ordered: list[Caught]
    rows: int

    @property
    def windows_per_s(self) -> float:
        return median(run.events_per_s for run in self.windows)

    @property
    def ordered_per_s(self) -> float:
        return median(run.events_per_s for run in self.ordered)


async def measure_windows(rig: Rig) -> Windowed:
    """Limits and pipeline in one run."""
    scale = rig.scale
    path = rig.home / "trades.parquet"
    write_trades(trades(scale.events), path)
    limits = measure_window_limits(rig.spark, path, scale.events, scale.repetitions)
    ledger_dir = Path(tempfile.mkdtemp(dir=rig.home))
    ledger_url = f"sqlite:///{ledger_dir / 'ledger.db'}"
    async with rig.stores(_config(rig, ledger_url, windows=True)) as (ledger, _):
        await append_commits(ledger, commits(scale.events))
    runs: dict[bool, list[Caught]] = {True: [], False: []}
    rows = 0
    for _ in range(scale.repetitions):
        for windows, found in runs.items():
            config = _config(rig, ledger_url, windows=windows)
            async with rig.stores(config) as (ledger, views):
                found.append(await rig.catch_up(config, ledger, views))
                if windows:
                    page = await views.read_rows("volume", RowFilter(), limit=10_000_000)
                    rows = len(page.rows)
    return Windowed(limits, runs[True], runs[False], rows)


def _config(rig: Rig, ledger_url: str, *, windows: bool) -> Config:
    stream = {
        "identity": ["symbol"],
        "fields": {"at": "timestamp", "quantity": "decimal", "symbol": "string"},
        "eventtime": {"column": "at", "type": "iso8601"},
    }
    window = {"stream": "trades", "size": SIZE, "group_by": ["symbol"], "value": "quantity"}
    state_dir = Path(tempfile.mkdtemp(dir=rig.home))
    return Config.model_validate(
        {
            "state_dir": str(state_dir),
            "ledger": {"url": ledger_url},
            "view_store": {"url": f"sqlite:///{state_dir / 'views.db'}"},
            "streams": {"trades": stream},
            "windows": {"volume": window} if windows else {},
            "pipeline": {
                "eventtime": {"enabled": True, "lateTolerance": TOLERANCE},
                "ordered": {} if windows else {"trades": {"format": "parquet"}},
            },
        }
    )
