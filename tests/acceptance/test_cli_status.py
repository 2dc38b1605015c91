"""`status`: how far everything is, in a pipe, on a terminal and while it changes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_runs import (
    PROGRAM,
    WAIT_S,
    environment,
    on_terminal,
    started,
    stop,
    tidemark,
    without_escapes,
)
from tests.integration.http_client import Api, usage
from tests.integration.test_http_access import environment_with_keys
from tests.integration.test_http_event_health import tell
from tests.services.ports import free_port
from tests.services.tidemark_server import TidemarkServer
from tidemark.errors import TidemarkError

PARTS = [
    *("ledger", "clock", "sequence", "mirror", "pipeline"),
    *("landing.parquet", "landing.clickhouse", "live", "delivery"),
]
AWAY = TidemarkError("the brokers\x1b[2J are away", hint="Look at them.", code="away")
SILENT_US = 3_600_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[TidemarkServer]:
    """With a mirror of which tests tell."""
    with TidemarkServer(env={"TIDEMARK_MIRROR__ENABLED": "true"}) as running:
        yield running


@pytest.fixture
def results(server: TidemarkServer, request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Those of the events that are in the ledger, two of them new."""
    api = Api(server.base_url, "acme")
    name = request.node.name
    return [api.accept(usage("acme", customerRef=f"{name} {number}"))[0] for number in range(2)]


def rows(out: str) -> dict[str, dict[str, str]]:
    """The lines by part, each by the names of the header."""
    header, *lines = [line.split("\t") for line in out.splitlines()]
    return {line[0]: dict(zip(header, line, strict=True)) for line in lines}


