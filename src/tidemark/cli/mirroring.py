"""`tidemark mirror`: every event in Kafka as well, for ever or until all are there."""

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
from tidemark.ops.workers import follow_parent

if TYPE_CHECKING:
    from tidemark.app.mirror import Mirrored, OnProgress


@click.command
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="End when everything that is in the ledger now is in Kafka.",
)
@config_option
@json_option
def mirror(until_caught_up: bool, config_path: Path | None, as_json: bool) -> int:
    """Write every event to Kafka, once and in order.

    The order is that of the ledger. Goes on from what the topics hold, and follows the ledger until
    Ctrl-C or SIGTERM stops it; the exit code is then 0. `tidemark up` runs the same beside the
    server where mirror.enabled is true.
    """
    is_child = follow_parent()
    configured = configuration(config_path)
    if is_child:
        return run_as_child(
            "the mirror",
            lambda: _mirror(configured, lambda done, total: None, until_caught_up=False),
        )
    clock = SystemClock()
    began_us = clock.elapsed_us()
    first: int | None = None
    with show_progress(clock, "tidemark.app") as progress:
        progress.begin("mirroring", None)

        def told(done: int, total: int) -> None:
            nonlocal first
            first = done if first is None else first
            seconds = max(1, clock.elapsed_us() - began_us) / MICROS_PER_SECOND
            rate = f"{(done - first) / seconds:,.0f} events/s"
            progress.update(done, f"sequence {done:,}, {rate}")

        try:
            found = _mirror(configured, told, until_caught_up=until_caught_up)
        except (KeyboardInterrupt, Terminated):
            if until_caught_up:
                raise
            found = None
    _conclude(configured, found, as_json=as_json)
    return ExitCode.OK


def _mirror(
    configured: Configured, on_progress: OnProgress, *, until_caught_up: bool
) -> Mirrored | None:
    def work(stop: threading.Event) -> Mirrored | None:
        # Loaded here: it takes a moment, in which a signal is to be heard too.
        from tidemark.app.mirror import run_mirror

        return run_mirror(
            configured.config, until_caught_up=until_caught_up, on_progress=on_progress, stop=stop
        )

    return run_beside(work)


def _conclude(configured: Configured, found: Mirrored | None, *, as_json: bool) -> None:
    if as_json:
        mirrored = {} if found is None else {"sequence": str(found.last_sequence)}
        write_json({"config": configured.as_json, "caughtUp": found is not None, **mirrored})
    elif found is None:
        write_line("The mirror stopped.")
    else:
        write_line(f"Mirrored up to sequence {found.last_sequence:,} to {found.brokers}.")
