"""Lists that a server answers page by page: as a table for people, as lines for programs.

On a terminal there is a table with what matters most; in a pipe, tab-separated lines with all there
is. `--json` gives one document a line and `--csv` the server's own CSV.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import click
import msgspec
import urllib3

from tidemark.cli.answers import not_ours
from tidemark.cli.asking import Asking
from tidemark.cli.options import Server
from tidemark.cli.outcome import usage_error
from tidemark.cli.output import discard, is_live, one_line, printable, put, write_note

_LARGEST_PAGE: Final = 1000
_ROW_ENDS: Final = "\r\n"

Entry = dict[str, Any]
Cell = Callable[[Entry], str]


class Column(msgspec.Struct, frozen=True):
    """A column of the table for people; numbers stand on the right."""

    title: str
    cell: Cell
    is_number: bool = False


class Kind(msgspec.Struct, frozen=True):
    """What is listed: where it is, its name in the answer, all its fields, and the table."""

    path: str
    name: str
    fields: Sequence[str]
    columns: Sequence[Column]
    nothing: str


class Page(msgspec.Struct):
    """Some entries of a list, as of a sequence if it has one, and where to go on."""

    entries: list[msgspec.Raw]
    frontier: str | None = None
    next_cursor: str | None = None


def show_list(
    kind: Kind,
    target: Server,
    query: Mapping[str, str | None],
    *,
    limit: int | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Write everything that is asked for, or so many entries of it, as it arrives."""
    if as_json and as_csv:
        raise usage_error("--json and --csv exclude each other", field="csv")
    asked = {name: value for name, value in query.items() if value is not None}
    pages = _Pages(kind, target, asked, limit)
    if as_csv:
        _write_csv(pages)
    else:
        show_pages(kind, pages.json(), as_json=as_json)


def show_pages(kind: Kind, pages: Iterator[Page], *, as_json: bool) -> None:
    """Write pages as they arrive: as JSON, as a table on a terminal, else as lines."""
    if as_json:
        _write_json(pages)
    elif is_live(sys.stdout):
        _write_table(kind, pages)
    else:
        write_entries(kind, pages)


def since(text: str | None) -> str | None:
    """A time as the server takes it; a date alone is the beginning of that day in UTC."""
    if text is not None and len(text) == len("2025-01-31") and text.count("-") == 2:
        return f"{text}T00:00:00Z"
    return text


class _Pages:
    """The pages of one list, fetched as they are needed."""

    def __init__(
        self, kind: Kind, target: Server, query: dict[str, str], limit: int | None
    ) -> None:
        self._kind = kind
        self._asking = Asking(target)
        self._query = query
        self._left = limit

    def json(self) -> Iterator[Page]:
        cursor: str | None = None
        while True:
            answer = self._fetch("json", cursor)
            try:
                members = msgspec.json.decode(answer.data, type=dict[str, msgspec.Raw])
                page = Page(
                    msgspec.json.decode(members[self._kind.name], type=list[msgspec.Raw]),
                    msgspec.json.decode(members["frontier"], type=str),
                    msgspec.json.decode(members["nextCursor"], type=str | None),
                )
            except (msgspec.MsgspecError, KeyError):
                raise not_ours(f"an answer of {self._kind.path} that cannot be read") from None
            yield page
            self._count(len(page.entries))
            cursor = page.next_cursor
            if cursor is None or self._left == 0:
                return

    def csv(self) -> Iterator[str]:
        """The text of all pages, with one header."""
        cursor: str | None = None
        is_first = True
        while True:
            answer = self._fetch("csv", cursor)
            if not answer.headers.get("content-type", "").startswith("text/csv"):
                raise not_ours(f"an answer of {self._kind.path} that is no CSV")
            # The names in a header need no quotes, so it ends where its line does.
            header, ends, rows = answer.data.decode().partition(_ROW_ENDS)
            yield header + ends + rows if is_first else rows
            is_first = False
            # In CSV a row may hold the ends of lines; how many there were, only a reader knows.
            if self._left is not None:
                self._count(_rows_in(rows))
            cursor = answer.headers.get("tidemark-next-cursor")
            if cursor is None or self._left == 0:
                return

    def _count(self, entries: int) -> None:
        if self._left is not None:
            self._left -= entries

    def _fetch(self, form: str, cursor: str | None) -> urllib3.BaseHTTPResponse:
        page = _LARGEST_PAGE if self._left is None else min(_LARGEST_PAGE, self._left)
        query = {**self._query, "format": form, "limit": str(page)}
        if cursor is not None:
            query["cursor"] = cursor
        return self._asking.get(self._kind.path, query, "list")


def _write_json(pages: Iterator[Page]) -> None:
    for page in pages:
        for entry in page.entries:
            if not put(bytes(entry).decode(), sys.stdout):
                return


def _write_csv(pages: _Pages) -> None:
    live = is_live(sys.stdout)
    for text in pages.csv():
        try:
            sys.stdout.write(printable(text.replace(_ROW_ENDS, "\n")) if live else text)
            sys.stdout.flush()
        except BrokenPipeError:
            discard(sys.stdout)
            return


def write_entries(kind: Kind, pages: Iterator[Page]) -> None:
    """Tab-separated, with a header; an absent value is empty."""
    has_header = False
    for page in pages:
        # Not before there is an answer: a refusal has no header.
        if not has_header and not put("\t".join(kind.fields), sys.stdout):
            return
        has_header = True
        for entry in map(_entry, page.entries):
            cells = (one_line(_text(entry.get(name))) for name in kind.fields)
            if not put("\t".join(cells), sys.stdout):
                return


def _write_table(kind: Kind, pages: Iterator[Page]) -> None:
    """A table for each page: all of a list may be more than fits into memory."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    shown, frontier = 0, None
    for page in pages:
        frontier = page.frontier
        if not page.entries:
            continue
        entries = [_entry(raw) for raw in page.entries]
        table = Table(box=None, header_style="bold", pad_edge=False)
        # A column in which nothing stands is left out.
        columns = [it for it in kind.columns if any(map(it.cell, entries))]
        for column in columns:
            table.add_column(column.title, justify="right" if column.is_number else "left")
        for entry in entries:
            table.add_row(*(Text(one_line(column.cell(entry))) for column in columns))
        console.print(table)
        shown += len(entries)
    if not shown:
        write_note(kind.nothing)
    if frontier is not None:
        write_note(f"as of sequence {frontier}")


def _entry(raw: msgspec.Raw) -> Entry:
    try:
        return msgspec.json.decode(raw, type=Entry)
    except msgspec.MsgspecError:
        raise not_ours("an entry that cannot be read") from None


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _rows_in(text: str) -> int:
    import csv
    import io

    return sum(1 for _ in csv.reader(io.StringIO(text, newline="")))


limit_option = click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="End after so many entries."
)
csv_option = click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header.")
