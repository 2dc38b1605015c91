"""`tidemark mirror`: every event in Kafka as well, for ever or until all are there."""

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
from tidemark.mirror.errors import client_needed
from tidemark.ops.workers import follow_parent

if TYPE_CHECKING:
    from tidemark.app.mirror import Mirrored


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

    def work(told: Told, stop: threading.Event) -> Mirrored | None:
        # Loaded here: it takes a moment, in which a signal is to be heard too.
        with client_needed():
            from tidemark.app.mirror import run_mirror

        return run_mirror(
            configured.config,
            until_caught_up=until_caught_up,
            on_progress=lambda done, total: told("Kafka", done, total),
            stop=stop,
        )

    if is_child:
        return run_as_child("the mirror", lambda: run_beside(partial(work, tell_nobody)))
    found = copy_and_show("mirroring", work, is_to_end=until_caught_up)
    _conclude(configured, found, as_json=as_json)
    return ExitCode.OK


def _conclude(configured: Configured, found: Mirrored | None, *, as_json: bool) -> None:
    if as_json:
        mirrored = {} if found is None else {"sequence": str(found.last_sequence)}
        write_json({"config": configured.as_json, "caughtUp": found is not None, **mirrored})
    elif found is None:
        write_line("The mirror stopped.")
    else:
        write_line(f"Mirrored up to sequence {found.last_sequence:,} to {found.brokers}.")
