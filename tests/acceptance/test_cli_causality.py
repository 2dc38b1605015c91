"""`causality`: one run, drawn for people and listed for programs, whatever it is called."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from rich.cells import cell_len

from tests.acceptance.cli_runs import (
    PROGRAM,
    Ran,
    environment,
    on_terminal,
    started,
    stop,
    tidemark,
    without_escapes,
)
from tests.services.http_calls import call
from tests.services.ports import free_port
from tests.services.tidemark_server import TidemarkServer

RUN: Final = "order/42 ü…"
LONG_RUN: Final = "long"
# More than two pages of the server.
LONG: Final = 2_300


def usage(tenant: str, key: str, run: str) -> dict[str, Any]:
    return {
        "tenantId": tenant,
        "metric": "bytes",
        "customerRef": "c1",
        "ts": "2025-01-01T00:00:00Z",
        "quantity": 3,
        "idempotencyKey": key,
        "causalityKey": run,
    }


@pytest.fixture(scope="module")
def server() -> Iterator[TidemarkServer]:
    """A run of two tenants with corrections, one that is long, and what belongs to none."""
    with TidemarkServer() as running:

        def send(*events: dict[str, Any]) -> None:
            answer = call(running.base_url, "POST", "/v1/events", json={"events": events})
            assert answer.json["accepted"] == len(events), answer.body

        send(usage("acme", "a", RUN), usage("acme", "b", RUN))
        send(usage("acme", "x", "another"), {**usage("globex", "日本", RUN), "metric": "\x1b[31m"})
        correction = {"tenantId": "acme", "causalityKey": RUN}
        send(
            {**correction, "control": "void", "target": "a", "reason": "was a test"},
            {
                **correction,
                "control": "amend",
                "target": "b",
                "event": {"ts": "2025-01-01T00:00:00Z", "quantity": 4},
            },
        )
        for start in range(0, LONG, 1000):
            keys = range(start, min(LONG, start + 1000))
            send(*(usage("acme", f"l{number}", LONG_RUN) for number in keys))
        yield running
        assert "Traceback" not in running.log_text(), running.log_text()


def causality(server: TidemarkServer, *args: object) -> Ran:
    return tidemark("causality", *args, "--url", server.base_url, cwd=server.directory)


def drawn(server: TidemarkServer, *args: object, **env: str) -> list[str]:
    command = ["causality", *args, "--url", server.base_url]
    ran = on_terminal(*command, cwd=server.directory, env=env)
    assert ran.code == 0, ran.out
    return ran.out.splitlines()


def test_a_terminal_shows_a_timeline(server: TidemarkServer) -> None:
    shown = drawn(server, RUN)
    assert "\x1b[" in shown[1]
    heading, *lines, summary = map(without_escapes, shown)
    assert heading == f"run {RUN}"
    assert [line.split()[0] for line in lines] == ["1", "2", "4", "5", "6"]
    assert [line[line.index("+") :].split("  ")[0] for line in lines[:2]] == ["+0 ms", "+0 ms"]
    bars = [re.search("[●○◆]", line) for line in lines]
    assert [bar and bar[0] for bar in bars] == ["○", "●", "●", "◆", "◆"]
    places = [bar.start() for bar in bars if bar]
    assert places == sorted(places)
    assert places[0] == places[1] < places[3] == places[4]
    assert re.search(r"usage +acme +voided by 5: bytes c1 3", lines[0])
    assert re.search(r"usage +acme +amended by 6: bytes c1 3", lines[1])
    assert re.search(r"usage +globex +\\u001b\[31m c1 3", lines[2])
    assert 'void of 1 bytes c1 {"reason":"was a test"}' in lines[3]
    assert "amend of 2 bytes c1 4" in lines[4]
    assert re.fullmatch(r"5 events in [\d.]+ m?s: usage 5; acme 4, globex 1", summary)


@pytest.mark.parametrize("columns", [20, 44, 80])
def test_no_line_is_wider_than_the_terminal(server: TidemarkServer, columns: int) -> None:
    lines = drawn(server, RUN, COLUMNS=str(columns), NO_COLOR="1")
    assert len(lines) == 7
    assert all(cell_len(line) <= columns for line in lines), lines
    assert not any("\x1b" in line for line in lines)


def test_a_terminal_that_knows_only_ascii_gets_only_that(server: TidemarkServer) -> None:
    lines = drawn(server, RUN, PYTHONIOENCODING="ascii", NO_COLOR="1", COLUMNS="80")
    assert "".join(lines).isascii()
    assert re.findall(r"([*o+]) +usage", "\n".join(lines)) == list("o**++")
    assert all(len(line) <= 80 for line in lines), lines


def test_a_pipe_gets_lines_with_all_there_is(server: TidemarkServer) -> None:
    ran = causality(server, RUN)
    assert (ran.code, ran.err) == (0, "")
    header, *lines = (line.split("\t") for line in ran.out.splitlines())
    events = [dict(zip(header, line, strict=True)) for line in lines]
    assert [event["ingressSequence"] for event in events] == ["1", "2", "4", "5", "6"]
    assert [event["voidedBy"] for event in events] == ["5", "", "", "", ""]
    assert [event["amendedBy"] for event in events] == ["", "6", "", "", ""]
    assert [event["targetSequence"] for event in events] == ["", "", "", "1", "2"]
    assert events[2]["metric"] == "\\u001b[31m"


def test_programs_read_what_the_server_answers(server: TidemarkServer) -> None:
    ran = causality(server, RUN, "--json")
    assert (ran.code, ran.err) == (0, "")
    first, *events = ran.json_lines
    assert list(first) == ["run"]
    run = first["run"]
    assert (run["causalityKey"], run["count"], run["complete"]) == (RUN, 5, True)
    assert [event["ingressSequence"] for event in events] == ["1", "2", "4", "5", "6"]
    assert events[3]["target"] == "a"


def test_all_pages_of_a_run_are_shown_or_as_many_events_as_are_wanted(
    server: TidemarkServer,
) -> None:
    first, *events = causality(server, LONG_RUN, "--json").json_lines
    assert first["run"]["count"] == len(events) == LONG
    assert [event["idempotencyKey"] for event in events] == [f"l{n}" for n in range(LONG)]
    for limit in (1, 1000, 1001):
        lines = causality(server, LONG_RUN, "--limit", limit, "--json").json_lines
        assert lines[1:] == events[:limit]
    lines = drawn(server, LONG_RUN, "--limit", 3)
    assert len(lines) == 5
    assert lines[-1].startswith("the first 3 of 2,300 events in ")


def test_one_tenant_of_a_run(server: TidemarkServer) -> None:
    first, event = causality(server, RUN, "--tenant", "globex", "--json").json_lines
    assert first["run"]["tenants"] == [{"tenantId": "globex", "count": 1}]
    assert event["idempotencyKey"] == "日本"


@pytest.mark.parametrize("key", ["nothing", "..", RUN.upper()])
def test_a_run_that_is_not_there_is_an_error_with_a_hint(server: TidemarkServer, key: str) -> None:
    ran = causality(server, key)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"error: no event that you see has the causality key {key!r}\n")
    assert "hint: " in ran.err
    ran = causality(server, key, "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "not_found")
    shown = on_terminal("causality", key, "--url", server.base_url, cwd=server.directory)
    assert shown.code == 1
    assert "has the causality key" in shown.out


@pytest.mark.parametrize("key", ["", b"\xff".decode(errors="surrogateescape")])
def test_what_cannot_be_a_key_is_a_fault_of_the_command_line(tmp_path: Path, key: str) -> None:
    ran = tidemark("causality", key, "--json", cwd=tmp_path)
    assert (ran.code, ran.err) == (2, "")
    assert ran.json["error"]["message"].startswith("KEY is ")


def test_a_reader_that_has_enough_ends_it_quietly(server: TidemarkServer) -> None:
    for options in ("", "--json"):
        command = f"{PROGRAM} causality {LONG_RUN} {options} --url {server.base_url}"
        ran = subprocess.run(
            ["bash", "-c", f"({command}; echo $? >&2) | head -1"],
            capture_output=True,
            text=True,
            cwd=server.directory,
            env=environment(),
            timeout=60,
            check=True,
        )
        assert len(ran.stdout.splitlines()) == 1
        assert ran.stderr == "0\n"


def test_ctrl_c_ends_it_quietly(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with started("causality", "run", "--url", url, cwd=tmp_path) as process:
            connection, _ = silent.accept()
            with connection:
                ran = stop(process, signal.SIGINT)
    assert (ran.code, ran.out, ran.err.strip()) == (130, "", "")


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    ran = tidemark("causality", "x", "--url", url, cwd=tmp_path)
    assert ran.code == 1
    assert f"error: the server at {url} cannot be reached" in ran.err
