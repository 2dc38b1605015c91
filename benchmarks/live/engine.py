"""How the cost of an update grows with the number of filters: `python -m benchmarks.live.engine`.

Timed is everything from the texts of the change log to the payload of each feed that an update
matters to, in one thread: reading the columns that filters name, finding the filters, transitions,
rendering (once per feed) and handing it to the one subscriber each feed has. Not timed: reading the
log from the store and writing to sockets. `matching` is the same without rendering. The best of a
few rounds is reported, as noise only ever adds; each case runs in a process of its own, so that its
memory is its own.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from decimal import Decimal
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from benchmarks.ingest.report import section, table
from benchmarks.ingest.results import Target
from tidemark.live.engine import ChangedRow, Item, Source
from tidemark.live.filters import parse_filter
from tidemark.pipeline.output.encoding import encode_row, row_key
from tidemark.pipeline.output.schema import Column, Value, ViewSchema
from tidemark.views.port import ChangeRow

Workload: TypeAlias = Literal["equality", "mix"]
WORKLOADS: Final[tuple[Workload, ...]] = ("equality", "mix")
COMMIT_ROWS: Final = 100
# The mix, of each thousand filters; the others are an equality.
RANGES: Final = 100
BOUNDS: Final = 100
EVALUATED: Final = 1
ACCOUNTS: Final = 50_000
CENTS: Final = 100_000

MOST_TIMES_OF_TEN: Final = 3.0
LEAST_UPDATES_PER_S: Final = 100_000

SCHEMA: Final = ViewSchema(
    "positions",
    (
        Column("id", "int"),
        Column("account", "string"),
        Column("symbol", "string"),
        Column("side", "enum", ("buy", "sell")),
        Column("quantity", "bigint"),
        Column("price", "decimal"),
        Column("executed_at", "timestamp"),
        Column("note", "string"),
    ),
    ("id",),
    "benchmark",
)


class EngineScale(msgspec.Struct, frozen=True):
    filters: tuple[int, ...]
    rows: int
    updates: int
    rounds: int


FULL: Final = EngineScale((10, 100, 1_000, 10_000, 100_000), 100_000, 20_000, 3)
QUICK: Final = EngineScale((10, 100), 1_000, 500, 1)


class EngineResult(msgspec.Struct, frozen=True, kw_only=True):
    """One workload with so many distinct filters, each with one subscriber."""

    workload: Workload
    filters: int
    rows: int
    updates: int
    updates_per_s: float
    us_per_update: float
    matching_per_s: float
    matches_per_update: float
    evaluations_per_update: float
    join_us: float
    leave_us: float
    memory_mib: float
    memory_per_filter_kib: float


def measure_engine(scale: EngineScale) -> list[EngineResult]:
    results = []
    for workload in WORKLOADS:
        for filters in scale.filters:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
                results.append(alone.submit(_measure, scale, workload, filters).result())
    return results


def engine_targets(results: Sequence[EngineResult]) -> Iterator[Target]:
    cost = {r.filters: r.us_per_update for r in results if r.workload == "equality"}
    if 10 in cost and 10_000 in cost:
        times = cost[10_000] / cost[10]
        yield Target(
            "an update with 10,000 equality filters, to one with 10",
            f"≤ {MOST_TIMES_OF_TEN:.0f} ×",
            f"{times:.2f} ×",
            times <= MOST_TIMES_OF_TEN,
        )
    for result in results:
        if (result.workload, result.filters) == ("equality", 1_000):
            yield Target(
                "updates/s with 1,000 equality filters",
                f"≥ {LEAST_UPDATES_PER_S:,}",
                f"{result.updates_per_s:,.0f}",
                result.updates_per_s >= LEAST_UPDATES_PER_S,
            )


def engine_lines(results: Sequence[EngineResult]) -> Iterator[str]:
    for workload in WORKLOADS:
        found = [result for result in results if result.workload == workload]
        if not found:
            continue
        first = found[0]
        yield from section(
            f"Engine, {workload}: {first.updates:,} updates of {first.rows:,} rows in commits of"
            f" {COMMIT_ROWS}"
        )
        yield from table(
            (
                "filters",
                "updates/s",
                "µs an update",
                "matching alone, updates/s",
                "matches an update",
                "evaluated an update",
                "µs to join",
                "µs to leave",
                "MiB",
                "KiB a filter",
            ),
            [
                (
                    f"{result.filters:,}",
                    f"{result.updates_per_s:,.0f}",
                    f"{result.us_per_update:.1f}",
                    f"{result.matching_per_s:,.0f}",
                    f"{result.matches_per_update:.2f}",
                    f"{result.evaluations_per_update:.2f}",
                    f"{result.join_us:.0f}",
                    f"{result.leave_us:.0f}",
                    f"{result.memory_mib:.1f}",
                    f"{result.memory_per_filter_kib:.1f}",
                )
                for result in found
            ],
        )


class _Selection:
    """All columns, as a subscription that selects everything would have them written."""

    key = "all"
    columns = frozenset(column.name for column in SCHEMA.visible)

    def __init__(self) -> None:
        names = [column.name for column in SCHEMA.visible]
        self._names = [(name, f'"{name}":'.encode()) for name in names]
        self._fields: dict[Sequence[str], bytes] = {}

    def render(
        self,
        operation: str,
        members: Mapping[str, bytes] | None,
        fields: Sequence[str],
        timestamp: int,
    ) -> bytes:
        known = members or {}
        data = b",".join([name + known[column] for column, name in self._names if column in known])
        named = self._fields.get(fields)
        if named is None:
            named = self._fields[fields] = msgspec.json.encode(fields)
        return b'{"data":{"positions":{"operation":"%b","data":{%b},"fields":%b,"ts":"%d"}}}' % (
            operation.encode(),
            data,
            named,
            timestamp,
        )


class _Subscriber:
    """Counts what it takes, and has it rendered if it reads."""

    def __init__(self) -> None:
        self.reads = True
        self.taken = 0

    def take(self, received_at: int, items: Sequence[Item]) -> None:
        self.taken += len(items)
        if self.reads:
            for item in items:
                assert item.payload


def _measure(scale: EngineScale, workload: Workload, filters: int) -> EngineResult:
    chance = random.Random(filters)
    subscriber, selection = _Subscriber(), _Selection()
    source = Source(SCHEMA)
    wheres = [_where(workload, number, chance) for number in range(filters)]
    gc.collect()
    before = _rss_bytes()
    began = time.perf_counter()
    memberships = [
        source.join(parse_filter(SCHEMA, where), selection, subscriber) for where in wheres
    ]
    join_s = time.perf_counter() - began
    assert source.counters.filters == filters
    # What is sorted when it is first needed is part of the memory; the updates are not.
    anything = encode_row(SCHEMA, _row(0, ACCOUNTS, chance))
    source.publish(0, [ChangedRow(0, row_key(SCHEMA, [0]), None, anything, ())])
    gc.collect()
    memory = max(0, _rss_bytes() - before)
    commits = _commits(scale, workload, filters, chance)
    _round(source, commits)
    evaluated, subscriber.taken = source.counters.evaluations, 0
    whole = min(_round(source, commits) for _ in range(scale.rounds))
    rounds_updates = scale.rounds * scale.updates
    matches = subscriber.taken / rounds_updates
    evaluations = (source.counters.evaluations - evaluated) / rounds_updates
    subscriber.reads = False
    matching = min(_round(source, commits) for _ in range(scale.rounds))
    began = time.perf_counter()
    for membership in memberships:
        membership.leave()
    leave_s = time.perf_counter() - began
    return EngineResult(
        workload=workload,
        filters=filters,
        rows=scale.rows,
        updates=scale.updates,
        updates_per_s=scale.updates / whole,
        us_per_update=whole / scale.updates * 1e6,
        matching_per_s=scale.updates / matching,
        matches_per_update=matches,
        evaluations_per_update=evaluations,
        join_us=join_s / filters * 1e6,
        leave_us=leave_s / filters * 1e6,
        memory_mib=memory / 2**20,
        memory_per_filter_kib=memory / 2**10 / filters,
    )


def _round(source: Source, commits: Sequence[Sequence[ChangeRow]]) -> float:
    first = source.counters.changes
    began = time.perf_counter()
    for number, commit in enumerate(commits, start=1):
        source.publish(first + number, [ChangedRow.of(change) for change in commit])
    return time.perf_counter() - began


def _where(workload: Workload, number: int, chance: random.Random) -> dict[str, Any]:
    """The filter with this number: no two are alike."""
    if workload == "equality":
        return {"account": {"_eq": f"account-{number}"}}
    kind = chance.randrange(1_000)
    if kind < RANGES:
        # A thousandth of the prices each.
        low = chance.randrange(CENTS) + Decimal(number).scaleb(-6)
        return {"price": {"_gte": f"{low}", "_lt": f"{low + CENTS // 1_000}"}}
    if kind < RANGES + BOUNDS:
        # The highest hundredth of the prices at most.
        low = CENTS - 1 - chance.randrange(CENTS // 100) - Decimal(number).scaleb(-6)
        return {"price": {"_gt": f"{low}"}}
    if kind < RANGES + BOUNDS + EVALUATED:
        return {"_or": [{"note": {"_like": f"%{number}"}}, {"symbol": {"_eq": f"{number}"}}]}
    account = {"account": {"_eq": f"account-{number % ACCOUNTS}"}}
    return account if number < ACCOUNTS else {**account, "quantity": {"_neq": f"{number}"}}


def _commits(
    scale: EngineScale, workload: Workload, filters: int, chance: random.Random
) -> list[list[ChangeRow]]:
    """Updates of the quantity, of the time, and of the mix also of every other price."""
    accounts = filters if workload == "equality" else ACCOUNTS
    rows: dict[int, dict[str, Value]] = {}
    changes = []
    order = [chance.sample(range(scale.rows), COMMIT_ROWS) for _ in range(scale.updates // 100)]
    for number, id in enumerate(id for commit in order for id in commit):
        row = rows.get(id) or _row(id, accounts, chance)
        changed = {"quantity": row["quantity"] + 1, "executed_at": number}  # type: ignore[operator]
        if workload == "mix" and number % 2:
            changed["price"] = Decimal(chance.randrange(CENTS))
        new = row | changed
        rows[id] = new
        names = tuple(sorted(name for name in new if new[name] != row[name]))
        key = row_key(SCHEMA, [id])
        changes.append(
            ChangeRow(0, key, "UPDATE", encode_row(SCHEMA, row), encode_row(SCHEMA, new), names)
        )
    return [changes[at : at + COMMIT_ROWS] for at in range(0, len(changes), COMMIT_ROWS)]


def _row(id: int, accounts: int, chance: random.Random) -> dict[str, Value]:
    return {
        "id": id,
        "account": f"account-{id % accounts}",
        "symbol": chance.choice(("AAPL", "MSFT", "NVDA", "TSLA")),
        "side": chance.choice(("buy", "sell")),
        "quantity": chance.randrange(1_000),
        "price": Decimal(chance.randrange(CENTS)),
        "executed_at": -1,
        "note": f"the note of {id}",
    }


def _rss_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this process has no memory")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live.engine")
    parser.add_argument(
        "--quick", action="store_true", help="shows that it works; its figures mean nothing"
    )
    results = measure_engine(QUICK if parser.parse_args(arguments).quick else FULL)
    print("\n".join(engine_lines(results)))
    promised = list(engine_targets(results))
    if promised:
        print("\n".join(section("Promised")))
    for target in promised:
        met = "met" if target.met else "NOT MET"
        print(f"  {target.what}: wanted {target.wanted}, measured {target.measured}: {met}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
