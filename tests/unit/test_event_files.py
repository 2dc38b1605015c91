"""Files of events: what each line is, and what is said of a line that is none."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.planted import assert_catches
from tidemark.errors import EventRejected
from tidemark.event_files import (
    COLUMNS,
    EventFileError,
    EventLine,
    FileForm,
    form_of,
    open_events,
    read_events,
)
from tidemark.ingress.controls import CONTROL_FIELDS
from tidemark.ingress.envelopes import COMMON_FIELDS, QuickEvent
from tidemark.ingress.usage import CONTENT_FIELDS

HEADER = "tenantId,metric,customerRef,ts,quantity\n"
ROW = "acme,api_calls,c1,2025-01-01T00:00:00Z,1\n"
EVENT = {
    "tenantId": "acme",
    "metric": "api_calls",
    "customerRef": "c1",
    "ts": "2025-01-01T00:00:00Z",
    "quantity": "1",
}


def read(content: str | bytes, form: FileForm, **options: Any) -> list[EventLine]:
    raw = content.encode() if isinstance(content, str) else content
    return list(read_events(io.BytesIO(raw), form, file="events", **options))


def events(content: str | bytes, form: FileForm = "csv", **options: Any) -> list[Any]:
    lines = read(content, form, **options)
    assert [line.fault for line in lines if line.fault is not None] == []
    return [json.loads(line.raw) for line in lines]


def fault_of(line: EventLine) -> EventRejected:
    assert line.fault is not None
    assert line.fault.hint
    return line.fault


def unreadable(content: str | bytes, form: FileForm = "csv", **options: Any) -> EventFileError:
    with pytest.raises(EventFileError) as caught:
        read(content, form, **options)
    assert caught.value.hint
    return caught.value


def test_each_line_of_json_is_an_event_with_its_number() -> None:
    lines = read(b'{"a":1}\n\n  \r\n{"b":2}\r\n  {"c":3}', "jsonl")
    assert [(line.number, line.raw) for line in lines] == [
        (1, b'{"a":1}'),
        (4, b'{"b":2}'),
        (5, b'{"c":3}'),
    ]
    assert {line.file for line in lines} == {"events"}


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert events(b'\xef\xbb\xbf{"a":1}\n', "jsonl") == [{"a": 1}]
    assert events(b"\xef\xbb\xbf" + (HEADER + ROW).encode()) == [EVENT]


def test_a_line_that_is_too_long_is_passed_over_and_the_next_one_is_read() -> None:
    long = b'{"a":"' + b"x" * 100_000 + b'"}'
    first, second, third = read(b'{"a":1}\n' + long + b'\n{"b":2}', "jsonl", max_line_bytes=64)
    assert (first.raw, third.raw, third.number) == (b'{"a":1}', b'{"b":2}', 3)
    assert (second.number, fault_of(second).code) == (2, "line_too_long")
    assert "64" in fault_of(second).message
    assert len(second.raw) <= 4096


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_a_line_of_exactly_the_limit_is_read(ending: bytes) -> None:
    line = b'{"a":"12345678"}'
    [only] = read(line + ending, "jsonl", max_line_bytes=len(line))
    assert only.fault is None


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_line_that_is_not_utf8_is_named_and_the_next_one_is_read(form: FileForm) -> None:
    header = HEADER.encode() if form == "csv" else b""
    good = ROW.encode() if form == "csv" else b'{"a":1}\n'
    first, second = read(header + b"acme\xff,x\n" + good, form)
    assert fault_of(first).code == "not_utf8"
    assert "byte 4" in fault_of(first).message
    assert second.fault is None
    assert second.number == first.number + 1


def test_a_json_array_is_no_file_of_lines() -> None:
    error = unreadable(b'\n[\n{"a":1}\n]\n', "jsonl")
    assert "line 2" in error.message
    assert "jq" in error.hint


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize(
    ("start", "word"),
    [
        (b"\x1f\x8b\x08", "compressed"),
        (b"PK\x03\x04", "ZIP"),
        ("tenantId".encode("utf-16"), "UTF-16"),
    ],
)
def test_a_file_of_another_kind_is_named(form: FileForm, start: bytes, word: str) -> None:
    assert word in unreadable(start + b"\n", form).message


def test_a_row_of_csv_is_an_event_and_an_empty_cell_is_an_absent_field() -> None:
    text = (
        "tenantId,metric,customerRef,resourceId,ts,quantity,meta.region,meta.zone\n"
        "acme,bytes,c1,,2025-01-01T00:00:00Z,1.50,eu,\n"
        "\n"
        ",,,,,,,\n"
        'acme,bytes,"c,""2""",disk,2025-01-01T00:00:00Z,2,,\n'
    )
    first, second = read(text, "csv")
    assert (first.number, second.number) == (2, 5)
    assert json.loads(first.raw) == {
        "tenantId": "acme",
        "metric": "bytes",
        "customerRef": "c1",
        "ts": "2025-01-01T00:00:00Z",
        "quantity": "1.50",
        "meta": {"region": "eu"},
    }
    assert json.loads(second.raw)["customerRef"] == 'c,"2"'
    assert "meta" not in json.loads(second.raw)


