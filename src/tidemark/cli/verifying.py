"""`tidemark verify`: everything that is shown, proven from the ledger."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidemark.cli.logs import quiet_spark
from tidemark.cli.long_work import run_beside
from tidemark.cli.options import Configured, config_option, configuration, json_option
from tidemark.cli.outcome import ExitCode
from tidemark.cli.output import compact_json, one_line, pairs, plural, write_json, write_line
from tidemark.cli.progress import show_progress
from tidemark.cli.stages import Stages
from tidemark.clock import SystemClock
from tidemark.errors import ConfigError
from tidemark.timestamps import format_timestamp

if TYPE_CHECKING:
    from tidemark.ops.verification import Compared, Difference, Verification
    from tidemark.pipeline.landing.comparing import Compared as Landing

_STAGES: Final = {
    "recompute": ("recomputing", "events"),
    "compare": ("comparing", "entries"),
    "parquet": ("comparing what is landed in Parquet", "events"),
    "clickhouse": ("comparing what is landed in ClickHouse", "events"),
    "kafka": ("comparing what is mirrored to Kafka", "events"),
}
_TARGETS: Final = {
    "parquet": ("Landed in Parquet", "block"),
    "clickhouse": ("Landed in ClickHouse", "block"),
    "kafka": ("Mirrored to Kafka", "commit"),
}
_ONE_OF: Final = {
    "rows": "row",
    "changes": "change",
    "adjustments": "adjustment",
    "errors": "error",
}
_HASH_LETTERS: Final = 12


@click.command
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="N",
    help="Show so many differences of each part of a view; all are counted.",
)
@click.option(
    "--deep",
    is_flag=True,
    help="Also compare the events that are landed or mirrored with those of the ledger.",
)
@config_option
@json_option
def verify(limit: int, deep: bool, config_path: Path | None, as_json: bool) -> int:
    """Prove the views from the ledger.

    Recomputes everything from the ledger on Spark, in a place of its own, and compares it with the
    live views: rows, also what is hidden of them, the log of changes as far as it is kept,
    adjustments and error rows. With --deep, every block of landed events too, in Parquet and in
    ClickHouse, and every message in Kafka: count, order and content. Differences are printed, and
    the exit code is then 1. The pipeline may run meanwhile; nothing is changed.
    """
    configured = configuration(config_path)
    if deep and not (configured.config.landing.is_enabled or configured.config.mirror.enabled):
        raise ConfigError(
            f"{configured.source} enables neither landing nor the mirror, so there is nothing more"
            " to verify",
            hint="Leave out --deep, or set landing.parquet.enabled, landing.clickhouse.enabled or"
            " mirror.enabled to true.",
            field="landing",
        )
    if not configured.config.view_names:
        raise ConfigError(
            f"{configured.source} has no meters, views or windows, so there is nothing to verify",
            hint="Declare some; `tidemark init` writes an example.",
            field="meters",
        )
    quiet_spark()
    clock = SystemClock()
    with show_progress(clock) as progress:
        shown = Stages(progress, clock, _STAGES)
        # First: it takes a moment to learn that somebody else has the place, and Spark much longer.
        landing = _compared_landing(configured, shown) if deep else None
        progress.begin("starting Spark", None)

        def work(stop: threading.Event) -> Verification | None:
            from tidemark.app.verification import verify_views

            return verify_views(configured.config, limit=limit, on_progress=shown.take, stop=stop)

        found = run_beside(work)
    if as_json:
        write_json(_document(configured, found, landing))
    else:
        _write_text(configured, found)
        for target in landing or []:
            _write_landing(target)
    is_same = found is None or not found.difference_count
    return ExitCode.OK if is_same and not _differs(landing) else ExitCode.FAILED


def _compared_landing(configured: Configured, shown: Stages) -> list[Landing]:
    def work(stop: threading.Event) -> list[Landing] | None:
        from tidemark.app.landing import compare_landing

        return compare_landing(configured.config, on_progress=shown.take, stop=stop)

    compared = run_beside(work)
    # Who stops it does not get here.
    assert compared is not None
    return compared


def _differs(landing: list[Landing] | None) -> bool:
    return any(target.difference is not None for target in landing or [])


def _write_landing(landing: Landing) -> None:
    name, block = _TARGETS[landing.target]
    difference = landing.difference
    if difference is None:
        gone = f" {landing.gone:,} of them may be gone, and are." if landing.gone else ""
        write_line(
            f"{name}: {plural(landing.blocks, block)},"
            f" {plural(landing.events, 'event')} from the first on, as in the ledger.{gone}",
            style="green",
        )
        if landing.elsewhere:
            write_line(
                f"{name}: {plural(landing.elsewhere, 'event')} with a place in Kafka that has"
                " changed since."
            )
        return
    where = f"{difference.block}: " if difference.block else ""
    at = f", sequence {difference.sequence}" if difference.sequence else ""
    what = ""
    if difference.column is not None:
        values = tuple(map(compact_json, (difference.landed, difference.ledger)))
        what = f": {difference.column} is {values[0]}, in the ledger it is {values[1]}"
    write_line(one_line(f"{name}: {where}{difference.message}{at}{what}"), style="red")


def _write_text(configured: Configured, found: Verification | None) -> None:
    if found is None:
        write_line(f"Nothing was folded yet, so there is nothing to verify ({configured.source}).")
        return
    for difference in found.differences:
        write_line(difference_text(difference), style="red")
    left_out = found.difference_count - len(found.differences)
    if left_out:
        write_line(f"… and {plural(left_out, 'difference')} more")
    write_line(
        f"Recomputed from the ledger up to sequence {found.frontier.ingress_sequence:,}"
        f" at {format_timestamp(found.frontier.received_at)} (configured by {configured.source}):"
    )
    for line in pairs([(_name(part), _part_text(part)) for part in found.compared]):
        write_line(line)
    if found.unchecked:
        write_line(f"Not configured any more, and not checked: {', '.join(found.unchecked)}.")
    if found.difference_count:
        write_line(f"{plural(found.difference_count, 'difference')}.", style="red")
    else:
        write_line("No difference.", style="green")


def _name(part: Compared) -> str:
    return part.part if part.view is None else f"{part.view} {part.part}"


def _part_text(part: Compared) -> str:
    if not part.difference_count:
        return f"{part.live_count:,} same  {part.live_hash[:_HASH_LETTERS]}"
    return (
        f"{part.live_count:,} live, {part.recomputed_count:,} recomputed,"
        f" {plural(part.difference_count, 'difference')} "
        f" {part.live_hash[:_HASH_LETTERS]} and {part.recomputed_hash[:_HASH_LETTERS]}"
    )


def difference_text(difference: Difference) -> str:
    """A difference as people read it."""
    of = "" if difference.view is None else f" of {difference.view}"
    key = difference.key[0] if len(difference.key) == 1 else compact_json(difference.key)
    entry = f"{_ONE_OF[difference.part]}{of} {key}"
    if difference.column is not None:
        live, recomputed = map(compact_json, (difference.live, difference.recomputed))
        return one_line(f"{entry}: {difference.column} is {live}, recomputed it is {recomputed}")
    if difference.live is None:
        return one_line(f"{entry} is missing: {compact_json(difference.recomputed)}")
    return one_line(f"{entry} should not be there: {compact_json(difference.live)}")


def _document(
    configured: Configured, found: Verification | None, landing: list[Landing] | None
) -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = {
        "config": configured.as_json,
        "same": (found is None or not found.difference_count) and not _differs(landing),
        "sequence": "0",
        "receivedAt": None,
        "compared": [],
        "differences": [],
        "differencesLeftOut": 0,
        "unchecked": [],
        "landing": None if landing is None else msgspec.to_builtins(landing),
    }
    if found is not None:
        document |= {
            "sequence": str(found.frontier.ingress_sequence),
            "receivedAt": format_timestamp(found.frontier.received_at),
            "compared": msgspec.to_builtins(found.compared),
            "differences": msgspec.to_builtins(found.differences),
            "differencesLeftOut": found.difference_count - len(found.differences),
            "unchecked": found.unchecked,
        }
    return document
