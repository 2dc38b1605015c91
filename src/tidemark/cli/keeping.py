"""`tidemark backup` and `tidemark compact`: for the operator, on the stores themselves."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import click

from tidemark.cli.long_work import run_beside
from tidemark.cli.options import config_option, configuration, json_option
from tidemark.cli.output import pairs, plural, write_json, write_line
from tidemark.cli.progress import show_progress
from tidemark.clock import SystemClock


@click.command
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@config_option
@json_option
def backup(directory: Path, config_path: Path | None, as_json: bool) -> None:
    """Copy ledger, views and triggers while they are used.

    Puts them into a new DIRECTORY. Servers and the pipeline may run meanwhile. To restore, stop
    them and put the files back: what the views lack is folded again from the ledger. Stores on
    PostgreSQL are not copied: `pg_dump` has them all as of one moment.
    """
    from tidemark.app.backup import take_backup

    configured = configuration(config_path)
    with show_progress(SystemClock()) as progress:
        taken = run_beside(
            partial(
                take_backup,
                configured.config,
                directory,
                on_store=lambda store: progress.begin(f"copying {store}", None),
            )
        )
    if as_json:
        import msgspec

        document: dict[str, Any] = {"config": configured.as_json, **msgspec.to_builtins(taken)}
        write_json(document)
        return
    for line in pairs(
        [
            (
                copied.file,
                f"{copied.bytes:,} bytes"
                + (
                    ""
                    if copied.last_sequence is None
                    else f", up to sequence {copied.last_sequence:,}"
                ),
            )
            for copied in taken.copied
        ]
    ):
        write_line(line)
    if taken.elsewhere:
        write_line(f"On PostgreSQL, and not copied: {', '.join(taken.elsewhere)}.")
    write_line(f"Backed up to {taken.directory} (configured by {configured.source}).")


@click.command
@config_option
@json_option
def compact(config_path: Path | None, as_json: bool) -> None:
    """Forget old changes and give their room back.

    The pipeline forgets changes by itself when they are older than `pipeline.change_retention`, but
    a file does not become smaller by that. Servers and the pipeline may run meanwhile; those who
    write, and on PostgreSQL those who read changes, wait until it is done.
    """
    import msgspec

    from tidemark.app.compaction import compact_views

    configured = configuration(config_path)
    with show_progress(SystemClock()) as progress:
        progress.begin("compacting", None)
        done = asyncio.run(compact_views(configured.config))
    if as_json:
        write_json({"config": configured.as_json, **msgspec.to_builtins(done)})
        return
    write_line(
        f"{plural(done.forgotten, 'change')} forgotten; the views take {done.bytes_after:,} bytes,"
        f" before it were {done.bytes_before:,} (configured by {configured.source})."
    )
