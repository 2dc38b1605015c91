"""`send`: every event of a file once, whatever happens on the way."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_runs import (
    PROGRAM,
    ended,
    environment,
    on_terminal,
    started,
    stop,
    tidemark,
    wait_until,
    without_escapes,
)
from tests.services.tidemark_server import TidemarkServer
from tidemark.cli.progress import show_progress


@pytest.fixture(scope="module")
def server() -> Iterator[TidemarkServer]:
    """One for all tests here; each has a tenant of its own."""
    with TidemarkServer() as running:
        yield running


@pytest.fixture
def url(server: TidemarkServer) -> str:
    server.start()
    return server.base_url


@pytest.fixture
def tenant(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return name[:64]


def usage(tenant: str, number: int, **more: Any) -> dict[str, Any]:
    return {
        "tenantId": tenant,
        "metric": "bytes",
        "customerRef": f"c{number}",
        "ts": f"2025-01-01T00:00:{number % 60:02d}Z",
        "quantity": number,
        **more,
    }


def write(path: Path, events: list[Any]) -> Path:
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def stored(url: str, tenant: str, cwd: Path, count: int) -> list[Any]:
    """The events of a tenant; fails if there are fewer. `tail` would wait for them."""
    ran = tidemark(
        *["tail", "--from-start", "--tenant", tenant, "--limit", count, "--json", "--url", url],
        cwd=cwd,
    )
    return ran.json_lines


def count_stored(server: TidemarkServer, tenant: str) -> int:
    with contextlib.closing(sqlite3.connect(server.ledger_file)) as ledger:
        [[count]] = ledger.execute("SELECT count(*) FROM events WHERE tenant_id = ?", (tenant,))
    found: int = count
    return found


def test_a_file_is_sent_once_however_often_it_is_sent(
    tmp_path: Path, url: str, tenant: str
) -> None:
    file = write(tmp_path / "events.jsonl", [usage(tenant, n) for n in range(25)])
    first = tidemark("send", file, "--url", url, "--batch", 10, "--json", cwd=tmp_path)
    assert (first.code, first.err) == (0, "")
    assert (first.json["complete"], first.json["line"], first.json["accepted"]) == (True, 25, 25)
    again = tidemark("send", file, "--url", url, cwd=tmp_path)
    assert again.code == 0
    assert "0 accepted, 25 duplicates, 0 conflicts, 0 rejected" in again.out
    assert [event["customerRef"] for event in stored(url, tenant, tmp_path, 25)] == [
        f"c{n}" for n in range(25)
    ]


def test_csv_and_stdin_are_sent_too(tmp_path: Path, url: str, tenant: str) -> None:
    text = (
        "tenantId,metric,customerRef,ts,quantity,meta.region\n"
        f'{tenant},bytes,"a, b",2025-01-01T00:00:00Z,1.50,eu\n'
    )
    (tmp_path / "events.csv").write_text(text)
    by_name = tidemark("send", "events.csv", "--url", url, "--json", cwd=tmp_path)
    assert (by_name.code, by_name.json["accepted"]) == (0, 1)
    args = ["send", "-", "--format", "csv", "--url", url, "--json"]
    by_stdin = tidemark(*args, cwd=tmp_path, stdin=text)
    assert (by_stdin.code, by_stdin.json["duplicates"]) == (0, 1)
    [event] = stored(url, tenant, tmp_path, 1)
    assert (event["customerRef"], event["quantity"]) == ("a, b", "1.5")
    assert event["meta"] == {"region": "eu"}


def test_numbers_arrive_to_the_digit(tmp_path: Path, url: str, tenant: str) -> None:
    line = json.dumps(usage(tenant, 1)).replace(
        '"quantity": 1', '"quantity": 1234567890123456789.123456789'
    )
    ran = tidemark("send", "--url", url, "--json", cwd=tmp_path, stdin=line)
    assert (ran.code, ran.json["accepted"]) == (0, 1)
    [event] = stored(url, tenant, tmp_path, 1)
    assert event["quantity"] == "1234567890123456789.123456789"


def test_refused_events_are_listed_with_their_line_and_the_others_are_sent(
    tmp_path: Path, url: str, tenant: str
) -> None:
    file = write(
        tmp_path / "events.jsonl",
        [
            usage(tenant, 1),
            "{not json",
            "",
            usage(tenant, 2, ts="2025-02-30T00:00:00Z"),
            usage(tenant, 1, quantity=9),
            usage(tenant, 3),
        ],
    )
    ran = tidemark("send", file, "--url", url, cwd=tmp_path)
    assert ran.code == 3
    assert "5 events" in ran.out
    assert "2 accepted, 0 duplicates, 1 conflict, 2 rejected" in ran.out
    listed = [line for line in ran.err.splitlines() if line.startswith("line ")]
    assert [line.split(":")[0] for line in listed] == ["line 2", "line 4", "line 5"]
    assert "rejected, malformed_event" in listed[0]
    assert "(ts)" in listed[1]
    assert "conflict, content_conflict" in listed[2]
    document = tidemark("send", file, "--url", url, "--json", cwd=tmp_path).json
    assert [refusal["line"] for refusal in document["refusals"]] == [2, 4, 5]
    assert document["refusals"][1]["field"] == "ts"
    assert sum(document["codes"].values()) == 3


def test_refused_events_can_be_mended_from_a_file(tmp_path: Path, url: str, tenant: str) -> None:
    file = write(tmp_path / "events.jsonl", [usage(tenant, n, stream="tradse") for n in range(150)])
    many = tidemark("send", file, "--url", url, cwd=tmp_path)
    assert many.code == 3
    assert "and 50 more; --rejects" in many.err
    args = ["send", file, "--url", url, "--rejects", "refused.jsonl"]
    ran = tidemark(*args, cwd=tmp_path)
    assert ran.code == 3
    assert "line " not in ran.err
    assert "written to refused.jsonl" in ran.err
    lines = (tmp_path / "refused.jsonl").read_text().splitlines()
    refused = [json.loads(line) for line in lines]
    assert [refusal["line"] for refusal in refused] == list(range(1, 151))
    for refusal in refused:
        del refusal["event"]["stream"]
    mended = write(tmp_path / "mended.jsonl", [refusal["event"] for refusal in refused])
    assert tidemark("send", mended, "--url", url, "--json", cwd=tmp_path).json["accepted"] == 150


def test_input_that_pauses_is_sent_so_far(
    tmp_path: Path, url: str, tenant: str, server: TidemarkServer
) -> None:
    reads, writes = os.pipe()
    with started("send", "--url", url, "--json", cwd=tmp_path, stdin=reads) as process:
        os.close(reads)
        with os.fdopen(writes, "w", buffering=1) as pipe:
            for number in range(3):
                pipe.write(json.dumps(usage(tenant, number)) + "\n")
                wait_until(lambda count=number + 1: count_stored(server, tenant) == count)
        ran = ended(process)
    assert (ran.code, ran.json["accepted"]) == (0, 3)


def test_usage_events_without_a_time_are_new_each_time_and_that_is_said(
    tmp_path: Path, url: str, tenant: str, server: TidemarkServer
) -> None:
    event = usage(tenant, 1)
    del event["ts"]
    file = write(tmp_path / "events.jsonl", [event, event])
    for count in (2, 4):
        ran = tidemark("send", file, "--url", url, cwd=tmp_path)
        assert ran.code == 0
        assert "2 usage events had no ts" in ran.err
        assert count_stored(server, tenant) == count


def resume_line(file: Path) -> int:
    try:
        line: int = json.loads(file.with_name(file.name + ".tidemark-resume").read_bytes())["line"]
    except FileNotFoundError:
        return 0
    return line


@pytest.mark.parametrize(
    ("number", "has_time"),
    [(signal.SIGINT, False), (signal.SIGTERM, True), (signal.SIGKILL, False)],
)
def test_an_interrupted_sending_goes_on_and_nothing_doubles(
    tmp_path: Path, server: TidemarkServer, url: str, number: signal.Signals, has_time: bool
) -> None:
    tenant = f"resume-{has_time}-{number}"
    events = [usage(tenant, n) for n in range(600)]
    if not has_time:
        for event in events:
            del event["ts"]
            event["customerRef"] = "same"
    file = write(tmp_path / "events.jsonl", events)
    args = ["send", file, "--resume", "--url", url, "--batch", 5]
    with started(*args, cwd=tmp_path) as process:
        wait_until(lambda: resume_line(file) >= 50)
        # In the middle of a request, which may or may not be carried out later.
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(0.1)
        ran = stop(process, number)
    os.kill(server.pid, signal.SIGCONT)
    done = resume_line(file)
    assert 50 <= done < 600
    if number is signal.SIGKILL:
        assert ran.code == -number
    else:
        assert ran.code == (130 if number is signal.SIGINT else 143)
        assert f"Everything up to line {done} has its answer" in ran.err
    again = tidemark(*args, "--json", cwd=tmp_path)
    assert (again.code, again.json["events"]) == (0, 600 - done)
    assert count_stored(server, tenant) == 600


def test_lines_that_are_added_to_a_file_are_sent_by_the_same_command(
    tmp_path: Path, url: str, tenant: str, server: TidemarkServer
) -> None:
    event = usage(tenant, 1)
    del event["ts"]
    file = write(tmp_path / "events.jsonl", [event] * 3)
    args = ["send", file, "--resume", "--url", url, "--json"]
    assert tidemark(*args, cwd=tmp_path).json["accepted"] == 3
    with file.open("a") as more:
        more.write(json.dumps(event) + "\n")
    ran = tidemark(*args, cwd=tmp_path)
    assert (ran.json["accepted"], ran.json["line"]) == (1, 4)
    assert count_stored(server, tenant) == 4


def test_another_file_or_another_server_is_not_resumed(
    tmp_path: Path, url: str, tenant: str
) -> None:
    file = write(tmp_path / "events.jsonl", [usage(tenant, 1)])
    assert tidemark("send", file, "--resume", "--url", url, cwd=tmp_path).code == 0
    elsewhere = tidemark(
        "send", file, "--resume", "--url", "http://127.0.0.1:1", "--json", cwd=tmp_path
    )
    assert (elsewhere.code, elsewhere.json["error"]["code"]) == (1, "resume_mismatch")
    write(file, [usage(tenant, 2)])
    other = tidemark("send", file, "--resume", "--url", url, "--json", cwd=tmp_path)
    assert (other.code, other.json["error"]["code"]) == (1, "resume_mismatch")
    assert "tidemark-resume" in other.json["error"]["hint"]


def test_stdin_cannot_be_resumed(tmp_path: Path, url: str) -> None:
    ran = tidemark("send", "--resume", "--url", url, "--json", cwd=tmp_path)
    assert (ran.code, ran.json["error"]["field"]) == (2, "resume")


def test_a_server_that_is_away_is_waited_for(tmp_path: Path, tenant: str) -> None:
    with TidemarkServer() as server:
        server.kill()
        file = write(tmp_path / "events.jsonl", [usage(tenant, n) for n in range(10)])
        with started("send", file, "--url", server.base_url, cwd=tmp_path) as process:
            assert process.stderr is not None
            assert "the server cannot take them now" in process.stderr.readline()
            server.start()
            ran = ended(process)
    assert ran.code == 0
    assert "10 accepted" in ran.out
    assert "the server answers again" in ran.err


def test_a_server_that_stays_away_is_an_error_that_says_how_far_it_got(tmp_path: Path) -> None:
    file = write(tmp_path / "events.jsonl", [usage("t", n) for n in range(10)])
    args = ["send", file, "--url", "http://127.0.0.1:1", "--retry-for", "0"]
    ran = tidemark(*args, cwd=tmp_path)
    assert (ran.code, ran.out) == (1, "")
    assert "10 of 10 events were not delivered" in ran.err
    assert "hint: " in ran.err
    document = tidemark(*args, "--json", cwd=tmp_path).json
    assert (document["complete"], document["line"]) == (False, 0)
    assert document["error"]["code"] == "delivery_failed"


def test_a_wrong_key_is_told_at_once(tmp_path: Path) -> None:
    key = tidemark("keygen", "--name", "k", "--tenant", "a", "--json", cwd=tmp_path).json
    known = {"name": "k", "sha256": key["sha256"], "scopes": ["ingest"], "tenants": ["a"]}
    config = json.dumps({"auth": {"keys": [known]}, "streams": {"usage": {"kind": "usage"}}})
    file = write(tmp_path / "events.jsonl", [usage("a", 1), usage("b", 2)])
    with TidemarkServer(config) as server:
        args = ["send", file, "--url", server.base_url, "--json"]
        for given in ([], ["--api-key", "wrong"]):
            ran = tidemark(*args, *given, cwd=tmp_path)
            assert (ran.code, ran.json["error"]["code"]) == (1, "unauthorized")
        ran = tidemark(*args, cwd=tmp_path, env={"TIDEMARK_API_KEY": key["key"]})
    assert (ran.code, ran.json["accepted"], ran.json["codes"]) == (3, 1, {"forbidden": 1})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.jsonl", None, "No such file"),
        ("array.jsonl", b"[\n{}\n]\n", "a JSON array begins here"),
        ("packed.jsonl", b"\x1f\x8b\x08", "is compressed"),
        ("wrong.csv", b"tenant,metric\n1,2\n", "there is no column `tenant`"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(
    tmp_path: Path, url: str, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    ran = tidemark("send", name, "--url", url, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert len(ran.err.splitlines()) == 2


def test_a_rejects_file_that_cannot_be_written_is_told_before_anything_is_sent(
    tmp_path: Path, url: str, tenant: str, server: TidemarkServer
) -> None:
    file = write(tmp_path / "events.jsonl", [usage(tenant, 1)])
    args = ["send", file, "--url", url, "--rejects", "no/such/place", "--json"]
    ran = tidemark(*args, cwd=tmp_path)
    assert (ran.code, ran.json["error"]["code"]) == (2, "usage")
    assert count_stored(server, tenant) == 0


def test_a_resume_file_that_cannot_be_written_is_told_before_anything_is_sent(
    tmp_path: Path, url: str, tenant: str, server: TidemarkServer
) -> None:
    file = write(tmp_path / "events.jsonl", [usage(tenant, 1)])
    (tmp_path / "events.jsonl.tidemark-resume.new").mkdir()
    ran = tidemark("send", file, "--url", url, "--resume", "--json", cwd=tmp_path)
    assert (ran.code, ran.json["error"]["code"]) == (2, "usage")
    assert count_stored(server, tenant) == 0


def test_a_terminal_shows_a_bar_that_is_gone_at_the_end(
    tmp_path: Path, url: str, tenant: str
) -> None:
    events = [usage(tenant, n) for n in range(200)]
    file = write(tmp_path / "events.jsonl", [*events, "{bad"])
    ran = on_terminal("send", file, "--url", url, "--batch", 10, cwd=tmp_path)
    assert ran.code == 3
    shown = without_escapes(ran.out)
    assert "━" in shown
    assert re.search(r"\d+ at [\d,]+/s: \d+ accepted", shown)
    assert "line 201: rejected, malformed_event" in shown
    assert shown.splitlines()[-1].startswith("201 events in ")


class SetClock:
    def __init__(self) -> None:
        self.now_us = 0

    def wall_us(self) -> int:
        return self.now_us

    def elapsed_us(self) -> int:
        return self.now_us


def test_a_pipe_gets_a_line_every_five_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = SetClock()
    with show_progress(clock) as progress:
        progress.begin("send", None)
        for second in range(12):
            clock.now_us = second * 1_000_000
            progress.update(second, f"{second} events")
        progress.note("line 3: rejected")
    assert capsys.readouterr() == ("", "send: 5 events\nsend: 10 events\nline 3: rejected\n")


def test_a_summary_that_nobody_reads_does_not_change_the_exit_code(
    tmp_path: Path, url: str, tenant: str
) -> None:
    file = write(tmp_path / "events.jsonl", [usage(tenant, 1), "{bad"])
    reads, writes = os.pipe()
    os.close(reads)
    ran = subprocess.run(
        [PROGRAM, "send", file, "--url", url],
        stdout=writes,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(),
        check=False,
    )
    os.close(writes)
    assert ran.returncode == 3
    assert b"Traceback" not in ran.stderr
