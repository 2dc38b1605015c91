"""`usage`, `adjustments` and `errors`: what was made of the events, for people and for programs."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.acceptance.cli_runs import (
    PROGRAM,
    environment,
    on_terminal,
    started,
    tidemark,
    without_escapes,
)
from tests.integration.filled_views import FilledViews, MeterRow, counters
from tests.services.http_calls import call
from tests.services.ports import free_port
from tests.services.tidemark_server import TidemarkServer
from tidemark.cli.usage import ADJUSTMENTS, ERRORS, USAGE
from tidemark.ops.adjustments import AdjustmentEntry
from tidemark.ops.pipeline_errors import PipelineErrorEntry
from tidemark.ops.usage import UsageEntry
from tidemark.timestamps import parse_timestamp

CONFIG: Final = """
streams:
  usage:
    kind: usage
    fields:
      region: {type: string, required: false}
meters:
  bytes: {}
  seats: {aggregate: max, group_by: [region]}
"""
JANUARY, FEBRUARY = "2025-01-01T00:00:00Z", "2025-02-01T00:00:00Z"
# More than one page of the server holds.
MANY: Final = 1200


@pytest.fixture(scope="module")
def server() -> Iterator[TidemarkServer]:
    """With usage of three tenants: a few rows, one with a name that drives terminals, and many."""
    with TidemarkServer(CONFIG) as running:
        event = {"tenantId": "acme", "metric": "bytes", "customerRef": "c", "quantity": 1}
        sent = [{**event, "ts": JANUARY}, {**event, "ts": FEBRUARY}]
        assert call(running.base_url, "POST", "/v1/events", json={"events": sent}).status == 200
        last = parse_timestamp("2025-01-31T12:00:00.5Z")
        FilledViews(running.config_path, running.env).commit(
            MeterRow(
                "bytes", "acme", "c", JANUARY, counters("12.50", adjusted="1", watermark_ts=last)
            ),
            MeterRow("bytes", "acme", "c", FEBRUARY, counters("7")),
            MeterRow("seats", "acme", "c", JANUARY, counters("3"), ("eu",)),
            MeterRow("bytes", "evil", "\x1b[31m[red]\tx\ny", JANUARY, counters("1")),
            *(
                MeterRow("bytes", "many", f"c{number:04}", JANUARY, counters("1"))
                for number in range(MANY)
            ),
            adjustments=[
                {
                    "ingress_sequence": 1,
                    "view": "bytes",
                    "tenant_id": "acme",
                    "metric": "bytes",
                    "customer_ref": "c",
                    "period_start": JANUARY,
                    "amount": "1",
                    "idempotency_key": "key-1",
                    "original_key": "key-0",
                    "original_sequence": 7,
                    "reason": "void, late",
                }
            ],
            errors=[
                {
                    "ingress_sequence": 2,
                    "code": "overflow",
                    "message": "too large",
                    "tenant_id": "acme",
                    "stream": "usage",
                    "idempotency_key": "key-2",
                }
            ],
        )
        yield running
        assert "Traceback" not in running.log_text(), running.log_text()


def rows_of(text: str) -> list[dict[str, str]]:
    """Of tab-separated lines."""
    return list(csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE))


def test_every_field_of_an_answer_is_a_column() -> None:
    for kind, entry in (
        (USAGE, UsageEntry),
        (ADJUSTMENTS, AdjustmentEntry),
        (ERRORS, PipelineErrorEntry),
    ):
        assert list(kind.fields) == [it.encode_name for it in msgspec.structs.fields(entry)]


def test_in_a_pipe_usage_is_tab_separated_with_a_header(
    tmp_path: Path, server: TidemarkServer
) -> None:
    ran = tidemark("usage", "--tenant", "acme", "--url", server.base_url, cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    rows = rows_of(ran.out)
    assert [(row["meter"], row["periodStart"], row["total"]) for row in rows] == [
        ("bytes", "2025-01-01T00:00:00.000000Z", "13.5"),
        ("bytes", "2025-02-01T00:00:00.000000Z", "7"),
        ("seats", "2025-01-01T00:00:00.000000Z", "3"),
    ]
    assert (rows[0]["counted"], rows[0]["adjusted"], rows[0]["groups"]) == ("12.5", "1", "")
    assert rows[2]["groups"] == '{"region":"eu"}'


@pytest.mark.parametrize(
    ("options", "totals"),
    [
        (["--metric", "bytes"], ["13.5", "7"]),
        (["--meter", "seats"], ["3"]),
        (["--customer", "nobody"], []),
        # A date alone is the beginning of the day in UTC.
        (["--from", "2025-02-01"], ["7"]),
        (["--to", "2025-02-01"], ["13.5", "3"]),
        (["--to", "2025-02-01T00:00:00+01:00"], ["13.5", "3"]),
        (["--limit", "2"], ["13.5", "7"]),
        (["--min-sequence", "2", "--wait", "1"], ["13.5", "7", "3"]),
    ],
)
def test_every_filter_of_usage(
    tmp_path: Path, server: TidemarkServer, options: list[str], totals: list[str]
) -> None:
    args = ["usage", "--tenant", "acme", *options, "--json", "--url", server.base_url]
    ran = tidemark(*args, cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert [entry["total"] for entry in ran.json_lines] == totals


@pytest.mark.parametrize(
    ("command", "path", "name"),
    [
        ("usage", "/v1/usage", "usage"),
        ("adjustments", "/v1/adjustments", "adjustments"),
        ("errors", "/admin/pipeline-errors", "errors"),
    ],
)
def test_json_and_csv_are_those_of_the_server(
    tmp_path: Path, server: TidemarkServer, command: str, path: str, name: str
) -> None:
    query = "?tenantId=acme"
    expected = call(server.base_url, "GET", path + query).json[name]
    options = ("--tenant", "acme", "--url", server.base_url)
    assert tidemark(command, *options, "--json", cwd=tmp_path).json_lines == expected
    table = subprocess.run(
        [PROGRAM, command, *options, "--csv"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        check=True,
    )
    assert table.stdout == call(server.base_url, "GET", f"{path}{query}&format=csv").body


@pytest.mark.parametrize(
    ("command", "options", "count"),
    [
        ("adjustments", ["--sequence", "1"], 1),
        ("adjustments", ["--sequence", "2"], 0),
        ("adjustments", ["--original", "7"], 1),
        ("adjustments", ["--meter", "seats"], 0),
        ("errors", ["--code", "overflow", "--stream", "usage"], 1),
        ("errors", ["--sequence", "1"], 0),
        ("errors", ["--tenant", "nobody"], 0),
    ],
)
def test_every_filter_of_adjustments_and_errors(
    tmp_path: Path, server: TidemarkServer, command: str, options: list[str], count: int
) -> None:
    ran = tidemark(command, *options, "--json", "--url", server.base_url, cwd=tmp_path)
    assert (ran.code, len(ran.json_lines)) == (0, count)


@pytest.mark.parametrize("limit", [None, 1000, 1001, 1100])
@pytest.mark.parametrize("form", ["--json", "--csv", None])
def test_a_long_list_is_whole_and_has_one_header(
    tmp_path: Path, server: TidemarkServer, form: str | None, limit: int | None
) -> None:
    options = [*([form] if form else []), *(["--limit", limit] if limit else [])]
    ran = tidemark("usage", "--tenant", "many", *options, "--url", server.base_url, cwd=tmp_path)
    if form == "--json":
        found = [entry["customerRef"] for entry in ran.json_lines]
    elif form == "--csv":
        found = [row["customerRef"] for row in csv.DictReader(io.StringIO(ran.out, newline=""))]
    else:
        found = [row["customerRef"] for row in rows_of(ran.out)]
    assert found == [f"c{number:04}" for number in range(limit or MANY)]


def test_on_a_terminal_there_is_a_table(tmp_path: Path, server: TidemarkServer) -> None:
    args = ("--tenant", "acme", "--url", server.base_url)
    ran = on_terminal("usage", *args, cwd=tmp_path)
    lines = [line.rstrip() for line in without_escapes(ran.out).splitlines()]
    assert ran.code == 0
    assert lines[0].split() == [
        *("METER", "TENANT", "CUSTOMER", "GROUPS", "PERIOD"),
        *("COUNTED", "ADJUSTED", "TOTAL", "EVENTS", "UP", "TO"),
    ]
    assert "2025-01-01 – 2025-02-01" in lines[1]
    assert lines[1].split()[-5:] == ["12.5", "1", "13.5", "1", "2025-01-31T12:00:00.500000Z"]
    assert "region=eu" in lines[3]
    assert lines[-1] == "as of sequence 2"
    text = on_terminal("adjustments", *args, cwd=tmp_path).out
    assert "void, late" in text
    assert "CORRECTS" in text
    assert "too large" in on_terminal("errors", *args, cwd=tmp_path).out
    nothing = on_terminal("errors", "--tenant", "x", *args[2:], cwd=tmp_path)
    assert (nothing.code, nothing.out) == (0, "No errors were found.\nas of sequence 2\n")


def test_nothing_in_a_row_drives_the_terminal_or_breaks_a_line(
    tmp_path: Path, server: TidemarkServer
) -> None:
    args = ("usage", "--tenant", "evil", "--url", server.base_url)
    [row] = rows_of(tidemark(*args, cwd=tmp_path).out)
    assert row["customerRef"] == "\\u001b[31m[red]\\tx\\ny"
    for options in ((), ("--csv",)):
        shown = on_terminal(*args, *options, cwd=tmp_path).out
        assert "\x1b[31m" not in shown
        assert "\\u001b[31m[red]" in shown


@pytest.mark.parametrize("form", ["--json", "--csv", None])
def test_a_reader_that_goes_away_ends_it_quietly(
    tmp_path: Path, server: TidemarkServer, form: str | None
) -> None:
    options = [form] if form else []
    process = subprocess.Popen(
        [PROGRAM, "usage", "--tenant", "many", *options, "--url", server.base_url],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")


def test_ctrl_c_while_waiting_is_130_without_a_word(tmp_path: Path) -> None:
    with TidemarkServer(CONFIG) as server:
        event = {"tenantId": "a", "metric": "bytes", "customerRef": "c", "quantity": 1}
        sent = {"events": [{**event, "ts": JANUARY}]}
        assert call(server.base_url, "POST", "/v1/events", json=sent).status == 200
        args = ("usage", "--min-sequence", 1, "--wait", 30, "--url", server.base_url)
        with started(*args, cwd=tmp_path) as process:
            time.sleep(1.5)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err.strip()) == (130, "", "")
        ran = tidemark(*args[:3], "--wait", "0.1", "--url", server.base_url, cwd=tmp_path)
        assert ran.code == 1
        assert "do not hold sequence 1 yet" in ran.err
        assert "hint: Ask again" in ran.err


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["usage", "--meter", "byte"], 2, "Did you mean `bytes`?"),
        (["usage", "--from", "yesterday"], 2, "from"),
        (["usage", "--json", "--csv"], 2, "exclude each other"),
        (["adjustments", "--min-sequence", "99"], 1, "no event has the sequence 99"),
    ],
)
def test_what_cannot_be_asked_is_told(
    tmp_path: Path, server: TidemarkServer, args: list[str], code: int, says: str
) -> None:
    ran = tidemark(*args, "--url", server.base_url, cwd=tmp_path)
    assert ran.code == code
    assert says in ran.err + ran.out
    assert "meter\t" not in ran.out


def test_an_error_is_json_where_results_are(tmp_path: Path, server: TidemarkServer) -> None:
    ran = tidemark("usage", "--meter", "byte", "--json", "--url", server.base_url, cwd=tmp_path)
    error: dict[str, Any] = json.loads(ran.out)["error"]
    assert (ran.code, error["code"], error["field"]) == (2, "unknown_meter", "meter")


@pytest.mark.parametrize("command", ["usage", "adjustments", "errors"])
def test_a_server_that_is_not_there_is_named(tmp_path: Path, command: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    ran = tidemark(command, "--url", url, cwd=tmp_path)
    assert ran.code == 1
    assert f"error: the server at {url} cannot be reached: [Errno 111]" in ran.err
    assert "object at" not in ran.err
