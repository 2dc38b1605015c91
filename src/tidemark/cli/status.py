"""`tidemark status`: how far everything is that follows the ledger, as it changes or once."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from tidemark.cli.answers import not_ours
from tidemark.cli.asking import Asking
from tidemark.cli.options import json_option, server, server_options
from tidemark.cli.outcome import ExitCode, usage_error
from tidemark.cli.output import has_colour, is_live, one_line, put, write_note
from tidemark.cli.stopping import hear_no_more
from tidemark.errors import TidemarkError

if TYPE_CHECKING:
    from rich.console import Group

_PATH: Final = "/admin/event-health"
_LOOK_EVERY_S: Final = 1.0
_FIELDS: Final = (
    *("part", "state", "lastSequence", "lagEvents", "lagSeconds", "toldAt"),
    *("webhooksWaiting", "webhooksDead", "webhooksOldestSeconds", "reason"),
)
_COLOURS: Final = {
    "ready": "green",
    "degraded": "yellow",
    "unavailable": "red",
    "disabled": "bright_black",
}
_WELL: Final = frozenset({"ready", "disabled"})


class _Webhooks(msgspec.Struct, rename="camel"):
    waiting: str
    dead: str
    oldest_waiting_seconds: float | None = None


class _Part(msgspec.Struct, rename="camel"):
    state: str
    reason: str = ""
    last_sequence: str | None = None
    lag_events: str | None = None
    lag_seconds: float | None = None
    told_at: str | None = None
    slowest_trigger: str | None = None
    webhooks: _Webhooks | None = None


class _Status(msgspec.Struct, rename="camel"):
    """What the server answers, as far as it is shown."""

    status: str
    checked_at: str
    parts: dict[str, _Part]


_decode = msgspec.json.Decoder(_Status).decode


class _Look(msgspec.Struct):
    """One answer, as it came and as it was read."""

    raw: str
    status: _Status


@click.command
@click.option("--once", is_flag=True, help="Show it once, also on a terminal.")
@click.option("--watch", is_flag=True, help="Go on showing it as it changes, also in a pipe.")
@server_options
@json_option
def status(
    once: bool,
    watch: bool,
    url: str | None,
    api_key: str | None,
    config_path: Path | None,
    as_json: bool,
) -> int:
    """Show how far everything is that follows the ledger.

    Asks a running server: the ledger, the mirror, the pipeline, what is landed, what is live and
    what is delivered, how far each is behind, and what keeps it from going on. On a terminal the
    table changes with it until Ctrl-C, which ends it with 0. With --once, with --json or in a pipe
    it is shown once, and the exit code is 1 if something is degraded or unavailable.
    """
    if once and watch:
        raise usage_error("--once and --watch exclude each other", field="once")
    asking = Asking(server(url, api_key, config_path))
    if watch or not (once or as_json or not is_live(sys.stdout)):
        with suppress(KeyboardInterrupt):
            _watch(asking, as_json=as_json)
        return ExitCode.OK
    look = _ask(asking)
    _show(look, as_json=as_json)
    return ExitCode.OK if look.status.status in _WELL else ExitCode.FAILED


def _ask(asking: Asking) -> _Look:
    answer = asking.get(_PATH, {}, "status")
    try:
        return _Look(answer.data.decode(), _decode(answer.data))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise not_ours(f"an answer of {_PATH} that cannot be read") from None


def _show(look: _Look, *, as_json: bool) -> bool:
    """Write a look; False if nobody reads any more."""
    if as_json:
        return put(look.raw, sys.stdout)
    if not is_live(sys.stdout):
        return _put_all(_lines(look.status))
    from rich.console import Console

    Console(highlight=False).print(_drawn(look.status))
    return True


def _watch(asking: Asking, *, as_json: bool) -> None:
    """Look again and again. A server that goes away is waited for, if it was there once."""
    look = _ask(asking)
    trouble: TidemarkError | None = None
    with _watching(as_json=as_json) as show:
        while show(look, trouble):
            time.sleep(_LOOK_EVERY_S)
            try:
                look, trouble = _ask(asking), None
            except TidemarkError as error:
                trouble = error


@contextmanager
def _watching(*, as_json: bool) -> Iterator[Callable[[_Look, TidemarkError | None], bool]]:
    """How looks are shown, one after the other, each with what is wrong since; False ends it."""
    if not as_json and is_live(sys.stdout):
        from rich.console import Console
        from rich.live import Live

        console = Console(highlight=False)
        live = Live(console=console, auto_refresh=False)

        def draw(look: _Look, trouble: TidemarkError | None) -> bool:
            live.update(_drawn(look.status, trouble), refresh=True)
            return True

        try:
            with live:
                try:
                    yield draw
                finally:
                    # A second Ctrl-C must not keep the terminal from being put right.
                    hear_no_more()
        finally:
            console.show_cursor(True)
        return
    shown: list[tuple[object, ...]] = []
    told = ""

    def write(look: _Look, trouble: TidemarkError | None) -> bool:
        nonlocal shown, told
        said = "" if trouble is None else trouble.message
        if said != told:
            write_note(f"{said}; trying again" if said else "it answers again")
        told = said
        if trouble is not None:
            return True
        if as_json:
            return put(look.raw, sys.stdout)
        before, shown = shown, _numbers(look.status)
        return shown == before or _put_all(_lines(look.status))

    yield write


def _lines(found: _Status) -> Iterator[str]:
    """Tab-separated, with a header; what is not known is empty."""
    yield "\t".join(_FIELDS)
    for name, part in found.parts.items():
        webhooks = part.webhooks or _Webhooks("", "")
        cells = (
            *(name, part.state, part.last_sequence, part.lag_events, part.lag_seconds),
            *(part.told_at, webhooks.waiting, webhooks.dead),
            *(webhooks.oldest_waiting_seconds, part.reason),
        )
        yield "\t".join("" if cell is None else one_line(str(cell)) for cell in cells)


def _numbers(found: _Status) -> list[tuple[object, ...]]:
    """What must change for lines to be worth writing again; time passes anyway."""
    return [
        (
            *(name, part.state, part.last_sequence, part.lag_events),
            part.webhooks and (part.webhooks.waiting, part.webhooks.dead),
        )
        for name, part in found.parts.items()
    ]


def _put_all(lines: Iterable[str]) -> bool:
    return all(put(line, sys.stdout) for line in lines)


def _drawn(found: _Status, trouble: TidemarkError | None = None) -> Group:
    """A table, and under it why something is not as it should be."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    colours = has_colour(sys.stdout)

    def coloured(text: str, colour: str) -> Text:
        return Text(one_line(text), colour if colours else "")

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("part", "state"):
        table.add_column(title, no_wrap=True)
    for title in ("sequence", "behind", "seconds"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    notes: list[Text] = []
    for name, part in found.parts.items():
        table.add_row(
            Text(one_line(name)),
            coloured(part.state, _COLOURS.get(part.state, "")),
            _number(part.last_sequence),
            _number(part.lag_events),
            "" if part.lag_seconds is None else f"{part.lag_seconds:,.1f}",
            Text(one_line(_remark(part))),
        )
        if part.reason and part.state not in _WELL:
            notes.append(coloured(f"{name}: {part.reason}", _COLOURS.get(part.state, "")))
    if trouble is not None:
        told = f"{trouble.message}; this is of {found.checked_at}, trying again"
        notes.append(coloured(told, "red"))
    return Group(table, *notes)


def _remark(part: _Part) -> str:
    if part.state == "disabled":
        return part.reason
    said = [] if part.slowest_trigger is None else [f"slowest trigger {part.slowest_trigger}"]
    webhooks = part.webhooks
    if webhooks is not None:
        oldest = webhooks.oldest_waiting_seconds
        waited = "" if oldest is None else f" for up to {oldest:,.0f} s"
        said.append(f"webhooks: {webhooks.waiting} waiting{waited}, {webhooks.dead} dead")
    return "; ".join(said)


def _number(text: str | None) -> str:
    if text is None or not text.isdecimal():
        return ""
    return f"{int(text):,}"
