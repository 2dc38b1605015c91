"""`tidemark land`: raw events for analysts, for ever or until all are there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemark.cli.beside_server import run_as_child
from tidemark.cli.long_work import run_beside
from tidemark.cli.options import Configured, config_option, configuration, json_option
from tidemark.cli.outcome import ExitCode, Terminated
from tidemark.cli.output import write_json, write_line
from tidemark.cli.progress import show_progress
from tidemark.clock import MICROS_PER_SECOND, SystemClock
from tidemark.errors import ConfigError
from tidemark.ops.workers import follow_parent

if TYPE_CHECKING:
    from tidemark.app.landing import Landing, OnProgress


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
    if is_child:
        return run_as_child(
            "landing",
            lambda: _land(configured, lambda target, done, total: None, until_caught_up=False),
        )
    clock = SystemClock()
    began_us = clock.elapsed_us()
    with show_progress(clock, "tidemark.app") as progress:
        progress.begin("landing", None)

        def told(target: str, done: int, total: int) -> None:
            seconds = max(1, clock.elapsed_us() - began_us) / MICROS_PER_SECOND
            rate = f"{done / seconds:,.0f} events/s"
            progress.update(done, f"{target}: sequence {done:,} of {total:,}, {rate}")

        try:
            found = _land(configured, told, until_caught_up=until_caught_up)
        except (KeyboardInterrupt, Terminated):
            if until_caught_up:
                raise
            found = None
    _conclude(configured, found, as_json=as_json)
    return ExitCode.OK


def _land(
    configured: Configured, on_progress: OnProgress, *, until_caught_up: bool
) -> list[Landing] | None:
    def work(stop: threading.Event) -> list[Landing] | None:
        # Loaded here: it takes a moment, in which a signal is to be heard too.
        from tidemark.app.landing import run_landing

        return run_landing(
            configured.config, until_caught_up=until_caught_up, on_progress=on_progress, stop=stop
        )

    return run_beside(work)


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
