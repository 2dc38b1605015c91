"""`tidemark land`: raw events for analysts, for ever or until all are there."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemark.cli.beside_server import run_as_child
from tidemark.cli.copying import Told, copy_and_show, tell_nobody
from tidemark.cli.long_work import run_beside
from tidemark.cli.options import Configured, config_option, configuration, json_option
from tidemark.cli.outcome import ExitCode
from tidemark.cli.output import write_json, write_line
from tidemark.errors import ConfigError
from tidemark.ops.workers import follow_parent

if TYPE_CHECKING:
    from tidemark.app.landing import Landing


@click.command
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="End when everything that is in the ledger now is landed.",
)
@config_option
@json_option
def land(until_caught_up: bool, config_path: Path | None, as_json: bool) -> int:
    """Write raw events to Parquet files and to ClickHouse, in the order of the ledger.

    Writes to what the configuration enables, landing.parquet or landing.clickhouse or both. Goes on
    from what is there, and follows the ledger until Ctrl-C or SIGTERM stops it; the exit code is
    then 0. `tidemark up` runs the same beside the server.
    """
    is_child = follow_parent()
    configured = configuration(config_path)
    if not configured.config.landing.is_enabled:
        raise ConfigError(
            f"{configured.source} does not enable landing, so there is nothing to land",
            hint="Set landing.parquet.enabled or landing.clickhouse.enabled to true.",
            field="landing",
        )

    def work(told: Told, stop: threading.Event) -> list[Landing] | None:
        # Loaded here: it takes a moment, in which a signal is to be heard too.
        from tidemark.app.landing import run_landing

        return run_landing(
            configured.config, until_caught_up=until_caught_up, on_progress=told, stop=stop
        )

    if is_child:
        return run_as_child("landing", lambda: run_beside(partial(work, tell_nobody)))
    found = copy_and_show("landing", work, is_to_end=until_caught_up)
    _conclude(configured, found, as_json=as_json)
    return ExitCode.OK


def _conclude(configured: Configured, found: list[Landing] | None, *, as_json: bool) -> None:
    if as_json:
        landed = [
            {"target": one.target, "place": one.place, "sequence": str(one.last_sequence)}
            for one in found or []
        ]
        write_json({"config": configured.as_json, "caughtUp": found is not None, "landed": landed})
    elif found is None:
        write_line("Landing stopped.")
    else:
        for one in found:
            write_line(f"Landed up to sequence {one.last_sequence:,} in {one.place}.")
