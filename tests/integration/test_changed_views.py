"""What the pipeline says when the configuration does not go with the views that are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.events import ManualClock
from tests.contract.stores import LedgerHome
from tests.folding.ledgers import fill_ledger
from tests.folding.runs import run_pipeline
from tests.generated.ledgers import Shape, random_ledger
from tidemark.config import Config
from tidemark.pipeline.output.errors import DefinitionChanged
from tidemark.views.sqlite import SqliteViews

CALLS: dict[str, Any] = {"calls": {"metric": "api_calls"}}
BYTES: dict[str, Any] = {"bytes": {}}


def config_of(directory: Path, meters: dict[str, Any], **more: Any) -> Config:
    streams = {"usage": {"kind": "usage"}, "trades": {"fields": {"quantity": "decimal"}}}
    document = {"streams": streams, "meters": meters, **more}
    return Config.model_validate({"state_dir": str(directory), **document})


async def test_a_meter_that_misses_events_or_means_something_else_is_refused(
    tmp_path: Path,
) -> None:
    commits = random_ledger(1, Shape(max_commits=8, max_entries=4))
    home, clock = LedgerHome(f"sqlite:///{tmp_path / 'ledger.db'}"), ManualClock()
    ledger = await home.open(clock)
    place = tmp_path / "views.db"
    views = await SqliteViews.open(place)
    try:
        await fill_ledger(ledger, clock, commits[:4])
        await run_pipeline(config_of(tmp_path, CALLS), ledger, views, place)
        with pytest.raises(DefinitionChanged, match="bytes: new") as refused:
            await run_pipeline(config_of(tmp_path, CALLS | BYTES), ledger, views, place)
        assert "tidemark replay" in refused.value.hint

        # Nor can a window know what came before it.
        window = {"volume": {"stream": "trades", "size": 1, "value": "quantity"}}
        with_window = config_of(tmp_path, CALLS, windows=window)
        with pytest.raises(DefinitionChanged, match="volume: new"):
            await run_pipeline(with_window, ledger, views, place)

        changed = {"calls": {"metric": "api_calls", "lateness": 1}}
        with pytest.raises(DefinitionChanged, match="calls was built with another definition"):
            await run_pipeline(config_of(tmp_path, changed), ledger, views, place)

        # Gone for a while, it has missed what came meanwhile.
        await fill_ledger(ledger, clock, commits[4:])
        await run_pipeline(config_of(tmp_path, {}), ledger, views, place)
        with pytest.raises(DefinitionChanged, match="calls: new"):
            await run_pipeline(config_of(tmp_path, CALLS), ledger, views, place)
    finally:
        await views.close()
        await home.close()
