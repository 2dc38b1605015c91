"""`tail`: every event in order and without a gap, over lost connections too."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
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
    without_escapes,
)
from tests.services.http_calls import call
from tests.services.tidemark_server import TidemarkServer
from tidemark.cli.event_text import ShownEvent, event_text


@pytest.fixture(scope="module")
def server() -> Iterator[TidemarkServer]:
    """With ten events of tenant `a` and one of tenant `b`."""
    with TidemarkServer() as running:
        send(running.base_url, [usage("a", n) for n in range(10)])
        trade = {
            "trade_id": "t1",
            "account": "x",
            "symbol": "S",
            "side": "buy",
            "quantity": "1",
            "price": "2.50",
            "executed_at": "2025-01-01T00:00:00Z",
        }
        event = {"stream": "trades", "tenantId": "b", "data": trade, "causalityKey": "run-1"}
        send(running.base_url, [event])
        yield running


def usage(tenant: str, number: int) -> dict[str, Any]:
    return {
        "tenantId": tenant,
        "metric": "bytes",
        "customerRef": f"c{number}",
        "ts": "2025-01-01T00:00:00Z",
        "quantity": number,
    }


def send(url: str, events: list[dict[str, Any]]) -> None:
    answer = call(url, "POST", "/v1/events", json={"events": events})
    assert answer.json["accepted"] == len(events), answer.body


def sequences(lines: list[str]) -> list[int]:
    return [int(json.loads(line)["ingressSequence"]) for line in lines]


def test_the_whole_ledger_in_order(tmp_path: Path, server: TidemarkServer) -> None:
    args = ["tail", "--from-start", "--limit", 11, "--json", "--url", server.base_url]
    ran = tidemark(*args, cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert sequences(ran.out.splitlines()) == list(range(1, 12))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--after", "4", "--limit", "2"], [5, 6]),
        (["--from-start", "--tenant", "b", "--stream", "trades", "--limit", "1"], [11]),
        (["--from-start", "--causality-key", "run-1", "--limit", "1"], [11]),
    ],
)
def test_a_part_of_the_ledger(
    tmp_path: Path, server: TidemarkServer, options: list[str], expected: list[int]
) -> None:
    ran = tidemark("tail", *options, "--json", "--url", server.base_url, cwd=tmp_path)
    assert sequences(ran.out.splitlines()) == expected


def test_a_line_for_people_has_what_matters(tmp_path: Path, server: TidemarkServer) -> None:
    args = ["tail", "--after", 9, "--limit", 2, "--url", server.base_url]
    first, second = tidemark(*args, cwd=tmp_path).out.splitlines()
    assert first.split()[0] == "10"
    assert "a/usage  bytes c9 9 occurred 2025-01-01T00:00:00.000000Z" in first
    assert "b/trades" in second
    assert '"price":"2.5"' in second.replace('"2.50"', '"2.5"')
    assert second.endswith(" of run-1")
    shown = on_terminal(*args, cwd=tmp_path).out
    assert "\x1b[" in shown
    assert without_escapes(shown).splitlines() == [first, second]


def test_an_event_cannot_drive_the_terminal() -> None:
    event = ShownEvent(
        ingress_sequence="1",
        received_at="2025-01-01T00:00:00.000000Z",
        occurred_at="2025-01-01T00:00:00.000000Z",
        tenant_id="a\x1b[2J\n",
        stream="usage",
        metric="\x9b31m\u202e\tx",
    )
    text = event_text(event, has_colour=False)
    assert text.isprintable()
    assert "a\\u001b[2J\\n/usage  \\u009b31m\\u202e\\tx" in text


def test_only_what_is_new_is_shown_by_default_and_each_line_at_once(
    tmp_path: Path, server: TidemarkServer
) -> None:
    url = server.base_url
    head = tidemark("tail", "--from-start", "--limit", 11, "--json", "--url", url, cwd=tmp_path)
    last = sequences(head.out.splitlines())[-1]
    with started("tail", "--json", "--url", url, cwd=tmp_path) as process:
        assert process.stdout is not None
        number = 0
        # Until it is connected, what is sent is not new any more.
        while not _has_line(process):
            send(url, [usage("new", number)])
            number += 1
        assert sequences([process.stdout.readline()])[0] > last
        ran = stop(process, signal.SIGINT)
    assert (ran.code, ran.err) == (0, "")


def _has_line(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0.2)[0])


@pytest.mark.parametrize("limit", [[], ["--limit", "3"]])
def test_ctrl_c_is_how_it_ends_unless_there_is_a_limit_to_reach(
    tmp_path: Path, server: TidemarkServer, limit: list[str]
) -> None:
    args = ["tail", "--after", "10", "--tenant", "b", "--json", "--url", server.base_url]
    with started(*args, *limit, cwd=tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        ran = stop(process, signal.SIGINT)
    assert (ran.code, ran.err) == (130 if limit else 0, "")


def test_a_lost_connection_is_made_again_and_nothing_is_missed(tmp_path: Path) -> None:
    with TidemarkServer() as server:
        url = server.base_url
        send(url, [usage("a", n) for n in range(3)])
        args = ["tail", "--from-start", "--json", "--url", url, "--limit", 9]
        with started(*args, cwd=tmp_path) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            seen = [process.stdout.readline() for _ in range(3)]
            for index, end in enumerate((server.stop, server.kill), 1):
                end()
                assert "the connection is lost" in process.stderr.readline()
                server.start()
                send(url, [usage("a", index * 3 + n) for n in range(3)])
                seen += [process.stdout.readline() for _ in range(3)]
            ran = ended(process)
    assert ran.code == 0
    assert sequences(seen) == list(range(1, 10))


def test_a_reader_that_has_enough_ends_it_quietly(tmp_path: Path) -> None:
    with TidemarkServer() as busy:
        command = f"({PROGRAM} tail --from-start --url {busy.base_url}; echo $? >&2) | head -1"
        # Enough that it is still writing when nobody reads any more.
        for start in range(0, 3000, 1000):
            send(busy.base_url, [usage("a", start + n) for n in range(1000)])
        ran = subprocess.run(
            ["bash", "-c", command],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment(),
            timeout=60,
            check=True,
        )
    assert ran.stdout.split()[0] == "1"
    assert ran.stderr == "0\n"


def test_a_server_that_does_not_run_is_an_error_with_a_hint(tmp_path: Path) -> None:
    ran = tidemark("tail", "--url", "http://127.0.0.1:1", cwd=tmp_path)
    assert (ran.code, ran.out) == (1, "")
    assert "http://127.0.0.1:1 cannot be reached" in ran.err
    assert "tidemark up" in ran.err


def test_a_key_that_may_not_read_is_told(tmp_path: Path) -> None:
    args = ["keygen", "--name", "k", "--tenant", "*", "--json"]
    key = tidemark(*args, cwd=tmp_path).json
    known = {"name": "k", "sha256": key["sha256"], "scopes": ["ingest"], "tenants": ["*"]}
    config = json.dumps({"auth": {"keys": [known]}, "streams": {"usage": {"kind": "usage"}}})
    with TidemarkServer(config) as server:
        for given, code in ([], "unauthorized"), (["--api-key", key["key"]], "forbidden"):
            ran = tidemark("tail", "--json", "--url", server.base_url, *given, cwd=tmp_path)
            assert (ran.code, ran.json["error"]["code"]) == (1, code)
            assert ran.json["error"]["hint"]


def test_a_server_that_is_none_of_ours_is_told(tmp_path: Path) -> None:
    program = "import http.server as h; s=h.HTTPServer(('127.0.0.1',0),h.BaseHTTPRequestHandler);"
    program += "print(s.server_port,flush=True); s.serve_forever()"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as foreign:
        assert foreign.stdout is not None
        port = foreign.stdout.readline().strip()
        ran = tidemark("tail", "--json", "--url", f"http://127.0.0.1:{port}", cwd=tmp_path)
        foreign.kill()
    assert (ran.code, ran.json["error"]["code"]) == (1, "unexpected_answer")
