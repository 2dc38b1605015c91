"""One query after the other: what is told of them while they fail, and how many may die.

Ledger and views are real. What each query does is written down beforehand.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.services.mirroring import wait_until
from tidemark.app import pipeline as app
from tidemark.clock import SystemClock
from tidemark.config import Config, load_config
from tidemark.errors import ConfigError
from tidemark.ledger.opening import open_ledger
from tidemark.ledger.port import CommitRow, CopyState
from tidemark.mirror.messages import CommitRecord, commit_record
from tidemark.ops.pipeline_status import PipelineStatus
from tidemark.pipeline.errors import SparkUnavailable
from tidemark.pipeline.kafka.errors import KafkaUnavailable
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.output.errors import ViewsUnavailable


class Query:
    """Begins where the one before it ended, and moves on when it is told to."""

    def __init__(self, frontier: Frontier | None) -> None:
        self.frontier = frontier

    def prepare(self) -> None:
        """There is nothing to prepare."""


Attempt = Callable[[Query], None]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Of a ledger with one commit."""
    path = tmp_path / "tidemark.yaml"
    path.write_text(f"""
state_dir: {tmp_path / "state"}
streams: {{usage: {{kind: usage}}}}
meters: {{api_calls: {{aggregate: sum}}}}
""")
    config = load_config(path, {})
    asyncio.run(begin(config))
    return config


async def begin(config: Config) -> None:
    ledger = await open_ledger(config, SystemClock())
    await ledger.tick(0)
    await ledger.close()


def told(config: Config) -> list[str | None]:
    """The code of what the ledger was told, and of what is in the state directory."""
    with closing(sqlite3.connect(config.state_dir / "ledger.db")) as connection:
        rows = connection.execute("SELECT code FROM copies WHERE name = 'pipeline'").fetchall()
    error = PipelineStatus(config.state_dir).error()
    return [*(code for (code,) in rows), None if error is None else error.code]


