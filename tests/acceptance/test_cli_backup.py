"""A backup that is taken under load is a Tidemark that goes on from there, on both stores."""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.acceptance.cli_runs import tidemark
from tests.acceptance.pipelines import CONFIG
from tests.acceptance.warm_runs import tidemark_on_spark
from tests.services.http_calls import call
from tests.services.live_server import LiveServer, position
from tests.services.postgres import PostgresServer
from tests.services.postgres_binaries import find_binaries
from tests.services.tidemark_server import TidemarkServer
from tidemark.config.sample import sample_text

BATCH = 20
STORES = ("ledger.db", "views.db", "triggers.db")


class Publisher:
    """Sends events for as long as it is asked to, and knows what was acknowledged."""

    def __init__(self, server: TidemarkServer) -> None:
        self._server = server
        self._numbers = itertools.count()
        self._stopping = threading.Event()
        self.acknowledged = 0

    def send(self) -> None:
        usage = {"tenantId": "acme", "metric": "api_calls", "quantity": 1}
        events = [
            {
                **usage,
                "customerRef": f"c-{number % 7}",
                "resourceId": str(number),
                "ts": f"2026-03-01T12:{number % 60:02d}:00Z",
            }
            for number in itertools.islice(self._numbers, BATCH)
        ]
        answer = call(self._server.base_url, "POST", "/v1/events", json={"events": events})
        assert answer.status == 200, answer.text
        self.acknowledged = max(int(result["ingressSequence"]) for result in answer.json["results"])

    @contextmanager
    def sending(self) -> Iterator[None]:
        def go_on() -> None:
            while not self._stopping.is_set():
                self.send()

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()


@contextmanager
def busy(config: str) -> Iterator[tuple[TidemarkServer, Publisher]]:
    """A server with views that are behind, and somebody who publishes."""
    with TidemarkServer(config) as server:
        publisher = Publisher(server)
        for _ in range(3):
            publisher.send()
        ran = tidemark_on_spark("pipeline", "--until-caught-up", cwd=server.directory)
        assert ran.code == 0, ran.err
        with publisher.sending():
            yield server, publisher


def goes_on(home: Path) -> None:
    assert tidemark_on_spark("pipeline", "--until-caught-up", cwd=home).code == 0
    verified = tidemark_on_spark("verify", cwd=home)
    assert (verified.code, "No difference." in verified.out) == (0, True), verified.out


def test_files_copied_under_load_are_put_back_and_go_on(tmp_path: Path) -> None:
    with busy(CONFIG) as (server, publisher):
        before = publisher.acknowledged
        ran = tidemark("backup", tmp_path / "backup", "--json", cwd=server.directory)
        assert ran.code == 0, ran.err
        # A second one, while more arrives, is another.
        assert tidemark("backup", tmp_path / "later", cwd=server.directory).code == 0
    taken = json.loads(ran.out)
    sequences = {copied["store"]: copied["lastSequence"] for copied in taken["copied"]}
    assert sequences["views"] == 60
    assert before <= sequences["ledger"]
    assert taken["elsewhere"] == []
    home = tmp_path / "restored"
    (home / "state").mkdir(parents=True)
    (home / "tidemark.yaml").write_text(CONFIG)
    for name in STORES:
        if (tmp_path / "backup" / name).exists():
            shutil.copy(tmp_path / "backup" / name, home / "state" / name)
    with closing(sqlite3.connect(home / "state" / "ledger.db")) as ledger:
        counted = ledger.execute(
            "SELECT count(*), min(ingress_sequence), max(ingress_sequence) FROM events"
        ).fetchone()
    assert counted == (sequences["ledger"], 1, sequences["ledger"])
    goes_on(home)


def test_a_dump_of_postgresql_under_load_is_restored_and_goes_on(
    tmp_path: Path, postgres: PostgresServer, postgres_url: str
) -> None:
    binaries, dump = find_binaries(), tmp_path / "tidemark.dump"
    with busy(f"{CONFIG}ledger: {{url: '{postgres_url}'}}\n") as (server, publisher):
        before = publisher.acknowledged
        refused = tidemark("backup", tmp_path / "backup", cwd=server.directory)
        assert (refused.code, "pg_dump" in refused.err) == (1, True)
        command = [binaries / "pg_dump", "--format=custom", f"--file={dump}", postgres_url]
        subprocess.run(command, check=True)
    other = postgres.create_database()
    subprocess.run([binaries / "pg_restore", f"--dbname={other}", dump], check=True)
    query = (
        "SELECT count(*), max(ingress_sequence),"
        " (SELECT ingress_sequence FROM tidemark_views.frontier) FROM tidemark.events"
    )
    asked = [binaries / "psql", "--no-align", "--tuples-only", f"--command={query}", other]
    said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    count, last, frontier = map(int, said.split("|"))
    assert before <= last == count
    assert frontier == 60
    home = tmp_path / "restored"
    home.mkdir()
    (home / "tidemark.yaml").write_text(f"{CONFIG}ledger: {{url: '{other}'}}\n")
    assert tidemark_on_spark("pipeline", "--until-caught-up", cwd=home).code == 0
    postgres.drop_database(other)


@pytest.mark.parametrize(
    ("place", "words"),
    [("full", "is not empty"), ("file/in", "cannot be written: Not a directory")],
)
def test_a_place_that_cannot_be_used_is_named(tmp_path: Path, place: str, words: str) -> None:
    (tmp_path / "tidemark.yaml").write_text(CONFIG)
    nothing = tidemark("backup", "anywhere", cwd=tmp_path)
    assert (nothing.code, "there is no ledger at " in nothing.err) == (1, True)
    assert tidemark("migrate", cwd=tmp_path).code == 0
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    (tmp_path / "file").touch()
    ran = tidemark("backup", place, cwd=tmp_path)
    assert (ran.code, words in ran.err) == (1, True), ran.err


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_old_changes_are_forgotten_and_their_room_is_given_back(
    store: str, request: pytest.FixtureRequest
) -> None:
    config = sample_text().replace("change_retention: 7d", "change_retention: 1s")
    url = None if store == "sqlite" else request.getfixturevalue("postgres_url")
    with LiveServer(config, store_url=url) as live:
        for number in range(30):
            live.commit([position(f"a-{row}", quantity=str(number + 1)) for row in range(200)])
        # Later than all of them by more than is kept.
        at = live.commit([position("last")], after_us=2_000_000)
        env = {} if url is None else {"TIDEMARK_LEDGER__URL": url}
        ran = tidemark("compact", "--json", cwd=live.server.directory, env=env)
        assert ran.code == 0, ran.err
        done = json.loads(ran.out)
        assert done["forgotten"] == 30 * 200
        assert done["bytesAfter"] < done["bytesBefore"] / 2
        # Those who have the views open go on.
        live.commit([position("later")])
        assert live.received_at > at
        text = tidemark("compact", cwd=live.server.directory, env=env).out
        assert text.startswith("0 changes forgotten; the views take ")