def test_columns_of_json_hold_json() -> None:
    text = (
        "stream,tenantId,data,occurredAt,meta\n"
        'trades,acme,"{""price"": 1.50}",2025-01-01T00:00:00Z,\n'
        ',acme,,,"{""n"":[1,null]}"\n'
    )
    lines = read(text, "csv")
    assert b"1.50" in lines[0].raw
    assert json.loads(lines[0].raw)["data"] == {"price": 1.5}
    assert json.loads(lines[1].raw) == {"tenantId": "acme", "meta": {"n": [1, None]}}


@pytest.mark.parametrize("cell", ['{"a":1},"tenantId":"other"', "{", "NaN", "[" * 100_000, "1 2"])
def test_a_cell_of_json_cannot_reach_into_the_rest_of_the_event(cell: str) -> None:
    quoted = cell.replace('"', '""')
    [line] = read(f'stream,tenantId,data\ntrades,acme,"{quoted}"\n', "csv")
    assert fault_of(line).code == "malformed_event"
    assert fault_of(line).field == "data"


def test_a_quoted_cell_may_run_over_several_lines() -> None:
    text = HEADER + 'acme,m,"two\nlines",t,1\n' + ROW
    first, second = read(text, "csv")
    assert json.loads(first.raw)["customerRef"] == "two\nlines"
    assert (first.number, second.number) == (2, 4)


@pytest.mark.parametrize("row", ["acme,m\n", "acme,m,c,t,1,2\n"])
def test_a_row_with_more_or_fewer_cells_than_the_header_is_refused(row: str) -> None:
    bad, good = read(HEADER + row + ROW, "csv")
    assert fault_of(bad).code == "malformed_line"
    assert "5" in fault_of(bad).message
    assert bad.raw == row.strip().encode()
    assert json.loads(good.raw) == EVENT


def test_a_broken_row_is_refused_and_the_next_one_is_read() -> None:
    bad, good = read(HEADER + '"acme"x,m,c,t,1\n' + ROW, "csv")
    assert fault_of(bad).code == "malformed_line"
    assert (bad.number, good.number) == (2, 3)
    assert json.loads(good.raw) == EVENT


@pytest.mark.parametrize("after", [ROW * 3, ROW * 3 + '"x"\n', ROW * 5000])
def test_a_quote_that_is_never_closed_ends_the_reading_with_its_line(after: str) -> None:
    error = unreadable(HEADER + ROW + 'acme,"m,c,t,1\n' + after, max_line_bytes=65_536)
    assert "line 3" in error.message
    assert "quote" in error.hint


@pytest.mark.parametrize(
    ("header", "message", "hint"),
    [
        ("tenantId,customer_ref", "`customer_ref`", "`customerRef`"),
        ("tenantId,Metric", "`Metric`", "`metric`"),
        ("tenantId,zzz", "`zzz`", "`tenantId`, `metric`"),
        ("tenantId;metric", "`tenantId;metric`", "semicolons"),
        ("tenantId\tmetric", "metric`", "tabs"),
        ("tenantId,,metric", "column 2", "remove"),
        ("tenantId,metric,metric", "two columns `metric`", "Remove"),
        ("tenantId,meta,meta.region", "`meta`", "JSON"),
        ("tenantId,meta.", "`meta.`", "`meta`"),
        ("tenantId,receivedAt", "`receivedAt`", "import"),
    ],
)
def test_a_header_that_cannot_be_meant_is_refused(header: str, message: str, hint: str) -> None:
    error = unreadable(f"{header}\n")
    assert "line 1" in error.message
    assert message in error.message
    assert hint in error.hint


