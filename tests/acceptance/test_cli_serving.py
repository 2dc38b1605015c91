"""`up` and `serve`: ready, reachable, and stopped cleanly at any moment."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.acceptance.cli_runs import (
    PROGRAM,
    ended,
    environment,
    started,
    stop,
    tidemark,
    wait_until,
)
from tests.services.http_calls import call
from tests.services.ports import free_port
from tests.services.processes import children_of, is_running
from tidemark.config import sample_text

STOPPED_WITHIN_S = 8.0
USAGE = {
    "tenantId": "acme",
    "metric": "api_calls",
    "customerRef": "c1",
    "ts": "2025-01-01T00:00:00Z",
    "quantity": 1,
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The sample without its pipeline, which would take Spark for each of these tests."""
    text = sample_text().replace("  enabled: true\n", "  enabled: false\n")
    assert text != sample_text()
    (tmp_path / "tidemark.yaml").write_text(text)
    return tmp_path


def ready(process: subprocess.Popen[str]) -> str:
    """Wait for the line that says so, of a command with --json; the address."""
    assert process.stdout is not None
    document = json.loads(process.stdout.readline() or "null")
    assert document is not None, process.communicate()
    assert document["event"] == "ready"
    url: str = document["url"]
    return url


def welcome(process: subprocess.Popen[str]) -> str:
    """Wait for all that is said to people when it is ready."""
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] != "Ctrl-C stops it.\n":
        lines.append(process.stdout.readline())
        assert lines[-1], process.communicate()
    return "".join(lines)


def test_up_says_where_to_look_and_every_address_is_there(home: Path) -> None:
    port = free_port()
    with started("up", "--port", port, cwd=home) as process:
        said = welcome(process)
        base_url = f"http://127.0.0.1:{port}"
        assert f"is ready on {base_url}" in said
        assert "tidemark.yaml" in said
        assert "open to everyone on this machine" in said
        assert f"tidemark tail --url {base_url}" in said
        for address in re.findall(r"http://\S+/(?:docs|readyz|metrics)", said):
            assert call(base_url, "GET", address.removeprefix(base_url)).status == 200
        [command] = re.findall(r"^  (curl .*)$", said, re.MULTILINE)
        [body] = [word for word in shlex.split(command) if word.startswith("{")]
        answer = call(base_url, "POST", "/v1/events", json=json.loads(body)).json
        assert answer["accepted"] == 1
        ran = stop(process, signal.SIGINT)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == "Tidemark stopped."


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_within_seconds_even_with_a_tail_connected(
    home: Path, number: signal.Signals
) -> None:
    with started("up", "--demo", "--port", 0, "--json", cwd=home) as process:
        url = ready(process)
        with connect(url.replace("http", "ws") + "/admin/events/tail?after=0") as tail:
            assert "ingressSequence" in tail.recv(30)
            asked_at = time.monotonic()
            ran = stop(process, number)
            assert time.monotonic() - asked_at < STOPPED_WITHIN_S
            assert _close_code(tail) == 1001
    assert (ran.code, ran.err) == (0, "")
    assert ran.json == {"event": "stopped"}


def _close_code(tail: ClientConnection) -> int | None:
    try:
        while True:
            tail.recv(10)
    except ConnectionClosed as closed:
        return None if closed.rcvd is None else closed.rcvd.code


def test_a_signal_before_it_is_ready_stops_it_too(home: Path) -> None:
    for delay_s in (0.4, 0.6, 0.8):
        with started("up", "--port", 0, cwd=home) as process:
            time.sleep(delay_s)
            ran = stop(process, signal.SIGTERM)
        # Before its command is loaded, there is nothing to stop but the program, and on a busy
        # machine not even that: then the signal itself ends it.
        assert ran.code in (0, 143, -signal.SIGTERM)
        assert ran.err == ""


# Imported by every Python at its start. It is the process that the test started, and none of that
# one's children, that is told to stop, by a module that swallows what it does not know.
SWALLOWING = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Swallowing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "%s" and os.getppid() == %d:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except BaseException:
                print("swallowed", file=sys.stderr)

