"""One query after the other: what is told of them while they fail, and how many may die.

Ledger and views are real. What each query does is written down beforehand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tidemark.app import pipeline as app
from tidemark.config import Config, load_config
from tidemark.pipeline.errors import SparkUnavailable
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
    path = tmp_path / "tidemark.yaml"
    path.write_text(f"""
state_dir: {tmp_path / "state"}
streams: {{usage: {{kind: usage}}}}
meters: {{api_calls: {{aggregate: sum}}}}
""")
    return load_config(path, {})


def ran(config: Config, monkeypatch: pytest.MonkeyPatch, attempts: Sequence[Attempt]) -> None:
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
    app.run_pipeline(config, until_caught_up=False, on_progress=lambda standing: None, stop=stop)
    assert not left


def waits(query: Query) -> None:
    raise ViewsUnavailable("the views are away")


def dies(query: Query) -> None:
    raise RuntimeError("out of memory")


def goes_on(query: Query) -> None:
    """It is asked to stop then."""


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