def test_a_history_needs_the_column_that_other_files_may_not_have() -> None:
    assert "`receivedAt`" in unreadable(HEADER + ROW, history=True).message
    text = "tenantId,receivedAt\nacme,2025-01-01T00:00:00Z\n"
    assert events(text, history=True) == [
        {"tenantId": "acme", "receivedAt": "2025-01-01T00:00:00Z"}
    ]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff"])
def test_an_empty_file_holds_no_events(form: FileForm, content: str) -> None:
    assert read(content, form) == []


def test_the_columns_are_the_fields_that_an_event_can_have() -> None:
    fields = {*COMMON_FIELDS, *CONTENT_FIELDS, *CONTROL_FIELDS, *QuickEvent.__struct_fields__}
    assert set(COLUMNS) == fields


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.csv", "csv"), ("A.CSV", "csv"), ("a.jsonl", "jsonl"), ("a", "jsonl"), ("-", "jsonl")],
)
def test_the_name_of_a_file_says_what_it_holds(name: str, form: FileForm) -> None:
    assert form_of(name) == form


def test_a_file_is_opened_by_its_name_and_standard_input_by_a_dash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"a":1}\n')
    with open_events(str(path)) as stream:
        assert [line.raw for line in read_events(stream, "jsonl")] == [b'{"a":1}']
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"b":2}\n\xff\n')))
    with open_events("-") as stream:
        good, bad = read_events(stream, "jsonl", file="-")
    assert good.raw == b'{"b":2}'
    assert bad.file == "standard input"


def test_a_file_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    for name in ("not-there.jsonl", "."):
        with (
            pytest.raises(EventFileError, match="cannot be read"),
            open_events(str(tmp_path / name)),
        ):
            pass


class Endless(io.RawIOBase):
    """A file without end that counts what was asked of it."""

    def __init__(self, line: bytes) -> None:
        self._line = line
        self.given = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        piece = self._line if size is None or size < 0 else self._line[:size]
        self.given += len(piece)
        return piece


@pytest.mark.parametrize(("form", "start"), [("jsonl", b""), ("csv", HEADER.encode())])
def test_no_more_of_a_file_is_read_than_is_asked_for(form: FileForm, start: bytes) -> None:
    endless = Endless(start or b'{"a":1}\n')
    lines = read_events(endless, form)  # type: ignore[arg-type]
    next(lines)
    assert endless.given <= 1000


Reading = Callable[[str], list[dict[str, str]]]
cells = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
tables = st.lists(st.lists(cells, min_size=2, max_size=2), max_size=6)


def our_reading(text: str) -> list[dict[str, str]]:
    return events(text)


def reading_line_by_line(text: str) -> list[dict[str, str]]:
    """The planted bug: a line end always ends the record."""
    header, *lines = text.splitlines()
    rows = [next(csv.reader([line])) for line in lines if line]
    names = header.split(",")
    return [{name: cell for name, cell in zip(names, row, strict=False) if cell} for row in rows]


def every_cell_arrives_as_it_was(reading: Reading) -> Callable[[], None]:
    @given(tables)
    def check(rows: list[list[str]]) -> None:
        written = "".join(
            ",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n" for row in rows
        )
        assert reading("tenantId,source\n" + written) == [
            {name: cell for name, cell in zip(("tenantId", "source"), row, strict=True) if cell}
            for row in rows
            if any(row)
        ]

    return check


def test_every_cell_arrives_as_it_was() -> None:
    every_cell_arrives_as_it_was(our_reading)()


def test_that_property_catches_a_reader_that_does_not_know_cells_of_several_lines() -> None:
    assert_catches(every_cell_arrives_as_it_was, reading_line_by_line)
