"""Files of events, read one event at a time: JSON lines, or CSV with a header.

What is wrong with one line is a fault of that line, and reading goes on behind it. What makes the
rest of a file unreadable is an `EventFileError`. Whatever the size of the file, no more of it is
in memory than one event.
"""

from __future__ import annotations

import csv
import difflib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import BinaryIO, Final, Literal, NamedTuple, TypeAlias

import msgspec

from tidemark.errors import EventRejected, TidemarkError

FileForm: TypeAlias = Literal["jsonl", "csv"]

STANDARD_INPUT: Final = "-"
MAX_LINE_BYTES: Final = 1_048_576

RECEIVED_AT: Final = "receivedAt"
META_PREFIX: Final = "meta."
# Cells of these columns hold JSON text; those of the others are text as it is.
JSON_COLUMNS: Final = ("meta", "data", "event")
COLUMNS: Final = (
    "tenantId",
    "metric",
    "customerRef",
    "resourceId",
    "ts",
    "quantity",
    "idempotencyKey",
    "causalityKey",
    "source",
    "stream",
    "occurredAt",
    "control",
    "target",
    "reason",
    "periodStart",
    *JSON_COLUMNS,
)

# How much of a line that cannot be read is kept, to show which one it was.
_KEPT_BYTES: Final = 4_096
_SKIPPED_BYTES: Final = 65_536
_UTF8_MARK: Final = b"\xef\xbb\xbf"
_NEAR_ENOUGH: Final = 0.6
# How files begin that are no text in UTF-8, and what to do with them.
_FOREIGN_STARTS: Final = {
    b"\x1f\x8b": ("is compressed", "Unpack it: gunzip -c FILE | tidemark … -"),
    b"PK\x03\x04": ("is a ZIP archive or a workbook", "Unpack it, or save the sheet as CSV."),
    b"\xff\xfe": ("is UTF-16 text", "Save it as UTF-8."),
    b"\xfe\xff": ("is UTF-16 text", "Save it as UTF-8."),
}

_one_value = msgspec.json.Decoder(msgspec.Raw).decode
_encode = msgspec.json.Encoder().encode


class EventFileError(TidemarkError):
    """A file of events cannot be read, or not any further; the message names the line."""

    code = "event_file_unreadable"


class EventLine(msgspec.Struct, frozen=True, gc=False):
    """One event of a file as JSON text, or what is wrong with its line.

    `number` is the line it begins on, counted from 1. With a `fault` there is no event, and `raw`
    is the beginning of the line.
    """

    number: int
    raw: bytes
    fault: EventRejected | None = None
    file: str = ""


def form_of(name: str) -> FileForm:
    """What a file holds, by its name; standard input holds JSON lines unless one is told."""
    return "csv" if PurePath(name).suffix.lower() == ".csv" else "jsonl"


@contextmanager
def open_events(name: str) -> Iterator[BinaryIO]:
    """The file of this name, or standard input for `-`."""
    if name == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        stream = open(name, "rb")  # noqa: SIM115
    except OSError as error:
        raise EventFileError(
            f"{name} cannot be read: {error.strerror}",
            hint="Check the name and the permissions of the file.",
        ) from error
    with stream:
        yield stream


