"""The shared vectors of windows, as they are, through the real pipeline on Spark.

Cases with the same tolerance share a ledger: each has a tenant of its own, and its n-th row is in
the n-th commit.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.contract.events import ManualClock, hash_of
from tests.contract.stores import LedgerHome, all_commits
from tests.contract.views_home import ViewsHome
from tests.folding.cut_source import cut_stream
from tests.folding.mixed import DraftCommit, config_of, fill
from tests.folding.runs import EVERYTHING, run_pipeline
from tests.reference.instants import parse_instant
from tidemark.ingress.drafts import Draft
from tidemark.pipeline.source.offsets import Offset

VECTORS: Final = Path(__file__).parents[1] / "vectors"
Case = dict[str, Any]
CASES: list[Case] = json.loads((VECTORS / "windows.json").read_text())["cases"]
TOLERANCES: Final = sorted({case["lateTolerance"] for case in CASES})
SECOND_US: Final = 1_000_000
FIRST_US: Final = 100 * SECOND_US


def tenant_of(number: int) -> str:
    return f"case {number}"


def drafts(number: int) -> list[Draft]:
    """One for each of its commits; the last is the end."""
    found = []
    for place, row in enumerate(CASES[number]["rows"]):
        value, ts, *group = row
        data = {"value": str(value), "at": str(ts), "group": group[0] if group else None}
        found.append((f"row {place}", json.dumps(data), None))
    found.append(("the end", "{}", "end"))
    return [
        Draft(
            tenant_id=tenant_of(number),
            stream="s",
            idempotency_key=key,
            content_hash=hash_of(key),
            occurred_at=None,
            data=data,
            control=control,
        )
        for key, data, control in found
    ]


def ledger_of(numbers: Sequence[int]) -> list[DraftCommit]:
    by_time: dict[int, list[Draft]] = {}
    for number in numbers:
        for place, draft in enumerate(drafts(number)):
            by_time.setdefault(FIRST_US + place, []).append(draft)
    return sorted(by_time.items())


def settings_of(tolerance: int) -> dict[str, Any]:
    [(size, aggregate)] = {(case["size"], case["aggregate"]) for case in CASES}
    fields = {"value": "decimal", "at": "bigint", "group": {"type": "string", "required": False}}
    return {
        "streams": {
            "s": {
                "identity": ["at"],
                "fields": fields,
                "eventtime": {"column": "at", "type": "unixtimestamp_s"},
            }
        },
        "windows": {
            "w": {
                "stream": "s",
                "size": size * SECOND_US,
                "group_by": ["group"],
                "aggregate": aggregate,
                "value": "value",
            }
        },
        "pipeline": {"eventtime": {"enabled": True, "lateTolerance": tolerance * SECOND_US}},
    }


async def changes_of(directory: Path, tolerance: int, *, commit_by_commit: bool) -> list[Any]:
    home = LedgerHome(f"sqlite:///{directory / 'ledger.db'}")
    views_home = ViewsHome(f"sqlite:///{directory / 'views.db'}")
    clock = ManualClock(wall_us=0)
    try:
        ledger, views = await home.open(clock), await views_home.open()
        numbers = [n for n, case in enumerate(CASES) if case["lateTolerance"] == tolerance]
        await fill(ledger, clock, ledger_of(numbers))
        cuts = [Offset(c.received_at, c.last_sequence) for c in await all_commits(ledger)]
        config = config_of(settings_of(tolerance), directory, home.url, views_home.url)
        cut = cut_stream(cuts if commit_by_commit else [])
        await run_pipeline(config, ledger, views, views_home.place, read_stream=cut)
        return list((await views.read_changes("w", 0, limit=EVERYTHING)).changes)
    finally:
        await views_home.close()
        await home.close()


@pytest.fixture(scope="module", params=["all at once", "commit by commit"])
def changes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """By tenant and number of the commit, the windows that it closed."""
    found: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for tolerance in TOLERANCES:
        directory = tmp_path_factory.mktemp("windows")
        one_by_one = request.param == "commit by commit"
        logged = asyncio.run(changes_of(directory, tolerance, commit_by_commit=one_by_one))
        for change in logged:
            assert change.op == "insert"
            row = json.loads(change.row)
            window = {
                "window_start": parse_instant(row["window_start"]) // SECOND_US,
                "group": row["group"],
                "value": row["value"],
            }
            commits = found.setdefault(row["tenant_id"], {})
            commits.setdefault(change.received_at - FIRST_US, []).append(window)
    return found


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: CASES[n]["name"])
def test_the_vectors_of_windows_pass_as_they_are(
    number: int, changes: dict[str, dict[int, list[dict[str, Any]]]]
) -> None:
    case = CASES[number]
    expected = {int(place): windows for place, windows in case["closed_after_row"].items()}
    expected[len(case["rows"])] = case["at_end"]
    wanted = {
        place: [{"group": None, **window} for window in windows]
        for place, windows in expected.items()
    }
    assert changes[tenant_of(number)] == wanted
