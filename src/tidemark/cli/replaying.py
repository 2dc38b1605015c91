"""`tidemark replay`: the views as they would be, beside those that are, and their swap."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidemark.cli.logs import quiet_spark
from tidemark.cli.long_work import run_beside
from tidemark.cli.options import Configured, config_option, configuration, json_option
from tidemark.cli.outcome import ExitCode, usage_error
from tidemark.cli.output import compact_json, one_line, pairs, plural, write_json, write_line
from tidemark.cli.progress import show_progress
from tidemark.cli.stages import Stages
from tidemark.clock import SystemClock
from tidemark.errors import ConfigError
from tidemark.timestamps import format_timestamp

if TYPE_CHECKING:
    from tidemark.app.replay import Kept, Replayed
    from tidemark.ops.replaying import RowDifference, Tally, ViewDifference
    from tidemark.pipeline.output.batch import Frontier
    from tidemark.views.swapping import OldView

_STAGES: Final = {"recompute": ("replaying", "events"), "compare": ("comparing", "rows")}
# So many are named in the text; JSON has them all.
_TENANTS_SHOWN: Final = 5


@click.command
@click.option("--as", "name", metavar="NAME", help="What to call the replay.")
@click.option("--swap", is_flag=True, help="Put the replayed views in the place of the live ones.")
@click.option("--drop", is_flag=True, help="Drop the replay, and the old views it has replaced.")
@click.option("--list", "is_list", is_flag=True, help="Show replays and old views there are.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    metavar="N",
    help="Show so many rows of each view that differ; all are counted.",
)
@config_option
@json_option
def replay(
    name: str | None,
    swap: bool,
    drop: bool,
    is_list: bool,
    limit: int,
    config_path: Path | None,
    as_json: bool,
) -> int:
    """Build the views anew beside the live ones, and swap.

    Folds the ledger from its beginning on Spark as the configuration says now, in a place of its
    own, and shows how the result differs from the live views. The live pipeline may run meanwhile,
    with its own configuration. A replay that was stopped goes on where it was.

    With --swap the replayed views take the place of the live ones: recorded in the ledger, in one
    transaction, and what differs is a change at that time for all who follow the views. The
    pipeline must not run then; start it afterwards with the configuration of the replay. What the
    views were is kept until --drop.
    """
    if sum((swap, drop, is_list)) > 1:
        raise usage_error("--swap, --drop and --list exclude each other")
    if (name is None) != is_list:
        raise usage_error("--as NAME says which replay; --list shows all and takes no name")
    configured = configuration(config_path)
    if not configured.config.view_names:
        raise ConfigError(
            f"{configured.source} has no meters, views or windows, so there is nothing to replay",
            hint="Declare some; `tidemark init` writes an example.",
            field="meters",
        )
    if name is None:
        return _show_kept(configured, as_json=as_json)
    if drop:
        return _drop(configured, name, as_json=as_json)
    return _replay(configured, name, swap=swap, limit=limit, as_json=as_json)


def _replay(configured: Configured, name: str, *, swap: bool, limit: int, as_json: bool) -> int:
    quiet_spark()
    clock = SystemClock()
    with show_progress(clock) as progress:
        progress.begin("starting Spark", None)
        stages = Stages(progress, clock, _STAGES)

        def work(stop: threading.Event) -> Replayed | None:
            from tidemark.app.replay import replay_views

            return replay_views(
                configured.config, name, swap=swap, limit=limit, on_progress=stages.take, stop=stop
            )

        replayed = run_beside(work)
    # Who stops it does not get here.
    assert replayed is not None
    if as_json:
        write_json(_document(configured, name, replayed))
    else:
        _write_text(configured, name, replayed, is_swap=swap)
    return ExitCode.OK


def _write_text(configured: Configured, name: str, replayed: Replayed, *, is_swap: bool) -> None:
    found = replayed.differences
    for example in found.examples:
        write_line(_example_text(example), style="yellow")
    write_line(
        f"Replayed as {name} up to {_place_text(found.frontier)}"
        f" (configured by {configured.source}):"
    )
    for line in pairs([(view.view, _view_text(view)) for view in found.views]):
        write_line(line)
    if found.left:
        write_line(f"Live, and not configured any more: {', '.join(found.left)}.")
    if found.count:
        write_line(
            f"{plural(found.count, 'row')} would differ."
            if replayed.swapped is None
            else f"{plural(found.count, 'row')} differed.",
            style="yellow",
        )
    else:
        write_line("No difference.", style="green")
    swapped = replayed.swapped
    if swapped is None:
        if is_swap:
            write_line(f"The live views are what {name} is, so nothing was swapped.")
        return
    write_line(f"Swapped at {_place_text(swapped.frontier)}.", style="green")
    if swapped.views:
        write_line(
            f"What {', '.join(swapped.views)} had before is kept until"
            f" `tidemark replay --as {name} --drop`."
        )


def _place_text(frontier: Frontier) -> str:
    at = format_timestamp(frontier.received_at)
    return f"sequence {frontier.ingress_sequence:,} at {at}"


def _view_text(view: ViewDifference) -> str:
    what = {"new": "new view, ", "changed": "other definition, ", "same": ""}[view.definition]
    columns = "".join(
        f", {word} {', '.join(names)}"
        for word, names in (("with", view.added_columns), ("without", view.removed_columns))
        if names
    )
    if not view.rows.total:
        return f"{what}{plural(view.replayed_rows, 'row')} same{columns}"
    return (
        f"{what}{plural(view.replayed_rows, 'row')}, {_tally_text(view.rows)}{columns}"
        f" ({_tenants_text(view.tenants)})"
    )


def _tally_text(tally: Tally) -> str:
    parts = ((tally.added, "new"), (tally.removed, "gone"), (tally.changed, "changed"))
    return ", ".join(f"{count:,} {word}" for count, word in parts if count)


def _tenants_text(tenants: dict[str, Tally]) -> str:
    most = sorted(tenants.items(), key=lambda entry: (-entry[1].total, entry[0]))
    shown = [f"{one_line(tenant)}: {tally.total:,}" for tenant, tally in most[:_TENANTS_SHOWN]]
    rest = len(most) - len(shown)
    return ", ".join([*shown, f"{plural(rest, 'tenant')} more"] if rest else shown)


def _example_text(example: RowDifference) -> str:
    row = f"{example.view} {example.key}"
    if example.live is None:
        return one_line(f"{row} is new: {compact_json(example.replayed)}")
    if example.replayed is None:
        return one_line(f"{row} is gone: {compact_json(example.live)}")
    changed = "; ".join(
        f"{column} is {compact_json(value)}, replayed it is"
        f" {compact_json(example.replayed[column])}"
        for column, value in example.live.items()
    )
    return one_line(f"{row}: {changed}")


def _document(configured: Configured, name: str, replayed: Replayed) -> dict[str, Any]:
    import msgspec

    found = replayed.differences
    swapped = replayed.swapped
    return {
        "config": configured.as_json,
        "name": name,
        **_place_document(found.frontier),
        "same": not found.count,
        "views": msgspec.to_builtins(found.views),
        "examples": msgspec.to_builtins(found.examples),
        "left": found.left,
        "swapped": None
        if swapped is None
        else {**_place_document(swapped.frontier), "views": swapped.views},
    }


def _place_document(frontier: Frontier | None) -> dict[str, Any]:
    if frontier is None:
        return {"sequence": "0", "receivedAt": None}
    return {
        "sequence": str(frontier.ingress_sequence),
        "receivedAt": format_timestamp(frontier.received_at),
    }


def _show_kept(configured: Configured, *, as_json: bool) -> int:
    from tidemark.app.replay import kept_beside

    kept = kept_beside(configured.config)
    if as_json:
        write_json(_kept_document(kept))
        return ExitCode.OK
    for name, frontier in kept.replays:
        where = "not begun" if frontier is None else f"up to {_place_text(frontier)}"
        write_line(f"{name}: replayed {where}")
    for old in kept.old:
        write_line(
            f"{old.swap}: version {old.version} of {old.view} until"
            f" {format_timestamp(old.swapped_at)}, in the table {old.table}"
        )
    if not kept.replays and not kept.old:
        write_line(f"There are no replays and no old views ({configured.source}).")
    return ExitCode.OK


def _kept_document(kept: Kept) -> dict[str, Any]:
    return {
        "replays": [{"name": name, **_place_document(frontier)} for name, frontier in kept.replays],
        "oldViews": [_old_document(old) for old in kept.old],
    }


def _old_document(old: OldView) -> dict[str, Any]:
    return {
        "view": old.view,
        "version": old.version,
        "table": old.table,
        "replay": old.swap,
        "swappedAt": format_timestamp(old.swapped_at),
        "definitionHash": old.definition_hash,
    }


def _drop(configured: Configured, name: str, *, as_json: bool) -> int:
    from tidemark.app.replay import drop_beside

    old = drop_beside(configured.config, name)
    if as_json:
        write_json({"name": name, "oldViews": [_old_document(view) for view in old]})
    else:
        kept = "".join(f", version {view.version} of {view.view}" for view in old)
        write_line(f"Dropped {name}{kept}.")
    return ExitCode.OK
