"""`mirror`, alone and beside `up`, and what `verify --deep`, `explain` and `status` say of it."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.cli_runs import Ran, started, stop, tidemark, wait_until
from tests.acceptance.pipelines import CONFIG, fill_ledger, history, write_config
from tests.acceptance.warm_runs import tidemark_on_spark
from tests.services.kafka import shared_broker
from tests.services.mirroring import MirrorWorld
from tests.services.ports import free_port

EVENT_COUNT = 36


class Home(MirrorWorld):
    """A directory with a configuration, a ledger that is filled, and topics for it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "sqlite:///unused.db", shared_broker())
        mirror = f'{{bootstrap_servers: "{self.broker.address}", topic_prefix: "{self.prefix}"}}'
        write_config(directory, f"{CONFIG}mirror: {mirror}\n")
        fill_ledger(directory, history())
        self.directory = directory

    def ledger(self) -> closing[sqlite3.Connection]:
        return closing(sqlite3.connect(self.directory / "state" / "ledger.db"))

    def told(self) -> int:
        with self.ledger() as ledger:
            rows = ledger.execute("SELECT last_sequence FROM copies WHERE name = 'mirror'")
            return max((row[0] for row in rows), default=0)

    def sequences(self) -> list[int]:
        return [int(event["ingressSequence"]) for _, events in self.read() for event in events]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_it_ends_when_everything_is_in_kafka_and_says_so(home: Home) -> None:
    ran = tidemark("mirror", "--until-caught-up", cwd=home.directory)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"Mirrored up to sequence {EVENT_COUNT} to {home.broker.address}.\n"
    assert home.sequences() == list(range(1, EVENT_COUNT + 1))
    document = tidemark("mirror", "--until-caught-up", "--json", cwd=home.directory).json
    assert (document["caughtUp"], document["sequence"]) == (True, str(EVENT_COUNT))
    # Somebody else writes to the topic, and the proof finds it.
    home.write("usage", b"{}", key=b"x")
    env = {"TIDEMARK_MIRROR__ENABLED": "true"}
    ran = tidemark_on_spark("verify", "--deep", cwd=home.directory, env=env)
    assert ran.code == 1, ran.err
    place = rf"{home.prefix}usage\[\d\]@\d+"
    assert re.search(rf"Mirrored to Kafka: {place}: the mirror has not written this", ran.out)
    # What is gone is a difference as well, and no trouble with the brokers.
    home.remove_messages(f"{home.prefix}usage")
    ran = tidemark_on_spark("verify", "--deep", cwd=home.directory, env=env)
    assert ran.code == 1, ran.err
    assert re.search(rf"to Kafka: {place}: a message is missing: .*, sequence 1\n", ran.out)
    # Unless it may be: then it is counted.
    env |= {"TIDEMARK_MIRROR__ALLOW_SHORT_RETENTION": "true"}
    ran = tidemark_on_spark("verify", "--deep", cwd=home.directory, env=env)
    assert (ran.code, ran.err) == (0, "")
    assert "as in the ledger. 29 of them may be gone, and are.\n" in ran.out


def test_it_follows_the_ledger_beside_the_server_and_ends_with_it(home: Home) -> None:
    env = {"TIDEMARK_PIPELINE__ENABLED": "false", "TIDEMARK_MIRROR__ENABLED": "true"}
    port = free_port()
    with started("up", "--json", "--port", port, cwd=home.directory, env=env) as process:
        wait_until(lambda: home.told() == EVENT_COUNT)
        url = f"http://127.0.0.1:{port}"
        status = tidemark("status", "--json", "--url", url, cwd=home.directory).json
        explained = tidemark(
            "explain", "1", "--as", "sequence", "--json", "--url", url, cwd=home.directory
        )
        # Only one of this state directory.
        ran = tidemark("mirror", "--until-caught-up", cwd=home.directory)
        assert ran.code == 1
        assert "another process mirrors this ledger" in ran.err
        ran = stop(process)
    assert (ran.code, ran.err) == (0, "")
    part = status["parts"]["mirror"]
    assert (part["state"], part["lagEvents"]) == ("ready", "0")
    mirrored = explained.json["mirrored"]
    assert mirrored["topic"].startswith(home.prefix)
    assert int(mirrored["offset"]) >= 0
    assert home.sequences() == list(range(1, EVENT_COUNT + 1))
    assert tidemark("mirror", "--until-caught-up", cwd=home.directory).code == 0


def test_of_an_event_that_is_forgotten_no_place_is_told(home: Home) -> None:
    """Kafka had forgotten it before its place was written down."""
    assert tidemark("mirror", "--until-caught-up", cwd=home.directory).code == 0
    home.remove_messages(f"{home.prefix}usage")
    with home.ledger() as ledger, ledger:
        ledger.execute("DELETE FROM mirrored")
    env = {"TIDEMARK_MIRROR__ALLOW_SHORT_RETENTION": "true"}
    ran = tidemark("mirror", "--until-caught-up", cwd=home.directory, env=env)
    assert ran.code == 0, ran.err
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    def explained(sequence: int) -> Ran:
        of = (str(sequence), "--as", "sequence", "--json", "--url", url)
        return tidemark("explain", *of, cwd=home.directory)

    with started("serve", "--port", port, cwd=home.directory):
        wait_until(lambda: explained(1).code == 0)
        usage, trade = explained(1).json, explained(10).json
    assert (usage["event"]["stream"], trade["event"]["stream"]) == ("usage", "trades")
    assert "mirrored" not in usage
    assert trade["mirrored"]["topic"] == f"{home.prefix}trades"


def test_what_cannot_be_used_is_an_error_with_a_hint(home: Home) -> None:
    env = {"TIDEMARK_MIRROR__OPTIONS": "{no.such.option: 1}"}
    ran = tidemark("mirror", "--until-caught-up", cwd=home.directory, env=env)
    assert ran.code == 2
    assert "no.such.option" in ran.err
    assert "hint: " in ran.err
