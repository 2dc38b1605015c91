"""`tidemark causality`: the history of one run, drawn as a timeline on a terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

import click
import msgspec

from tidemark.cli.answers import not_ours
from tidemark.cli.asking import Asking
from tidemark.cli.event_text import ShownEvent, content_text
from tidemark.cli.listing import Kind, Page, limit_option, write_entries
from tidemark.cli.options import Server, json_option, server, server_options
from tidemark.cli.outcome import usage_error
from tidemark.cli.output import has_colour, is_live, one_line, plural, put
from tidemark.cli.timeline import (
    Moment,
    Scale,
    cropped,
    duration_text,
    layout,
    marks_for,
    timeline_lines,
)
from tidemark.errors import TidemarkError
from tidemark.timestamps import parse_timestamp

_PATH: Final = "/admin/causality/"
_LARGEST_PAGE: Final = 1000
# More tenants or streams are counted; the line that sums up is one.
_MOST_NAMED: Final = 5
_NOTHING: Final = msgspec.Raw(b"")
_LINES: Final = Kind(
    _PATH,
    "events",
    (
        *("ingressSequence", "receivedAt", "occurredAt", "tenantId", "stream"),
        *("control", "target", "targetSequence", "voidedBy", "amendedBy"),
        *("metric", "customerRef", "resourceId", "quantity", "meta", "data"),
        *("idempotencyKey", "contentHash", "source", "sourceId", "globalSequence"),
    ),
    (),
    "",
)

T = TypeVar("T")


class TenantCount(msgspec.Struct, rename="camel"):
    tenant_id: str
    count: int


class StreamCount(msgspec.Struct, rename="camel"):
    stream: str
    count: int


class Run(msgspec.Struct, rename="camel"):
    """What a run comes to, as far as it is shown."""

    causality_key: str
    count: int
    complete: bool
    tenants: list[TenantCount]
    streams: list[StreamCount]
    last_sequence: str
    first_received_at: str
    last_received_at: str
    received_duration_ms: int


class RunEvent(ShownEvent):
    """An event, and which other events it corrects or is corrected by."""

    target_sequence: str | None = None
    voided_by: str | None = None
    amended_by: str | None = None


class _RunPage(msgspec.Struct, rename="camel"):
    events: list[msgspec.Raw]
    next_cursor: str | None
    run: msgspec.Raw = _NOTHING


@click.command
@click.argument("key", metavar="KEY")
@click.option("--tenant", metavar="NAME", help="Only events of this tenant.")
@limit_option
@server_options
@json_option
def causality(
    key: str,
    tenant: str | None,
    limit: int | None,
    url: str | None,
    api_key: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Show the history of one run.

    KEY is the causality key that its events carry. They are shown in the order of the ledger,
    across all streams and tenants; on a terminal as a timeline. A running server is asked.
    """
    path = _path_of(key)
    pages = _pages(path, server(url, api_key, config_path), tenant, limit)
    if as_json:
        _write_json(pages)
    elif is_live(sys.stdout):
        _draw(pages)
    else:
        write_entries(_LINES, (Page(page.events) for page in pages))


def _path_of(key: str) -> str:
    if not key:
        raise usage_error("KEY is empty", "Give the causalityKey of an event.")
    try:
        # A segment of nothing but dots would be a step along the path.
        return _PATH + quote(key, safe="").replace(".", "%2E")
    except UnicodeEncodeError:
        raise usage_error("KEY is not UTF-8", "Keys are Unicode text.") from None


def _pages(path: str, target: Server, tenant: str | None, limit: int | None) -> Iterator[_RunPage]:
    """The pages of a run, fetched as they are needed; the first says what the run comes to."""
    asking = Asking(target)
    query = {} if tenant is None else {"tenantId": tenant}
    left = limit
    while True:
        size = _LARGEST_PAGE if left is None else min(_LARGEST_PAGE, left)
        page = _decoded(asking.get(path, {**query, "limit": str(size)}, "run").data, _RunPage)
        yield page
        if left is not None:
            left -= len(page.events)
        if page.next_cursor is None or left == 0:
            return
        query["cursor"] = page.next_cursor


def _write_json(pages: Iterable[_RunPage]) -> None:
    """What the run comes to, then one event a line."""
    for page in pages:
        run = bytes(page.run).decode()
        lines = [f'{{"run":{run}}}'] if run else []
        for line in chain(lines, (bytes(event).decode() for event in page.events)):
            if not put(line, sys.stdout):
                return


def _draw(pages: Iterator[_RunPage]) -> None:
    """The name of the run, a line for each event, and what it comes to."""
    first = next(pages)
    run = _decoded(first.run, Run)
    columns, marks = shutil.get_terminal_size().columns, marks_for(sys.stdout.encoding)
    scale = Scale(_micros(run.first_received_at), _micros(run.last_received_at))
    widths = layout(
        columns,
        scale,
        sequences=[run.last_sequence],
        streams=[_shown(it.stream) for it in run.streams],
        tenants=[_shown(it.tenant_id) for it in run.tenants],
    )
    moments = (
        moment_of(_decoded(raw, RunEvent)) for page in chain([first], pages) for raw in page.events
    )
    drawn = timeline_lines(moments, scale, widths, marks, has_colour=has_colour(sys.stdout))
    if not put(cropped(_shown(f"run {run.causality_key}"), columns, marks), sys.stdout):
        return
    shown = 0
    for line in drawn:
        if not put(line, sys.stdout):
            return
        shown += 1
    put(cropped(_shown(summary_text(run, shown)), columns, marks), sys.stdout)


def moment_of(event: RunEvent) -> Moment:
    """An event as it stands on the timeline."""
    if event.target_sequence is not None:
        # On the timeline an event is found by its number.
        event.target = f"of {event.target_sequence}"
    text = content_text(event)
    if event.voided_by is not None:
        text = f"voided by {event.voided_by}: {text}"
    elif event.amended_by is not None:
        text = f"amended by {event.amended_by}: {text}"
    return Moment(
        event.ingress_sequence,
        _micros(event.received_at),
        _shown(event.stream),
        _shown(event.tenant_id),
        _shown(text),
        is_control=event.control is not None,
        is_void=event.voided_by is not None,
    )


def summary_text(run: Run, shown: int) -> str:
    """What a run comes to, of which so many events are shown."""
    count = plural(run.count, "event")
    if not run.complete:
        count = f"at least {count}"
    part = f"the first {shown:,} of " if shown < run.count else ""
    duration = duration_text(run.received_duration_ms * 1000)
    tenants = _named((it.tenant_id, it.count) for it in run.tenants)
    streams = _named((it.stream, it.count) for it in run.streams)
    return f"{part}{count} in {duration}: {streams}; {tenants}"


def _named(counts: Iterable[tuple[str, int]]) -> str:
    """The names with the largest counts, and how many more there are."""
    ordered = sorted(counts, key=lambda it: (-it[1], it[0]))
    text = ", ".join(f"{name} {count:,}" for name, count in ordered[:_MOST_NAMED])
    more = len(ordered) - _MOST_NAMED
    return f"{text} and {more:,} more" if more > 0 else text


def _shown(text: str) -> str:
    """The text as the terminal gets it: what its encoding lacks is an escape, and longer."""
    encoding = sys.stdout.encoding
    return one_line(text).encode(encoding, "backslashreplace").decode(encoding)


def _micros(time: str) -> int:
    try:
        return parse_timestamp(time)
    except TidemarkError:
        raise not_ours(f"a time that cannot be read: {time[:64]!r}") from None


def _decoded(raw: bytes | msgspec.Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError:
        raise not_ours("a run that cannot be read") from None