sys.meta_path.insert(0, Swallowing())
"""


@pytest.mark.parametrize(
    ("command", "module"),
    [
        (["up", "--port", "0"], "tidemark.app.server"),
        (["serve", "--port", "0", "--workers", "2"], "tidemark.app.server"),
        (["pipeline"], "tidemark.config"),
    ],
)
def test_a_signal_that_a_module_swallows_while_it_is_loaded_is_not_forgotten(
    command: list[str], module: str, tmp_path: Path
) -> None:
    (tmp_path / "tidemark.yaml").write_text(sample_text())
    (tmp_path / "sitecustomize.py").write_text(SWALLOWING % (module, os.getpid()))
    with started(*command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}) as process:
        ran = ended(process)
    assert "swallowed" in ran.err
    assert ran.code == 0
    assert "is ready" not in ran.out


def test_what_was_accepted_is_there_after_a_restart(home: Path) -> None:
    statuses = []
    for _ in range(2):
        with started("serve", "--port", 0, "--json", cwd=home) as process:
            answer = call(ready(process), "POST", "/v1/events", json={"events": [USAGE]})
            statuses += [result["status"] for result in answer.json["results"]]
            assert stop(process, signal.SIGTERM).code == 0
    assert statuses == ["accepted", "duplicate"]


def test_a_port_in_use_is_told(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for verb in (["up"], ["serve", "--workers", "2"]):
            ran = tidemark(*verb, "--port", port, cwd=home)
            assert (ran.code, ran.out) == (2, "")
            assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in ran.err
            assert "http.port" in ran.err


def test_nobody_has_to_read_what_it_says(home: Path) -> None:
    """`tidemark up | head -1` goes on serving."""
    port = free_port()
    reads, writes = os.pipe()
    os.close(reads)
    process = subprocess.Popen(
        [PROGRAM, "up", "--port", str(port)],
        cwd=home,
        env=environment(),
        stdout=writes,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writes)
    with process:
        try:
            assert _eventually_ready(port)
        finally:
            process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=STOPPED_WITHIN_S)
    assert (process.returncode, err) == (0, "")


def _eventually_ready(port: int) -> bool:
    for _ in range(300):
        try:
            return call(f"http://127.0.0.1:{port}", "GET", "/readyz").status == 200
        except OSError:
            time.sleep(0.1)
    return False


def test_several_processes_serve_one_ledger_and_stop_together(home: Path) -> None:
    with started("serve", "--workers", 2, "--port", 0, "--json", cwd=home) as process:
        url = ready(process)
        workers = children_of(process.pid)
        assert len(workers) == 2
        answers = [
            call(url, "POST", "/v1/events", json={"events": [{**USAGE, "customerRef": f"c{n}"}]})
            for n in range(20)
        ]
        sequences = [answer.json["results"][0]["ingressSequence"] for answer in answers]
        assert sequences == [str(n) for n in range(1, 21)]
        ran = stop(process, signal.SIGINT)
    assert (ran.code, ran.json, ran.err) == (0, {"event": "stopped"}, "")
    assert not any(is_running(pid) for pid in workers)


def test_no_worker_outlives_its_parent_and_keeps_the_port(home: Path) -> None:
    with started("serve", "--workers", 2, "--port", 0, "--json", cwd=home) as process:
        url = ready(process)
        workers = children_of(process.pid)
        assert len(workers) == 2
        with connect(url.replace("http", "ws") + "/admin/events/tail?after=0") as tail:
            process.kill()
            killed_at = time.monotonic()
            assert _close_code(tail) == 1001
            wait_until(lambda: not any(is_running(pid) for pid in workers))
        assert time.monotonic() - killed_at < STOPPED_WITHIN_S
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", int(url.rpartition(":")[2])))
        listener.listen()


def gauge(url: str, name: str) -> float:
    metrics = call(url, "GET", "/metrics").body.decode()
    [value] = re.findall(rf"^{name} ([0-9.e+]+)$", metrics, re.MULTILINE)
    return float(value)


def test_the_metrics_know_from_the_start_where_the_ledger_is(home: Path) -> None:
    for sequence in (0, 1):
        with started("serve", "--port", 0, "--json", cwd=home) as process:
            url = ready(process)
            assert gauge(url, "tidemark_ledger_last_sequence") == sequence
            call(url, "POST", "/v1/events", json={"events": [USAGE]})
            assert stop(process).code == 0


def test_what_waited_in_a_process_that_died_is_not_counted_any_more(home: Path) -> None:
    """Its events wait for a ledger that somebody else holds."""
    waiting = "tidemark_ingest_queue_events"
    with started("serve", "--workers", 2, "--port", 0, "--json", cwd=home) as process:
        url = ready(process)
        workers = children_of(process.pid)
        ledger = sqlite3.connect(home / "tidemark-state" / "ledger.db", isolation_level=None)
        with contextlib.closing(ledger):
            ledger.execute("BEGIN IMMEDIATE")
            place = urlsplit(url)
            with socket.create_connection((place.hostname, place.port)) as sender:
                body = json.dumps({"events": [USAGE]})
                sender.sendall(
                    f"POST /v1/events HTTP/1.1\r\nHost: {place.netloc}\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
                )
                # Whichever process is asked, it knows.
                wait_until(lambda: gauge(url, waiting) == 1)
                for _ in range(10):
                    assert gauge(url, waiting) == 1
                for pid in workers:
                    os.kill(pid, signal.SIGKILL)
            wait_until(lambda: len(set(children_of(process.pid)) - set(workers)) == 2)
            ledger.execute("ROLLBACK")
        assert _eventually_ready(int(url.rpartition(":")[2]))
        assert gauge(url, waiting) == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOPPED_WITHIN_S) == 0


def with_key(home: Path, scope: str) -> str:
    """Put a key into the configuration and give it."""
    args = ["--name", "demo", "--scope", scope, "--tenant", "*"]
    made: dict[str, Any] = tidemark("keygen", *args, "--json", cwd=home).json
    config = home / "tidemark.yaml"
    keys = [{"name": "demo", "sha256": made["sha256"], "scopes": [scope], "tenants": ["*"]}]
    config.write_text(config.read_text() + f"\nauth: {json.dumps({'keys': keys})}\n")
    key: str = made["key"]
    return key


def taken(url: str, name: str) -> float:
    """How many events were taken so, by the metrics."""
    metrics = call(url, "GET", "/metrics").body.decode()
    [value] = re.findall(rf"^tidemark_ingest_{name}_total ([0-9.e+]+)$", metrics, re.MULTILINE)
    return float(value)


def test_sample_traffic_arrives_with_duplicates_and_no_refusals(home: Path) -> None:
    with started("up", "--demo", "--port", 0, "--json", cwd=home) as process:
        url = ready(process)
        wait_until(lambda: taken(url, "accepted") >= 40 and taken(url, "duplicates") >= 1)
        streams = {event["stream"] for event in call(url, "GET", "/admin/events").json["events"]}
        assert call(url, "GET", "/admin/rejects").json["rejects"] == []
        ran = stop(process, signal.SIGINT)
    assert streams == {"usage", "trades"}
    assert (ran.code, ran.err) == (0, "")


def test_sample_traffic_needs_a_key_where_keys_are_needed(home: Path) -> None:
    key = with_key(home, "ingest")
    ran = tidemark("up", "--demo", "--port", 0, "--json", cwd=home)
    assert (ran.code, ran.json["error"]["field"]) == (2, "api-key")
    env = {"TIDEMARK_API_KEY": key}
    with started("up", "--demo", "--port", 0, cwd=home, env=env) as process:
        said = welcome(process)
        assert "1 API key" in said
        assert key not in said
        time.sleep(1)
        assert stop(process).err == ""


def test_sample_traffic_that_is_refused_pauses_and_the_server_goes_on(home: Path) -> None:
    with_key(home, "ingest")
    args = ["up", "--demo", "--port", 0, "--json", "--api-key", "wrong"]
    with started(*args, cwd=home) as process:
        url = ready(process)
        assert process.stderr is not None
        warning = process.stderr.readline()
        assert "sample traffic pauses" in warning
        assert "not known" in warning
        assert call(url, "GET", "/readyz").status == 200
        assert stop(process).code == 0


def test_sample_traffic_needs_the_streams_of_the_sample(tmp_path: Path) -> None:
    (tmp_path / "tidemark.yaml").write_text("streams: {orders: {fields: {a: string}}}\n")
    ran = tidemark("up", "--demo", "--json", cwd=tmp_path)
    assert (ran.code, ran.json["error"]["field"]) == (2, "demo")


def test_a_server_without_a_usage_stream_shows_no_command_that_would_be_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "tidemark.yaml").write_text("streams: {orders: {fields: {a: string}}}\n")
    with started("up", "--port", 0, cwd=tmp_path) as process:
        assert "curl" not in welcome(process)
        assert stop(process).code == 0


def test_a_server_on_all_addresses_says_how_to_call_it_from_here(home: Path) -> None:
    with_key(home, "ingest")
    with started("serve", "--host", "0.0.0.0", "--port", 0, "--json", cwd=home) as process:
        url = ready(process)
        assert url.startswith("http://127.0.0.1:")
        assert call(url, "GET", "/readyz").status == 200
        assert stop(process).code == 0


def test_an_address_that_is_not_of_this_machine_is_told(home: Path) -> None:
    with_key(home, "ingest")
    ran = tidemark("serve", "--host", "192.0.2.1", "--port", 0, cwd=home)
    assert (ran.code, ran.out) == (2, "")
    assert "cannot listen on 192.0.2.1" in ran.err
