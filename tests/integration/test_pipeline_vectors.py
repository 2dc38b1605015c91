"""The shared vectors, as they are, through the real pipeline on Spark.

A run takes seconds, so all cases share a ledger: each has a tenant of its own, which no other
tenant's events concern. What a case says of sequences and times is its own, and is translated.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.contract.events import ManualClock, hash_of
from tests.contract.stores import LedgerHome, all_commits
from tests.contract.views_home import ViewsHome
from tests.folding.cut_source import cut_stream
from tests.folding.ledgers import as_draft
from tests.folding.mixed import DraftCommit, config_of, fill, meter_settings
from tests.folding.outcomes import segments
from tests.folding.runs import meter_results, run_pipeline
from tests.reference.definitions import Meter
from tests.reference.fingerprint import MeterResult, canonical_json
from tests.reference.instants import parse_instant
from tests.reference.vectors import meter_case
from tidemark.ingress.drafts import Draft
from tidemark.pipeline.source.offsets import Offset

VECTORS: Final = Path(__file__).parents[1] / "vectors"
Case = dict[str, Any]
METER_CASES: list[Case] = json.loads((VECTORS / "meters.json").read_text())["cases"]
TIME_CASES: list[Case] = json.loads((VECTORS / "eventtime.json").read_text())["cases"]
WAYS: Final = ("all at once", "commit by commit")


async def run(
    directory: Path, settings: Mapping[str, Any], commits: Sequence[DraftCommit], way: str
) -> dict[str, MeterResult]:
    """Runs a ledger of these commits; what its meters came to, if it has any."""
    home = LedgerHome(f"sqlite:///{directory / 'ledger.db'}")
    views_home = ViewsHome(f"sqlite:///{directory / 'views.db'}")
    clock = ManualClock(wall_us=0)
    try:
        ledger, views = await home.open(clock), await views_home.open()
        await fill(ledger, clock, commits)
        cuts = [Offset(c.received_at, c.last_sequence) for c in await all_commits(ledger)]
        config = config_of(settings, directory, home.url, views_home.url)
        await run_pipeline(
            config,
            ledger,
            views,
            views_home.place,
            read_stream=cut_stream(cuts if way == "commit by commit" else []),
        )
        return await meter_results(views, [*settings.get("meters", ())])
    finally:
        await views_home.close()
        await home.close()


@dataclass
class MeterCases:
    """All cases in one ledger: the n-th commit holds the n-th of every case."""

    commits: list[DraftCommit] = field(default_factory=list)
    meters: dict[str, Meter] = field(default_factory=dict)
    # By case: what its sequences are called in the vectors.
    sequences: dict[int, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def together(cls) -> MeterCases:
        cases = cls()
        by_time: dict[int, list[Draft]] = {}
        read = [meter_case(case) for case in METER_CASES]
        last = 0
        for place in range(max(len(commits) for commits, _ in read)):
            for number, (commits, meter) in enumerate(read):
                cases.meters[meter_name(meter)] = meter
                for received_at, events in commits[place : place + 1]:
                    drafts = by_time.setdefault(received_at, [])
                    for event in events:
                        last += 1
                        cases.sequences.setdefault(number, {})[str(last)] = str(event["seq"])
                        drafts.append(as_draft({**event, "tenant_id": tenant_of(number)}))
        cases.commits = sorted(by_time.items())
        return cases

    def settings(self) -> dict[str, Any]:
        return {
            "streams": {"usage": {"kind": "usage"}},
            "meters": {name: meter_settings(meter) for name, meter in self.meters.items()},
        }


def meter_name(meter: Meter) -> str:
    return f"{meter.period}_{meter.lateness_us}"


def tenant_of(number: int) -> str:
    return f"case {number}"


METERS_TOGETHER: Final = MeterCases.together()


@pytest.fixture(scope="module", params=WAYS)
def meters_of_all(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, MeterResult]:
    directory = tmp_path_factory.mktemp("meters")
    cases = METERS_TOGETHER
    return asyncio.run(run(directory, cases.settings(), cases.commits, request.param))


@pytest.mark.parametrize("number", range(len(METER_CASES)), ids=lambda n: METER_CASES[n]["name"])
def test_the_vectors_of_meters_pass_as_they_are(
    number: int, meters_of_all: dict[str, MeterResult]
) -> None:
    case = METER_CASES[number]
    _, meter = meter_case(case)
    result = meters_of_all[meter_name(meter)]
    keys = sorted(result.rows, key=canonical_json)
    counters = [
        _as_the_case_says(result.rows[key], number) for key in keys if key[0] == tenant_of(number)
    ]
    adjustments = [
        _as_the_case_says(row, number)
        for row in result.adjustments
        if row["tenant_id"] == tenant_of(number)
    ]
    for found, expected in ((counters, case["counters"]), (adjustments, case["adjustments"])):
        assert len(found) == len(expected)
        for row, wanted in zip(found, expected, strict=True):
            assert {name: row[name] for name in wanted} == wanted


def _as_the_case_says(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    said = {**row, "tenant_id": "t1"}
    if "ingress_sequence" in row:
        said["ingress_sequence"] = METERS_TOGETHER.sequences[number][row["ingress_sequence"]]
    return said


# Of the cases with a tolerance each has a unit in which the tolerance is this long, so that they
# can share a configuration. All tolerances divide it.
TOLERANCE_US: Final = 210_000
IDLE_STREAM: Final = "idle"
# When the cases begin that do not say when; later than those that do.
FIRST_US: Final = 10_000_000


@dataclass(frozen=True)
class TimeCase:
    number: int

    @property
    def case(self) -> Case:
        return TIME_CASES[self.number]

    @property
    def unit_us(self) -> int:
        """How long one unit of the case is."""
        tolerance: int = self.case["lateTolerance"]
        return TOLERANCE_US // tolerance if tolerance else 1000

    @property
    def stream(self) -> str:
        return IDLE_STREAM if "idle_after" in self.case else "s"

    @property
    def times_us(self) -> list[int]:
        """When its commits are received, that of the end after them."""
        count = len(self.case["commits"])
        received = self.case.get("received")
        if received is None:
            return [FIRST_US + place for place in range(count + 1)]
        return [time * self.unit_us for time in (*received, received[-1] + 1)]

    def drafts(self) -> list[DraftCommit]:
        commits = []
        for time, entries in zip(self.times_us, self.case["commits"], strict=False):
            drafts = [self._draft(entry["id"], entry["ts"]) for entry in entries]
            commits.append((time, drafts))
        if self.case["end"] is not None:
            commits.append((self.times_us[-1], [self._draft("the end", None)]))
        return commits

    def _draft(self, key: str, ts: int | None) -> Draft:
        data = "{}" if ts is None else json.dumps({"at": str(ts * self.unit_us)})
        return Draft(
            tenant_id=tenant_of(self.number),
            stream=self.stream,
            idempotency_key=key,
            content_hash=hash_of(key),
            occurred_at=None,
            data=data,
            control="end" if ts is None else None,
        )

    def steps(self, in_order: Sequence[Any], late: Sequence[Any]) -> list[dict[str, Any]]:
        """What each of its commits did: rows, watermark, what came after that, late rows."""
        steps: dict[int, dict[str, Any]] = {
            time: {"rows": [], "watermark": None, "flushed": [], "late": []}
            for time in self.times_us[: len(self.drafts())]
        }
        for record in (r for r in in_order if r["tenantId"] == tenant_of(self.number)):
            is_watermark = record["kind"] == "watermark"
            time = parse_instant(record["receivedAt" if is_watermark else "releasedAt"])
            if time > max(steps):
                # In the ledger of all cases others go on, and the clock with them.
                break
            step = steps[time]
            if is_watermark:
                step["watermark"], rest = divmod(parse_instant(record["watermark"]), self.unit_us)
                assert rest == 0
            else:
                place = "rows" if step["watermark"] is None else "flushed"
                step[place].append(record["idempotencyKey"])
        for record in (r for r in late if r["tenantId"] == tenant_of(self.number)):
            steps[parse_instant(record["receivedAt"])]["late"].append(record["idempotencyKey"])
        return list(steps.values())


CASES: Final = [TimeCase(number) for number in range(len(TIME_CASES))]


def time_settings(cases: Sequence[TimeCase]) -> dict[str, Any]:
    stream = {
        "identity": ["at"],
        "fields": {"at": "bigint"},
        "eventtime": {"column": "at", "type": "unixtimestamp_us"},
    }
    [bound] = {c.case["future_bound"] * c.unit_us for c in cases if "future_bound" in c.case} or {
        3_600_000_000
    }
    idle = [c.case["idle_after"] * c.unit_us for c in cases if "idle_after" in c.case]
    streams = {"s": stream}
    if idle:
        streams[IDLE_STREAM] = {**stream, "idleAfter": idle[0]}
    [tolerance] = {c.case["lateTolerance"] * c.unit_us for c in cases}
    return {
        "streams": streams,
        "pipeline": {
            "eventtime": {"enabled": True, "lateTolerance": tolerance, "futureBound": bound},
            "ordered": {name: {} for name in streams},
        },
    }


@pytest.fixture(scope="module", params=WAYS)
def ordered_of_all(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Any]]:
    """What was written in order and what late, of all cases."""
    found: dict[str, list[Any]] = {"in_order": [], "late": []}
    for cases in (
        [c for c in CASES if c.case["lateTolerance"]],
        [c for c in CASES if not c.case["lateTolerance"]],
    ):
        directory = tmp_path_factory.mktemp("time")
        by_time: dict[int, list[Draft]] = {}
        for case in cases:
            for time, drafts in case.drafts():
                by_time.setdefault(time, []).extend(drafts)
        asyncio.run(run(directory, time_settings(cases), sorted(by_time.items()), request.param))
        for name, records in found.items():
            for stream in sorted({case.stream for case in cases}):
                lines = segments(directory / "ordered" / stream / name)
                records += map(json.loads, lines.splitlines())
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.case["name"])
def test_the_vectors_of_event_time_pass_as_they_are(
    case: TimeCase, ordered_of_all: dict[str, list[Any]]
) -> None:
    steps = case.steps(ordered_of_all["in_order"], ordered_of_all["late"])
    if case.case["end"] is not None:
        end = steps.pop()
        # The end moves no watermark, so what it releases comes after none.
        assert end == {"rows": case.case["end"], "watermark": None, "flushed": [], "late": []}
    expected = [{**step, "flushed": []} for step in case.case["expected"]]
    assert steps == expected
