"""`tidemark migrate` and `tidemark confirm-clock`: for the operator, on the ledger itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from tidemark.cli.configuring import ledger_text
from tidemark.cli.options import config_option, configuration, json_option
from tidemark.cli.output import plural, write_json, write_line
from tidemark.clock import Clock, SystemClock
from tidemark.config import Config
from tidemark.errors import ClockLeap, SchemaMismatch
from tidemark.ledger.migrations import Migration
from tidemark.ledger.opening import migrate_ledger, open_ledger
from tidemark.live.triggers.opening import migrate_triggers
from tidemark.timestamps import format_timestamp
from tidemark.views.opening import migrate_views


@click.command
@config_option
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@json_option
def migrate(config_path: Path | None, dry_run: bool, as_json: bool) -> None:
    """Bring the schemas of all stores up to date: ledger, views and triggers.

    A server does this by itself when it starts. Run it beforehand where the server's database user
    may not change the schema. What is not there yet is made.
    """
    configured = configuration(config_path)
    migrations = asyncio.run(_migrate(configured.config, dry_run=dry_run))
    place = ledger_text(configured.config)
    if as_json:
        listed = [{"version": found.version, "name": found.name} for found in migrations]
        document = {"config": configured.as_json, "ledger": place, "dryRun": dry_run}
        write_json({**document, "pending" if dry_run else "applied": listed})
        return
    write_line(f"Ledger: {place} (configured by {configured.source})")
    for migration in migrations:
        write_line(f"  {'pending' if dry_run else 'applied'}  {migration.name}")
    if not migrations:
        write_line("The schema is up to date.")
    elif dry_run:
        write_line(f"{plural(len(migrations), 'migration')} would be applied; nothing was changed.")
    else:
        write_line(f"{plural(len(migrations), 'migration')} applied.")


async def _migrate(config: Config, *, dry_run: bool) -> list[Migration]:
    migrations = await migrate_ledger(config, dry_run=dry_run)
    if config.view_names:
        migrations += await migrate_views(config, dry_run=dry_run)
        if config.live.enabled:
            migrations += await migrate_triggers(config, dry_run=dry_run)
    return migrations


@click.command("confirm-clock")
@config_option
@json_option
def confirm_clock(config_path: Path | None, as_json: bool) -> None:
    """Say that the clock is right after a leap.

    When the clock steps forward by more than `ledger.clock_leap`, ingest is held, because what it
    stamps into the ledger can never be taken back. Set the clock right, or confirm with this
    command that it is; running servers then go on.
    """
    configured = configuration(config_path)
    clock = SystemClock()
    held = asyncio.run(_confirm(configured.config, clock))
    now = format_timestamp(clock.wall_us())
    if as_json:
        document = {"config": configured.as_json, "confirmedAt": now}
        write_json({**document, "held": None if held is None else held.message})
        return
    if held is not None:
        write_line(f"Until now {held.message}.")
    write_line(
        f"Confirmed: it is {now}. {'Nothing was held.' if held is None else 'Ingest goes on.'}"
    )


async def _confirm(config: Config, clock: Clock) -> ClockLeap | None:
    """Confirm the time, and give why ingest was held if it was."""
    if await migrate_ledger(config, dry_run=True):
        raise SchemaMismatch(
            f"there is no ledger of this version yet at {ledger_text(config)}",
            hint="Is this the right configuration? `tidemark migrate` makes a ledger.",
        )
    ledger = await open_ledger(config, clock)
    held = None
    try:
        try:
            await ledger.check_clock()
        except ClockLeap as leap:
            held = leap
        await ledger.confirm_clock()
    finally:
        await ledger.close()
    return held
