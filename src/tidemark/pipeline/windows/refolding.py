"""Finds in the ledger what must be folded anew when events of windows were corrected.

An amend may move an event from one key to another, so what was ever corrected ties keys together.
All keys that are tied to a corrected event, directly or by others, are folded anew as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tidemark.pipeline import facts
from tidemark.pipeline.fold.parts import CORRECTED, Gathered
from tidemark.pipeline.time.plans import TimePlan
from tidemark.pipeline.time.watermarks import MAXIMA_SCHEMA
from tidemark.pipeline.windows.corrected import fold_corrected
from tidemark.pipeline.windows.definition import NumberedWindow
from tidemark.pipeline.windows.keeper import Anew
from tidemark.pipeline.windows.lanes import LaneHistory, by_commit, by_event_time
from tidemark.pipeline.windows.refolded import EVENT_FIELDS, Event

Name: TypeAlias = tuple[str, str]
"""Tenant and key of an event."""
CommitTimes = Callable[[int], Sequence[int]]
"""When each commit of the ledger was received, in order, up to a time."""


class _Lanes(NamedTuple):
    """The time of a stream: how it went, and when it was ended for a tenant."""

    histories: Mapping[str, LaneHistory] | LaneHistory
    ends: list[tuple[str, int]]


class WindowRefolder:
    """Folds anew what corrections have touched."""

    def __init__(
        self,
        windows: Sequence[NumberedWindow],
        plan: TimePlan,
        records: Sequence[str],
        commit_times: CommitTimes,
    ) -> None:
        """`records` are the streams whose events may stand in the time of others."""
        self._windows = windows
        self._plan = plan
        self._records = records
        self._commit_times = commit_times

    def streams(self, gathered: Gathered) -> list[tuple[str, str]]:
        """The streams and tenants of which all events are needed; none if nothing is corrected."""
        found: set[tuple[str, str]] = set()
        for numbered in self._windows:
            for tenant, _ in _corrected(gathered, numbered):
                streams = (numbered.window.stream, *self._records)
                found |= {(stream, tenant) for stream in streams}
        return sorted(found)

    def refold(
        self, gathered: Gathered, decoded: DataFrame, start: int, end: int
    ) -> dict[str, Anew]:
        """What comes of the touched keys after `start`, by view; `decoded` are the facts of those
        streams from the beginning of the ledger."""
        targets = {it: set(_corrected(gathered, it)) for it in self._windows}
        touched = [it for it in self._windows if targets[it]]
        ties = self._ties(decoded.filter(fn.col("view").isin([it.view for it in touched])))
        anew: dict[str, Anew] = {}
        lanes: dict[str, _Lanes] = {}
        for numbered in touched:
            window = numbered.window
            if window.stream not in lanes:
                lanes[window.stream] = self._lanes(decoded, window.stream, end)
            names, slots = tied_to(targets[numbered], ties.get(numbered.view, ()))
            refolded = fold_corrected(
                window,
                self._events(decoded, numbered, names, slots),
                lanes[window.stream].histories,
                lanes[window.stream].ends,
                start=start,
                end=end,
            )
            anew[window.name] = Anew(frozenset(slots), refolded)
        return anew

    def _ties(self, own: DataFrame) -> dict[int, list[tuple[Name, int]]]:
        """By view, the slots that each event that was ever corrected has stood in."""
        is_original = fn.col("target_key").isNull()
        of_corrections = fn.col("target_key").alias("name")
        corrections = own.filter(~is_original).select(
            "view", "tenant_id", of_corrections, "kind", "slot"
        )
        corrected = corrections.select(
            fn.col("view").alias("of_view"), fn.col("tenant_id").alias("of_tenant"), "name"
        )
        originals = own.filter(is_original).join(
            corrected.distinct(),
            (fn.col("view") == fn.col("of_view"))
            & (fn.col("tenant_id") == fn.col("of_tenant"))
            & (fn.col("idempotency_key") == fn.col("name")),
            "left_semi",
        )
        of_originals = fn.col("idempotency_key").alias("name")
        found = corrections.unionByName(
            originals.select("view", "tenant_id", of_originals, "kind", "slot")
        )
        ties: dict[int, list[tuple[Name, int]]] = {}
        for row in found.collect():
            # A void says nothing of the key of its original.
            if row["kind"] != facts.VOID:
                tie = ((row["tenant_id"], row["name"]), row["slot"])
                ties.setdefault(row["view"], []).append(tie)
        return ties

    def _events(
        self, decoded: DataFrame, numbered: NumberedWindow, names: set[Name], slots: set[int]
    ) -> list[Event]:
        wanted = fn.col("slot").isin(list(slots)) | fn.col("target_key").isin(
            [key for _, key in names]
        )
        own = decoded.filter((fn.col("view") == numbered.view) & wanted)
        found = own.select(*EVENT_FIELDS, numbered.groups)
        events: list[Event] = []
        for batch in found.toArrow().to_batches():
            values = [batch.column(name).to_pylist() for name in EVENT_FIELDS]
            groups = batch.column(numbered.groups).to_pylist()
            own_groups = numbered.window.group_by
            values.append([tuple((it or {}).get(name) for name in own_groups) for it in groups])
            events += map(Event._make, zip(*values, strict=True))
        return sorted(events)

    def _lanes(self, decoded: DataFrame, stream: str, end: int) -> _Lanes:
        time = self._plan.streams[stream]
        of_time = decoded.filter(fn.col("time_stream") == stream)
        ts = fn.col("ts")
        if time.future_bound_us is not None:
            is_tame = ts <= fn.col("received_at") + fn.lit(time.future_bound_us)
            ts = fn.when(is_tame, ts)
        found = pa.table(
            of_time.groupBy(
                fn.col("time_stream").alias("stream"), "tenant_id", "received_at", "kind"
            )
            .agg(fn.max(ts).alias("max_ts"))
            .toArrow()
        )
        ends = found.filter(pc.equal(found.column("kind"), facts.END))
        maxima = found.filter(pc.equal(found.column("kind"), facts.TUPLE))
        told = [(row["tenant_id"], row["received_at"]) for row in ends.to_pylist()]
        if time.column is None:
            return _Lanes(by_commit(self._commit_times(end)), told)
        commits = [] if time.idle_after_us is None else self._commit_times(end)
        maxima = maxima.select(MAXIMA_SCHEMA.names).cast(MAXIMA_SCHEMA)
        return _Lanes(by_event_time(stream, time, commits, maxima), told)


def tied_to(
    targets: Iterable[Name], ties: Iterable[tuple[Name, int]]
) -> tuple[set[Name], set[int]]:
    """All names and slots that can be come to from the targets over pairs of the two."""
    slots_of: dict[Name, set[int]] = {}
    names_of: dict[int, set[Name]] = {}
    for name, slot in ties:
        slots_of.setdefault(name, set()).add(slot)
        names_of.setdefault(slot, set()).add(name)
    names, slots = set(targets), set[int]()
    waiting = list(names)
    while waiting:
        new = slots_of.get(waiting.pop(), set()) - slots
        slots |= new
        more = {name for slot in new for name in names_of[slot]} - names
        names |= more
        waiting += more
    return names, slots


def _corrected(gathered: Gathered, numbered: NumberedWindow) -> list[Name]:
    corrections = gathered.take(numbered.window.name, CORRECTED)
    if corrections is None:
        return []
    columns = (corrections.column(name).to_pylist() for name in ("tenant_id", "target_key"))
    return list(zip(*columns, strict=True))
