"""A ledger with everything in it: usage for meters, a stream for tables and for order, ticks.

Usage and the stream are generated on their own and then share commits, so each commit may concern
all views, some, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.contract.events import ManualClock
from tests.contract.stores import Ledger
from tests.folding.ledgers import as_draft
from tests.folding.streams import stream_draft, stream_settings, view_settings
from tests.generated.ledgers import DAY, HOUR, Shape, random_ledger
from tests.generated.meters import AT_LEAST_ONE, NEGATED, OF_R1
from tests.generated.streams import STREAM, TABLES, StreamShape, random_stream
from tests.reference import eventtime
from tests.reference.definitions import Meter
from tests.reference.history import Commit, Event
from tests.reference.tables import EventTime, StreamCommit, StreamEvent, Table
from tests.reference.window_definitions import Window
from tidemark.config import Config
from tidemark.ingress.drafts import Draft, Submission, no_corrections

DraftCommit = tuple[int, list[Draft]]

# Every aggregate, period and option, with as few meters as there are aggregates.
METERS: Final = (
    Meter("m_sum", "api_calls", "sum", "month", close_after_us=3 * DAY),
    Meter("m_max", "api_calls", "max", "day", "America/New_York", HOUR, group_by=("region",)),
    Meter("m_min", "api_calls", "min", "week", "Europe/Berlin", where=OF_R1),
    Meter("m_count", "api_calls", "count", "hour", lateness_us=0, where=AT_LEAST_ONE),
    Meter("m_last", "api_calls", "last", "month", "Europe/Berlin", group_by=("region", "plan")),
    Meter("m_avg", "bytes", "avg", "day", close_after_us=0, value=NEGATED),
    Meter("m_unique", "api_calls", "unique", "month", lateness_us=HOUR, close_after_us=HOUR),
)
_BY_NAME: Final = {table.name: table for table in TABLES}
# How the time of the stream is kept in `settings_of`.
TIME: Final = eventtime.EventTime(late_tolerance=HOUR, future_bound=HOUR, idle_after=DAY)
TIMED: Final = EventTime("at", "iso8601", lambda value: value)
DELETING, BY_ALL, BY_PLACE = (
    replace(_BY_NAME[name], time=TIMED) for name in ("deleting", "by_all", "by_place")
)


@dataclass(frozen=True)
class MixedLedger:
    """The commits of a ledger as each part of the reference takes them: all of them, but with the
    events of its own only."""

    usage: list[Commit]
    stream: list[StreamCommit]

    def drafts(self) -> list[DraftCommit]:
        """All events of each commit, in their order."""
        commits = []
        for (received_at, usage), (_, stream) in zip(self.usage, self.stream, strict=True):
            numbered = {event["seq"]: as_draft(event) for event in usage}
            numbered |= {event["seq"]: stream_draft(event) for event in stream}
            commits.append((received_at, [numbered[seq] for seq in sorted(numbered)]))
        return commits


def mixed_ledger(seed: int, *, commits: int, entries: int, controls: bool = True) -> MixedLedger:
    """The ledger of a seed: so many commits, with up to so many events for each of the two."""
    usage = random_ledger(seed, Shape(commits, entries, controls=controls))
    stream = random_stream(seed, StreamShape(commits, entries, controls=controls))
    mixed = MixedLedger([], [])
    last = 0
    for (received_at, of_usage), (_, of_stream) in zip(usage, stream, strict=True):
        first, second = last, last + len(of_usage)
        if received_at % 2:
            first, second = last + len(of_stream), last
        last += len(of_usage) + len(of_stream)
        numbered = [_numbered(event, first + n) for n, event in enumerate(of_usage, 1)]
        mixed.usage.append((received_at, numbered))
        renamed = [_renamed(event, second + n) for n, event in enumerate(of_stream, 1)]
        mixed.stream.append((received_at, renamed))
    return mixed


def _numbered(event: Event, seq: int) -> Event:
    return {**event, "seq": seq}


def _renamed(event: StreamEvent, seq: int) -> StreamEvent:
    """Both kinds of events use the same keys, and in one ledger they must not."""
    target = None if event["target"] is None else f"s{event['target']}"
    return {**event, "seq": seq, "key": f"s{event['key']}", "target": target}


async def fill(ledger: Ledger, clock: ManualClock, commits: Sequence[DraftCommit]) -> None:
    """Each commit at its own time, with some events of the one before it sent once more. One
    without events becomes a tick."""
    before: list[Draft] = []
    for received_at, drafts in commits:
        clock.pass_time(received_at - clock.wall_us())
        if drafts:
            entries = [*before[::3], *drafts, *drafts[::4]]
            [outcomes] = await ledger.append_group([Submission("r", entries)], no_corrections)
            statuses = [outcome.status for outcome in outcomes]
            assert statuses.count("accepted") == len(drafts)
            assert set(statuses) <= {"accepted", "duplicate"}
            before = drafts
        else:
            assert await ledger.tick(0) is not None


def settings_of(
    meters: Sequence[Meter], tables: Sequence[Table], windows: Sequence[Window] = ()
) -> dict[str, Any]:
    """A configuration without its places. The stream is also written in the order of its time."""
    stream = {
        **stream_settings(TABLES[0]),
        "eventtime": {"column": TIMED.column, "type": TIMED.type},
        "idleAfter": TIME.idle_after,
    }
    return {
        "streams": {"usage": {"kind": "usage"}, STREAM: stream},
        "meters": {meter.name: meter_settings(meter) for meter in meters},
        "views": {table.name: view_settings(table) for table in tables},
        "windows": {window.name: window_settings(window) for window in windows},
        "pipeline": {
            "eventtime": {
                "enabled": True,
                "lateTolerance": TIME.late_tolerance,
                "futureBound": TIME.future_bound,
            },
            "ordered": {STREAM: {}},
        },
    }


def window_settings(window: Window) -> dict[str, Any]:
    return {
        "stream": window.stream,
        "size": window.size_us,
        "every": window.every_us,
        "group_by": list(window.group_by),
        "aggregate": window.aggregate,
        "value": window.value.text,
        "where": None if window.where is None else window.where.text,
        "emit": window.emit,
        "late": window.late,
        "refireFor": window.refire_for_us,
    }


def meter_settings(meter: Meter) -> dict[str, Any]:
    return {
        "metric": meter.metric,
        "aggregate": meter.aggregate,
        "period": meter.period,
        "timezone": meter.zone,
        "lateness": meter.lateness_us,
        "closeAfter": meter.close_after_us,
        "group_by": list(meter.group_by),
        "where": None if meter.where is None else meter.where.text,
        "value": meter.value.text,
    }


def config_of(
    settings: Mapping[str, Any], state_dir: Path, ledger_url: str, views_url: str
) -> Config:
    places = {
        "state_dir": str(state_dir),
        "ledger": {"url": ledger_url},
        "view_store": {"url": views_url},
    }
    return Config.model_validate({**settings, **places})
