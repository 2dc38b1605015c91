"""`tidemark pipeline`: from the ledger to the views, for ever or until they have caught up."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tidemark.cli.beside_server import run_as_child
from tidemark.cli.logs import quiet_spark
from tidemark.cli.long_work import run_beside
from tidemark.cli.options import Configured, config_option, configuration, json_option
from tidemark.cli.outcome import ExitCode, Terminated
from tidemark.cli.output import plural, write_json, write_line
from tidemark.cli.progress import Progress, show_progress
from tidemark.cli.stopping import hear_no_more
from tidemark.clock import MICROS_PER_SECOND, Clock, SystemClock
from tidemark.errors import ConfigError
from tidemark.ops.workers import follow_parent
from tidemark.pipeline.definitions import has_work

if TYPE_CHECKING:
    from tidemark.app.pipeline import Standing

# Once it has caught up, it need not be told every few seconds that it goes on.
_TELL_EVERY_US: Final = 60 * MICROS_PER_SECOND


@click.command
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="End when everything that is in the ledger now is in the views.",
)
@config_option
@json_option
def pipeline(until_caught_up: bool, config_path: Path | None, as_json: bool) -> int:
    """Fold the ledger into meters and tables, on Spark.

    Goes on from where the views are, and follows the ledger until Ctrl-C or SIGTERM stops it; the
    exit code is then 0. What was under way is done again the next time. A database that is away is
    waited for. `tidemark up` runs the same beside the server.
    """
    is_child = follow_parent()
    configured = configuration(config_path)
    config = configured.config
    if not has_work(config):
        raise ConfigError(
            f"{configured.source} has no meters and no views, and nothing is to be put in order,"
            " so there is nothing to fold",
            hint="Declare some under `meters` or `views`; `tidemark init` writes an example.",
            field="meters",
        )
    if is_child:
        return run_as_child(
            "the pipeline",
            lambda: _fold(configured, None, until_caught_up=False),
            on_stop=hear_no_more,
        )
    return _run(configured, until_caught_up=until_caught_up, as_json=as_json)


def _run(configured: Configured, *, until_caught_up: bool, as_json: bool) -> int:
    quiet_spark()
    clock = SystemClock()
    with show_progress(clock) as progress:
        shown = _Shown(progress, clock, until_caught_up=until_caught_up)
        progress.begin("starting Spark", None)
        try:
            _fold(configured, shown, until_caught_up=until_caught_up)
        except (KeyboardInterrupt, Terminated):
            if until_caught_up:
                raise
            hear_no_more()
    _conclude(configured, shown, as_json=as_json, caught_up=until_caught_up)
    return ExitCode.OK


def _fold(configured: Configured, shown: _Shown | None, *, until_caught_up: bool) -> None:
    def work(stop: threading.Event) -> None:
        # Loaded here: it takes a second, in which a signal is to be heard too.
        from tidemark.app.pipeline import run_pipeline

        run_pipeline(
            configured.config,
            until_caught_up=until_caught_up,
            on_progress=shown.take if shown is not None else lambda standing: None,
            stop=stop,
        )

    run_beside(work)


class _Shown:
    """The standing of the views as it is told, with the rate at which it moves."""

    def __init__(self, progress: Progress, clock: Clock, *, until_caught_up: bool) -> None:
        self._progress = progress
        self._clock = clock
        self._until_caught_up = until_caught_up
        self._began_us = clock.elapsed_us()
        self._told_us = 0
        self._before = (self._began_us, 0)
        self._rate = 0.0
        self._has_caught_up = False
        self.first: Standing | None = None
        self.last: Standing | None = None

    @property
    def seconds(self) -> float:
        return (self._clock.elapsed_us() - self._began_us) / MICROS_PER_SECOND

    @property
    def event_count(self) -> int:
        if self.first is None or self.last is None:
            return 0
        return self.last.sequence - self.first.sequence

    def take(self, standing: Standing) -> None:
        now_us = self._clock.elapsed_us()
        if self.first is None:
            self.first = standing
            self._before = (now_us, standing.sequence)
            # From here on it is the folding that is measured, and no longer the start of Spark.
            self._began_us = now_us
            self._progress.begin("folding", standing.ledger_sequence or None)
        self.last = standing
        then_us, then = self._before
        if now_us - then_us >= MICROS_PER_SECOND:
            self._rate = (standing.sequence - then) * MICROS_PER_SECOND / (now_us - then_us)
            self._before = (now_us, standing.sequence)
        if self._is_worth_a_line(now_us):
            self._progress.update(standing.sequence, self._text(standing))
        if not standing.lag_events and not self._has_caught_up:
            self._has_caught_up = True
            if not self._until_caught_up:
                self._progress.begin("following", None)

    def _is_worth_a_line(self, now_us: int) -> bool:
        if self._progress.is_bar or not self._has_caught_up:
            return True
        if now_us - self._told_us < _TELL_EVERY_US:
            return False
        self._told_us = now_us
        return True

    def _text(self, standing: Standing) -> str:
        behind = "caught up"
        if standing.lag_events:
            since = f", {standing.lag_seconds:,.1f} s" if standing.lag_seconds else ""
            behind = f"{plural(standing.lag_events, 'event')}{since} behind"
        return f"sequence {standing.sequence:,}, {self._rate:,.0f} events/s, {behind}"


def _conclude(configured: Configured, shown: _Shown, *, as_json: bool, caught_up: bool) -> None:
    sequence = 0 if shown.last is None else shown.last.sequence
    if as_json:
        write_json(
            {
                "config": configured.as_json,
                "caughtUp": caught_up,
                "sequence": str(sequence),
                "events": shown.event_count,
                "seconds": round(shown.seconds, 3),
            }
        )
        return
    what = "Caught up" if caught_up else "Pipeline stopped"
    rate = shown.event_count / shown.seconds if shown.seconds else 0.0
    write_line(
        f"{what}: {plural(shown.event_count, 'event')} in {shown.seconds:,.1f} s"
        f" ({rate:,.0f} events/s). The views are at sequence {sequence:,}"
        f" (configured by {configured.source})."
    )
