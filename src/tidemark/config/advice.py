"""What is allowed in a configuration but is seldom meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tidemark.config.durations import UNITS_US, format_duration
from tidemark.config.model import Config
from tidemark.config.pipeline_model import Period
from tidemark.config.problems import Problem, render_path
from tidemark.config.urls import SQLITE_PREFIX

# The longest that each can be, but for the hour by which a day or a month may be longer where
# clocks are put back.
PERIOD_LENGTHS_US: Final[dict[Period, int]] = {
    "hour": UNITS_US["h"],
    "day": UNITS_US["d"],
    "week": 7 * UNITS_US["d"],
    "month": 31 * UNITS_US["d"],
}
# Spark in one process, or a cluster whose master is asked for on this machine.
_LOOPBACK: Final = r"(?:localhost|127\.[\d.]+|\[::1\])(?=[:/?]|$)"
_IS_THIS_MACHINE: Final = re.compile(rf"local|spark://{_LOOPBACK}")
_ON_LOOPBACK: Final = re.compile(rf"postgresql://(?:[^/?@]*@)?{_LOOPBACK}")


def advise(config: Config) -> list[Problem]:
    """Remarks on a valid configuration, for `tidemark check` to show as warnings."""
    return [*_streams(config), *_meters(config), *_cluster(config), *_access(config)]


def _streams(config: Config) -> Iterator[Problem]:
    if not config.streams:
        hint = "Declare one; `tidemark init` writes a sample with two."
        yield Problem("streams", "there are no streams, so every event is rejected", hint)
    for name, stream in config.streams.items():
        path = render_path(("streams", name))
        if stream.kind == "events" and name == "usage":
            message = "the stream is called usage but holds no usage events"
            yield Problem(path, message, "Say `kind: usage` if it is meant to.")
        if stream.kind == "events" and not stream.identity:
            message = (
                "no identity is declared, so events other than CloudEvents need an idempotencyKey"
            )
            yield Problem(path, message, "Name the fields that make two events the same.")


def _meters(config: Config) -> Iterator[Problem]:
    for name, meter in config.meters.items():
        is_never_closed = meter.close_after_us is None
        if is_never_closed and meter.lateness_us >= PERIOD_LENGTHS_US[meter.period]:
            lateness = format_duration(meter.lateness_us)
            message = (
                f"a lateness of {lateness} covers the whole {meter.period} and closeAfter is off: "
                "nothing is then ever late"
            )
            hint = "Set `closeAfter` or a shorter `lateness`, unless that is what you want."
            yield Problem(render_path(("meters", name)), message, hint)


def _cluster(config: Config) -> Iterator[Problem]:
    """Tasks on other machines read ledger and views themselves."""
    if _IS_THIS_MACHINE.match(config.spark.master):
        return
    views = config.view_store.url or config.ledger.url
    for path, url in (("ledger.url", config.ledger.url), ("view_store.url", views)):
        if url is None or url.startswith(SQLITE_PREFIX):
            message = "a file of this machine, and spark.master is a cluster, which cannot read it"
        elif _ON_LOOPBACK.match(url):
            message = "an address of this machine only, and the tasks of spark.master are on others"
        else:
            continue
        hint = "Use a PostgreSQL that every machine reaches, unless all of the cluster is here."
        yield Problem(path, message, hint)


def _access(config: Config) -> Iterator[Problem]:
    if config.auth.keys and config.http.allowed_hosts:
        message = "the list has no effect, since keys are asked for whatever the Host header says"
        yield Problem("http.allowed_hosts", message, "Remove it.")
    if config.auth.rules and not config.auth.jwt:
        message = "the rules have no effect, since there are no tokens; keys have their tenants"
        yield Problem("auth.rules", message, "Remove them, or declare who issues tokens.")
    if config.auth.jwt and not config.auth.rules:
        message = "there are no rules, so holders of tokens see nothing"
        hint = "Say under `auth.rules` which rows of each view they see; `{}` is all of them."
        yield Problem("auth.jwt", message, hint)