def read_events(
    stream: BinaryIO,
    form: FileForm,
    *,
    file: str = "",
    history: bool = False,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Iterator[EventLine]:
    """The events of a file in the order of their lines; empty lines are none.

    `file` is its name in messages. A `history` has the column `receivedAt`, other files may not.
    """
    name = "standard input" if file == STANDARD_INPUT else file or "the file"
    lines = _Lines(stream, name, max_line_bytes)
    if form == "csv":
        return _csv_events(lines, history)
    return _json_events(lines)


class _Lines:
    """The lines of a file, none longer than the limit, and where each of them stands."""

    def __init__(self, stream: BinaryIO, file: str, limit: int) -> None:
        self.file = file
        self.limit = limit
        self.number = 0
        self._stream = stream

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> bytes:
        """The next line, or `_Unreadable` if it is too long or not UTF-8."""
        line = self._stream.readline(self.limit + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if self.number == 1:
            line = self._without_mark(line)
        if len(line) > self.limit and not line.endswith(b"\n"):
            self._skip_rest()
            raise _Unreadable(line, _too_long(self.limit))
        if not line.isascii():
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise _Unreadable(line, _not_utf8(error)) from None
        return line

    def fatal(self, line: int, message: str, hint: str) -> EventFileError:
        return EventFileError(f"{self.file}, line {line}: {message}", hint=hint)

    def _without_mark(self, line: bytes) -> bytes:
        for start, (what, hint) in _FOREIGN_STARTS.items():
            if line.startswith(start):
                raise EventFileError(f"{self.file} {what}", hint=hint)
        return line.removeprefix(_UTF8_MARK)

    def _skip_rest(self) -> None:
        while (rest := self._stream.readline(_SKIPPED_BYTES)) and not rest.endswith(b"\n"):
            pass


class _Unreadable(Exception):
    """One line cannot be read, and why."""

    def __init__(self, line: bytes, fault: EventRejected) -> None:
        super().__init__(fault.message)
        self.line = line[:_KEPT_BYTES]
        self.fault = fault


def _json_events(lines: _Lines) -> Iterator[EventLine]:
    begun = False
    while True:
        try:
            line = next(lines).strip()
        except StopIteration:
            return
        except _Unreadable as unreadable:
            yield EventLine(lines.number, unreadable.line, unreadable.fault, lines.file)
            continue
        if not line:
            continue
        if not begun and line.startswith(b"["):
            raise lines.fatal(
                lines.number,
                "a JSON array begins here",
                "Write one event a line and no brackets around them, as `jq -c '.[]'` does.",
            )
        begun = True
        yield EventLine(lines.number, line, None, lines.file)


class _Column(NamedTuple):
    name: str
    is_json: bool
    # The member of `meta` that it is.
    meta: str | None


def _csv_events(lines: _Lines, history: bool) -> Iterator[EventLine]:
    columns: list[_Column] | None = None
    for number, cells in _records(lines):
        if isinstance(cells, _Unreadable):
            if columns is None:
                raise lines.fatal(number, cells.fault.message, cells.fault.hint)
            yield EventLine(number, cells.line, cells.fault, lines.file)
        elif columns is None:
            columns = _header(cells, lines, number, history)
        else:
            try:
                yield EventLine(number, _event(columns, cells), None, lines.file)
            except EventRejected as fault:
                kept = ",".join(cells).encode()[:_KEPT_BYTES]
                yield EventLine(number, kept, fault, lines.file)


def _records(lines: _Lines) -> Iterator[tuple[int, list[str] | _Unreadable]]:
    """The first line of each record, and its cells or why there are none."""
    text = _RecordText(lines)
    reader = csv.reader(text, strict=True)
    while True:
        text.begin_record()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except (csv.Error, _Unreadable) as error:
            yield text.first, text.explain(error)
        else:
            if any(cells):
                yield text.first, cells


class _RecordText:
    """What the CSV module reads: the lines as text, of one record not more than the limit.

    It is no generator, since it has to go on after an error.
    """

    def __init__(self, lines: _Lines) -> None:
        self.first = 0
        self._lines = lines
        self._line = b""
        self._bytes = 0

    def begin_record(self) -> None:
        self.first = self._lines.number + 1
        self._bytes = 0

    def __iter__(self) -> _RecordText:
        return self

    def __next__(self) -> str:
        self._line = next(self._lines)
        self._bytes += len(self._line)
        if self._bytes > self._lines.limit:
            raise _Unreadable(self._line, _too_long(self._lines.limit))
        return self._line.decode()

    def explain(self, error: csv.Error | _Unreadable) -> _Unreadable:
        """The fault of a record of one line. That of a longer one is the end of the file, because
        nobody can tell where the next record begins."""
        if self._lines.number > self.first:
            reason = error.fault.message if isinstance(error, _Unreadable) else str(error)
            raise self._lines.fatal(
                self.first,
                f"a cell that runs over several lines begins here and is broken: {reason}",
                "Look for a quote that is not closed; a quote inside a cell is written twice.",
            )
        if isinstance(error, _Unreadable):
            return error
        fault = EventRejected(
            f"the line is not CSV: {error}",
            code="malformed_line",
            hint="Put a cell with commas, quotes or line ends in quotes, and double those in it.",
        )
        return _Unreadable(self._line, fault)


def _header(cells: Sequence[str], lines: _Lines, number: int, history: bool) -> list[_Column]:
    names = [cell.strip() for cell in cells]
    known = (*COLUMNS, RECEIVED_AT) if history else COLUMNS
    for position, name in enumerate(names, 1):
        if not name:
            raise lines.fatal(number, f"column {position} has no name", "Name it or remove it.")
        if name not in known and not (name.startswith(META_PREFIX) and name != META_PREFIX):
            raise lines.fatal(
                number, f"there is no column `{name}`", _column_hint(name, known, len(names))
            )
        if name in names[: position - 1]:
            raise lines.fatal(number, f"there are two columns `{name}`", "Remove one of them.")
    if "meta" in names and any(name.startswith(META_PREFIX) for name in names):
        raise lines.fatal(
            number,
            "there is a column `meta` beside columns of its members",
            "Keep `meta` as JSON in one column, or each member in a column of its own.",
        )
    if history and RECEIVED_AT not in names:
        raise lines.fatal(
            number,
            f"there is no column `{RECEIVED_AT}`",
            "A history says of each event when it was received.",
        )
    return [
        _Column(
            name,
            name in JSON_COLUMNS,
            name.removeprefix(META_PREFIX) if name.startswith(META_PREFIX) else None,
        )
        for name in names
    ]


def _column_hint(name: str, known: Sequence[str], columns: int) -> str:
    if name == RECEIVED_AT:
        return "When an event is received is for the ledger to say; `tidemark import` keeps it."
    for separator, called in ((";", "semicolons"), ("\t", "tabs")):
        if columns == 1 and separator in name:
            return f"Separate the cells by commas, not by {called}."
    folded = {column.lower(): column for column in known}
    near = difflib.get_close_matches(
        name.lower().replace("_", ""), folded, n=1, cutoff=_NEAR_ENOUGH
    )
    if near:
        return f"Did you mean `{folded[near[0]]}`?"
    return f"There are {', '.join(f'`{column}`' for column in known)} and `{META_PREFIX}…`."


def _event(columns: Sequence[_Column], cells: Sequence[str]) -> bytes:
    """A record as the event it stands for; an empty cell is an absent field."""
    if len(cells) != len(columns):
        raise EventRejected(
            f"the line has {len(cells)} cells where the header has {len(columns)}",
            code="malformed_line",
            hint="Give every line as many cells as the header, empty ones where there is nothing.",
        )
    members: dict[str, object] = {}
    meta: dict[str, str] = {}
    for column, cell in zip(columns, cells, strict=True):
        if not cell:
            continue
        if column.meta is not None:
            meta[column.meta] = cell
        elif column.is_json:
            members[column.name] = _json_cell(column.name, cell)
        else:
            members[column.name] = cell
    if meta:
        members["meta"] = meta
    return _encode(members)


def _json_cell(name: str, cell: str) -> msgspec.Raw:
    try:
        # One value and nothing behind it: a cell must not reach into the rest of the event.
        return _one_value(cell.encode())
    except (msgspec.MsgspecError, RecursionError) as error:
        raise EventRejected(
            f"`{name}` is not JSON: {error}",
            code="malformed_event",
            field=name,
            hint="The cell holds one JSON value, in quotes, each quote inside it written twice.",
        ) from None


def _too_long(limit: int) -> EventRejected:
    return EventRejected(
        f"the line has more than {limit} bytes",
        code="line_too_long",
        hint="Write each event on a line of its own, ended by a line feed.",
    )


def _not_utf8(error: UnicodeDecodeError) -> EventRejected:
    return EventRejected(
        f"the line is not UTF-8 (byte {error.start})",
        code="not_utf8",
        hint="Save the file as UTF-8.",
    )