def test_where_all_is_well_the_code_is_0(
    tmp_path: Path, server: TidemarkServer, results: list[dict[str, Any]]
) -> None:
    tell(server, "mirror", results[0])
    ran = tidemark("status", "--url", server.base_url, cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    found = rows(ran.out)
    assert list(found) == PARTS
    mirror = found["mirror"]
    assert (mirror["state"], mirror["lagEvents"], mirror["reason"]) == ("ready", "1", "")
    assert mirror["lastSequence"] == results[0]["ingressSequence"]
    assert float(mirror["lagSeconds"]) > 0
    assert mirror["toldAt"].endswith("Z")
    assert found["ledger"]["lastSequence"] == results[1]["ingressSequence"]
    assert found["landing.parquet"]["state"] == "disabled"
    document = tidemark("status", "--json", "--url", server.base_url, cwd=tmp_path).json
    assert list(document) == ["status", "checkedAt", "parts"]
    assert (document["status"], list(document["parts"])) == ("ready", PARTS)


def test_where_something_is_wrong_the_code_is_1_and_the_reason_is_told(
    tmp_path: Path, server: TidemarkServer, results: list[dict[str, Any]]
) -> None:
    tell(server, "mirror", results[1], silent_us=SILENT_US)
    # One that runs would have heard of it in time.
    server.restart()
    ran = tidemark("status", "--url", server.base_url, cwd=tmp_path)
    assert (ran.code, ran.err) == (1, "")
    assert rows(ran.out)["mirror"]["state"] == "degraded"
    assert "`tidemark mirror`" in rows(ran.out)["mirror"]["reason"]
    ran = tidemark("status", "--json", "--url", server.base_url, cwd=tmp_path)
    assert (ran.code, ran.json["status"]) == (1, "degraded")


def test_once_on_a_terminal_it_is_a_table_with_the_reasons_under_it(
    tmp_path: Path, server: TidemarkServer, results: list[dict[str, Any]]
) -> None:
    tell(server, "mirror", results[1], error=AWAY)
    ran = on_terminal("status", "--once", "--url", server.base_url, cwd=tmp_path)
    assert ran.code == 1
    assert "\x1b[" in ran.out
    # What was told cannot drive the terminal.
    assert "\x1b[2J" not in ran.out
    title, *lines = without_escapes(ran.out).splitlines()
    assert title.split() == ["part", "state", "sequence", "behind", "seconds"]
    assert [line.split()[0] for line in lines[: len(PARTS)]] == PARTS
    mirror = lines[PARTS.index("mirror")].split()
    assert mirror[1:] == ["degraded", f"{int(results[1]['ingressSequence']):,}", "0", "0.0"]
    [reason] = lines[len(PARTS) :]
    assert reason.startswith("mirror: the brokers\\u001b[2J are away. Look at them.")
    args = ("status", "--once", "--url", server.base_url)
    plain = on_terminal(*args, cwd=tmp_path, env={"NO_COLOR": "1"})
    assert not any(f"\x1b[{colour}m" in plain.out for colour in (31, 32, 33, 90))


def test_watching_writes_again_what_has_changed_until_ctrl_c(
    tmp_path: Path, server: TidemarkServer, results: list[dict[str, Any]]
) -> None:
    tell(server, "mirror", results[0])
    with started("status", "--watch", "--url", server.base_url, cwd=tmp_path) as process:
        assert process.stdout is not None
        for lag, result in (("1", results[0]), ("0", results[1])):
            tell(server, "mirror", result)
            lines = [process.stdout.readline() for _ in range(len(PARTS) + 1)]
            assert rows("".join(lines).rstrip("\n"))["mirror"]["lagEvents"] == lag
        ran = stop(process, signal.SIGINT)
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_watching_a_server_that_goes_away_waits_for_it(tmp_path: Path) -> None:
    with TidemarkServer() as server:
        args = ("status", "--watch", "--json", "--url", server.base_url)
        with started(*args, cwd=tmp_path) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert json.loads(process.stdout.readline())["status"] == "ready"
            server.stop()
            assert "cannot be reached" in process.stderr.readline()
            server.start()
            assert process.stderr.readline() == "it answers again\n"
            assert json.loads(process.stdout.readline())["status"] == "ready"
            assert stop(process, signal.SIGINT).code == 0


@pytest.mark.parametrize("option", [[], ["--watch"]])
def test_a_terminal_has_one_table_that_changes_and_ctrl_c_ends_it_with_0(
    option: list[str], tmp_path: Path, server: TidemarkServer, results: list[dict[str, Any]]
) -> None:
    # Whatever is wrong, being stopped is no failure.
    tell(server, "mirror", results[1], error=AWAY)
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [PROGRAM, "status", *option, "--url", server.base_url],
            cwd=tmp_path,
            env=environment({"COLUMNS": "160"}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        ) as process:
            os.close(theirs)
            shown = ""
            # The second drawing stands in the place of the first.
            while without_escapes(shown).count("delivery") < 2:
                shown += os.read(ours, 65_536).decode()
            os.write(ours, b"\x03")
            with suppress(OSError):
                while more := os.read(ours, 65_536):
                    shown += more.decode()
            assert process.wait(WAIT_S) == 0
    finally:
        os.close(ours)
    assert "\x1b[1A" in shown
    assert "Traceback" not in shown
    # The table stays whole, the prompt comes beneath it, and there is a cursor.
    _, after = shown.split("^C")
    assert "delivery" in without_escapes(after)
    assert after.count("\n") > len(PARTS)
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    assert without_escapes(shown).endswith("\n")


def test_once_and_watch_exclude_each_other(tmp_path: Path) -> None:
    ran = tidemark("status", "--once", "--watch", cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "--once and --watch exclude each other" in ran.err


def test_a_sequence_database_that_is_away_is_told(tmp_path: Path) -> None:
    away = f"postgresql://nobody@127.0.0.1:{free_port()}/sequence"
    with TidemarkServer(env={"TIDEMARK_SEQUENCE__URL": away}) as server:
        ran = tidemark("status", "--url", server.base_url, cwd=tmp_path)
    assert ran.code == 1
    assert rows(ran.out)["sequence"]["state"] == "degraded"
    assert "no global_sequence" in rows(ran.out)["sequence"]["reason"]


def test_a_server_that_does_not_run_is_an_error_with_a_hint(tmp_path: Path) -> None:
    for option in ([], ["--watch"]):
        ran = tidemark("status", *option, "--url", "http://127.0.0.1:1", cwd=tmp_path)
        assert (ran.code, ran.out) == (1, "")
        assert "http://127.0.0.1:1 cannot be reached" in ran.err
        assert "tidemark up" in ran.err


def test_a_key_that_may_not_read_is_told(tmp_path: Path) -> None:
    with TidemarkServer(env=environment_with_keys()) as server:
        args = ("status", "--json", "--url", server.base_url, "--api-key")
        ran = tidemark(*args, "sender", cwd=tmp_path)
        assert (ran.code, ran.json["error"]["code"]) == (1, "forbidden")
        assert ran.json["error"]["hint"]
        assert tidemark(*args, "reader", cwd=tmp_path).code == 0