def ran(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    attempts: Sequence[Attempt],
    *,
    until_caught_up: bool = False,
) -> None:
    """The pipeline with one of these after the other, without pauses; it stops after the last."""
    stop, left = threading.Event(), list(attempts)
    reached: list[Frontier | None] = [None]

    class Scripted(Query):
        def __init__(self, *_: object, **__: object) -> None:
            super().__init__(reached[-1])

        def run(self, *, until_caught_up: bool) -> None:
            try:
                left.pop(0)(self)
            finally:
                reached.append(self.frontier)
            if not left:
                stop.set()

    monkeypatch.setattr(app, "Pipeline", Scripted)
    monkeypatch.setattr(app, "start_session", lambda *_, **__: None)
    monkeypatch.setattr(app, "stop_session", lambda: None)
    monkeypatch.setattr(app, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(app, "LOOK_EVERY_S", 0.02)
    app.run_pipeline(
        config, until_caught_up=until_caught_up, on_progress=lambda standing: None, stop=stop
    )
    assert not left


def waits(query: Query) -> None:
    raise ViewsUnavailable("the views are away")


def dies(query: Query) -> None:
    raise RuntimeError("out of memory")


def goes_on(query: Query) -> None:
    """It is asked to stop then."""


def test_options_of_kafka_that_have_worked_are_waited_for(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a certificate is replaced. Those that never worked are wrong."""

    def refused(query: Query) -> None:
        raise ConfigError("no such certificate", field="mirror.options", hint="")

    def works(query: Query) -> None:
        query.frontier = Frontier(0, 1, bytes(32), "L")
        wait_until(lambda: told(config) == [None, None])
        raise KafkaUnavailable("the certificate has expired")

    with pytest.raises(ConfigError):
        ran(config, monkeypatch, [refused, goes_on])
    ran(config, monkeypatch, [works, *[refused] * 6, goes_on])


def test_what_was_waited_for_is_no_death_at_one_place(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(config, monkeypatch, [*[waits] * 6, dies, waits, dies, goes_on])


def test_a_query_that_dies_five_times_at_one_place_ends_the_pipeline_whatever_was_waited_for(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SparkUnavailable, match="out of memory"):
        ran(config, monkeypatch, [dies, dies, waits, dies, dies, waits, dies, goes_on])


def test_a_query_that_moves_on_between_may_die_again(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moves_and_dies(query: Query) -> None:
        query.frontier = Frontier(1, 1, bytes(32), "L")
        dies(query)

    ran(config, monkeypatch, [*[dies] * 4, moves_and_dies, *[dies] * 3, goes_on])


AWAY = "views_unavailable"
WELL = [None, None]


@pytest.fixture
def lives_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each query has lived for longer than it could wait for anything."""
    monkeypatch.setattr(app, "LIVES_AFTER_US", 0)


@pytest.fixture
def is_behind(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set while there is something to fold."""
    found = threading.Event()
    monkeypatch.setattr(app, "_is_behind", lambda *_: found.is_set())
    return found


def dies_late(query: Query, config: Config) -> None:
    wait_until(lambda: told(config) == WELL)
    dies(query)


@pytest.mark.usefixtures("lives_long", "is_behind")
def test_a_query_that_had_nothing_left_to_fold_may_die_again_and_again(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(config, monkeypatch, [*[partial(dies_late, config=config)] * 6, goes_on])


@pytest.mark.usefixtures("is_behind")
def test_a_query_that_dies_as_soon_as_it_has_begun_ends_the_pipeline_with_nothing_to_fold(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SparkUnavailable, match="out of memory"):
        ran(config, monkeypatch, [*[partial(dies_late, config=config)] * 5, goes_on])


@pytest.mark.usefixtures("lives_long")
def test_what_comes_when_nothing_was_left_and_kills_each_query_ends_the_pipeline(
    config: Config, monkeypatch: pytest.MonkeyPatch, is_behind: threading.Event
) -> None:
    def dies_of_what_comes(query: Query) -> None:
        wait_until(lambda: told(config) == WELL)
        is_behind.set()
        dies(query)

    attempts: list[Attempt] = [dies_of_what_comes, *[partial(dies_late, config=config)] * 3]
    with pytest.raises(SparkUnavailable, match="out of memory"):
        ran(config, monkeypatch, [*attempts, dies, goes_on])


class Clock(SystemClock):
    """Time passes when it is told to, too."""

    passed_s = 0

    def elapsed_us(self) -> int:
        return super().elapsed_us() + self.passed_s * 1_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr(Clock, "passed_s", 0)
    monkeypatch.setattr(app, "SystemClock", Clock)
    return Clock


def test_who_wants_to_be_done_does_not_take_work_for_waiting(
    config: Config, monkeypatch: pytest.MonkeyPatch, clock: type[Clock]
) -> None:
    def works_and_waits(query: Query) -> None:
        clock.passed_s += 90
        waits(query)

    def catches_up(query: Query) -> None:
        query.frontier = Frontier(0, 2**53, bytes(32), "L")

    ran(config, monkeypatch, [waits, works_and_waits, catches_up], until_caught_up=True)


def test_who_wants_to_be_done_waits_for_a_minute_however_much_each_query_works(
    config: Config, monkeypatch: pytest.MonkeyPatch, clock: type[Clock]
) -> None:
    """As with a disk that is full: all is well until something is to be written."""
    tries = []

    def works_and_waits(query: Query) -> None:
        tries.append(query)
        clock.passed_s += 90
        waits(query)

    def prepare(query: Query) -> None:
        clock.passed_s += 20

    monkeypatch.setattr(Query, "prepare", prepare)
    with pytest.raises(ViewsUnavailable):
        ran(config, monkeypatch, [works_and_waits] * 9, until_caught_up=True)
    assert len(tries) == 4


def test_who_wants_to_be_done_waits_for_a_mirror_for_as_long_as_it_moves(
    config: Config, monkeypatch: pytest.MonkeyPatch, clock: type[Clock]
) -> None:
    mirrored = iter([1, 2, 3, 3, 3])

    def finds_nothing(query: Query) -> None:
        clock.passed_s += 40

    def in_kafka(config: Config) -> CommitRecord:
        last = next(mirrored)
        return commit_record("L", CommitRow(last, 1, last, bytes(32)), {}, 0, {})

    monkeypatch.setattr(app, "last_in_kafka", in_kafka)
    with pytest.raises(KafkaUnavailable, match="Kafka ends with event 3, the views with 0"):
        ran(config, monkeypatch, [finds_nothing] * 9, until_caught_up=True)
    assert not [*mirrored]


def test_who_wants_to_be_done_counts_what_a_query_waits_for_kafka(
    config: Config, monkeypatch: pytest.MonkeyPatch, clock: type[Clock]
) -> None:
    def waits_within(query: Query) -> None:
        clock.passed_s += 90
        raise KafkaUnavailable("the brokers do not answer")

    with pytest.raises(KafkaUnavailable):
        ran(config, monkeypatch, [waits_within, waits_within, goes_on], until_caught_up=True)


@pytest.mark.parametrize("how", ["it has moved", "it is at the end", "it has lived for long"])
def test_what_is_wrong_is_told_until_a_query_goes_on(
    how: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def goes_on_late(query: Query) -> None:
        # Some looks at it.
        time.sleep(0.3)
        assert told(config) == [AWAY, AWAY]
        if how == "it has moved":
            query.frontier = Frontier(0, 1, bytes(32), "L")
        elif how == "it is at the end":
            monkeypatch.setattr(app, "_is_behind", lambda *_: False)
        else:
            monkeypatch.setattr(app, "LIVES_AFTER_US", 0)
        wait_until(lambda: told(config) == WELL)

    ran(config, monkeypatch, [waits, waits, goes_on_late])


def test_what_the_process_before_said_is_wrong_until_a_query_goes_on(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    PipelineStatus(config.state_dir).failed(ViewsUnavailable("the views are away"))

    def begins(query: Query) -> None:
        time.sleep(0.3)
        assert told(config) == [AWAY]
        query.frontier = Frontier(0, 1, bytes(32), "L")
        wait_until(lambda: told(config) == WELL)

    ran(config, monkeypatch, [begins])


def test_that_all_is_well_is_told_again_whoever_has_said_otherwise(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "TELL_EVERY_US", 0)

    async def tell_otherwise() -> None:
        ledger = await open_ledger(config, SystemClock())
        error = ViewsUnavailable("the views are away")
        await ledger.tell_copy(CopyState("pipeline", 0, 0, 0, error))
        await ledger.close()

    def is_well(query: Query) -> None:
        query.frontier = Frontier(0, 1, bytes(32), "L")
        wait_until(lambda: told(config) == WELL)
        asyncio.run(tell_otherwise())
        wait_until(lambda: told(config) == WELL)

    ran(config, monkeypatch, [is_well])


def test_what_is_still_wrong_is_told_again_while_a_query_only_tries(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is silent for long is taken to be gone."""
    monkeypatch.setattr(app, "TELL_EVERY_US", 0)

    def told_at() -> int:
        with closing(sqlite3.connect(config.state_dir / "ledger.db")) as connection:
            [(at,)] = connection.execute("SELECT told_at FROM copies").fetchall()
        return int(at)

    def tries(query: Query) -> None:
        before = told_at()
        wait_until(lambda: told_at() > before)
        assert told(config) == [AWAY, AWAY]

    ran(config, monkeypatch, [waits, tries])
