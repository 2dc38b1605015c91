"""`tidemark import`: a history without sequences gets its order, the same on every run."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from tidemark.cli.configuring import ledger_text
from tidemark.cli.options import Configured, config_option, configuration, json_option
from tidemark.cli.outcome import ExitCode, error_document, report
from tidemark.cli.output import plural, write_json, write_line, write_note
from tidemark.cli.progress import Progress, show_progress
from tidemark.cli.refusals import Refusals, refusal_text
from tidemark.clock import Clock, SystemClock
from tidemark.config import Config
from tidemark.errors import EventRejected, TidemarkError
from tidemark.event_files import EventLine, FileForm, form_of, open_events, read_events
from tidemark.ingress.decoder import Decoder
from tidemark.ledger.importer import ImportReport, InvalidHistory, import_history
from tidemark.ledger.importer import Progress as Done
from tidemark.ledger.opening import open_ledger

_STAGES = {
    "read": ("reading", "lines"),
    "judge": ("ordering", "lines"),
    "compare": ("comparing", "events that are there already"),
    "write": ("writing", "events"),
}


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv"]),
    help="What the files hold. Default: csv if a name ends in .csv, else jsonl.",
)
@click.option(
    "--skip-invalid",
    is_flag=True,
    help="Leave out lines that cannot be imported. Otherwise one of them stops everything.",
)
@config_option
@json_option
def import_(
    files: tuple[str, ...],
    form: FileForm | None,
    skip_invalid: bool,
    config_path: Path | None,
    as_json: bool,
) -> int:
    """Give an old history its order in a new ledger.

    Each line of the FILEs is an event as `tidemark send` takes it, and `receivedAt` says when it
    was received; - is stdin. The whole history is ordered by receivedAt, then by time and by key,
    before anything is written, and what was received at one time becomes one commit. The ledger
    must be new; an import that was interrupted goes on when it is run again. No server may run on
    the ledger meanwhile.
    """
    configured = configuration(config_path)
    clock = SystemClock()
    for name in files:
        # A name that is wrong is told now, and not when its turn comes.
        with open_events(name):
            pass
    refused: TidemarkError | None = None
    with show_progress(clock) as progress:
        try:
            found = asyncio.run(
                _import(configured.config, _lines(files, form), clock, progress, skip_invalid)
            )
        except InvalidHistory as error:
            found, refused = error.report, error
        refusals = _refusals(found, progress, as_json=as_json)
    _conclude(configured, found, refusals, refused, as_json=as_json)
    return ExitCode.REFUSED if found.rejected or found.conflicts else ExitCode.OK


def _lines(files: Sequence[str], form: FileForm | None) -> Iterator[EventLine]:
    for name in files:
        with open_events(name) as stream:
            yield from read_events(stream, form or form_of(name), file=name, history=True)


async def _import(
    config: Config,
    lines: Iterator[EventLine],
    clock: Clock,
    progress: Progress,
    skip_invalid: bool,
) -> ImportReport:
    store = await open_ledger(config, clock)
    try:
        return await import_history(
            store,
            Decoder(config, store.salt),
            lines,
            work_dir=config.state_dir if config.state_dir.is_dir() else _temporary_directory(),
            now_us=clock.wall_us(),
            on_progress=_Stages(progress).show,
            skip_invalid=skip_invalid,
        )
    finally:
        await store.close()


def _temporary_directory() -> Path:
    return Path(tempfile.gettempdir())


class _Stages:
    """Shows one stage of an import after the other."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._stage = ""

    def show(self, done: Done) -> None:
        label, noun = _STAGES[done.stage]
        if done.stage != self._stage:
            self._stage = done.stage
            self._progress.begin(label, done.total)
        of = "" if done.total is None else f" of {done.total:,}"
        self._progress.update(done.done, f"{done.done:,}{of} {noun}")


def _refusals(found: ImportReport, progress: Progress, *, as_json: bool) -> Refusals:
    refusals = Refusals(None)
    for problem in found.problems:
        why = problem.rejection
        error = EventRejected(why.message, hint=why.hint, field=why.field, code=why.code)
        shown = refusals.add(problem.line, problem.status, error, b"", problem.file)
        if shown and not as_json:
            progress.note(refusal_text(problem.line, problem.status, error, problem.file))
    return refusals


def _conclude(
    configured: Configured,
    found: ImportReport,
    refusals: Refusals,
    refused: TidemarkError | None,
    *,
    as_json: bool,
) -> None:
    left_out = found.rejected + found.conflicts - len(refusals.listed)
    if as_json:
        write_json(_document(configured, found, refusals, refused, left_out))
        return
    if left_out:
        write_note(f"… and {left_out:,} more")
    counts = (
        f"{plural(found.duplicates, 'duplicate')}, {plural(found.conflicts, 'conflict')}, "
        f"{found.rejected:,} rejected"
    )
    if refused is not None:
        write_line(f"Nothing was imported. {plural(found.read, 'line')}: {counts}.")
        report(refused, as_json=False)
        write_note("hint: --skip-invalid imports the others.")
        return
    write_line(f"Ledger: {ledger_text(configured.config)} (configured by {configured.source})")
    write_line(
        f"{plural(found.read, 'line')}: {plural(found.accepted, 'event')} imported in "
        f"{plural(found.commits, 'commit')}, {found.already_imported:,} there already, {counts}."
    )
    if found.first_sequence is not None and found.last_sequence is not None:
        write_line(f"Sequences {found.first_sequence:,} to {found.last_sequence:,}.")


def _document(
    configured: Configured,
    found: ImportReport,
    refusals: Refusals,
    refused: TidemarkError | None,
    left_out: int,
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "config": configured.as_json,
        "complete": refused is None,
        "lines": found.read,
        "accepted": found.accepted,
        "alreadyImported": found.already_imported,
        "duplicates": found.duplicates,
        "conflicts": found.conflicts,
        "rejected": found.rejected,
        "commits": found.commits,
        "firstSequence": None if found.first_sequence is None else str(found.first_sequence),
        "lastSequence": None if found.last_sequence is None else str(found.last_sequence),
        "refusals": refusals.listed,
        "refusalsLeftOut": left_out,
    }
    if refused is not None:
        document["error"] = error_document(refused)
    return document
