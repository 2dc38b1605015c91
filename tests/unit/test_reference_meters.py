"""The reference of meters gives what the shared vectors say, and the vectors notice mistakes."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.reference.fingerprint import canonical_json
from tests.reference.history import check_history
from tests.reference.meters import MeterFold, fold_meters
from tests.reference.vectors import meter_case
from tests.unit.meter_mutants import (
    ForgetsLateVoids,
    JudgesLateInsideTheCommit,
    LetsLateCorrectionsTouchCounters,
    LetsTheLastCorrectionWin,
    MovesTheWatermarkBack,
    TakesTheBoundForLate,
)

TESTS = Path(__file__).parents[1]
CASES: list[dict[str, Any]] = json.loads((TESTS / "vectors/meters.json").read_text())["cases"]


def assert_case_passes(case: dict[str, Any], fold: type[MeterFold] = MeterFold) -> None:
    commits, meter = meter_case(case)
    result = fold_meters(commits, [meter], fold)[meter.name]
    rows = [result.rows[key] for key in sorted(result.rows, key=canonical_json)]
    for found, expected in ((rows, case["counters"]), (result.adjustments, case["adjustments"])):
        assert len(found) == len(expected)
        for row, wanted in zip(found, expected, strict=True):
            assert {name: row[name] for name in wanted} == wanted


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_vectors_pass_as_they_are(case: dict[str, Any]) -> None:
    check_history(meter_case(case)[0])
    assert_case_passes(case)


@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        (JudgesLateInsideTheCommit, "late is judged by the commit before, not inside one commit"),
        (TakesTheBoundForLate, "exactly at the bound folds, one microsecond before adjusts"),
        (MovesTheWatermarkBack, "void in time refolds, the watermark stays"),
        (ForgetsLateVoids, "void of a late-judged original is an adjustment"),
        (ForgetsLateVoids, "void of an adjusted event takes the adjustment back"),
        (
            LetsLateCorrectionsTouchCounters,
            "void of a late-judged original is an adjustment",
        ),
        (LetsTheLastCorrectionWin, "amend twice, the last wins, void ends it"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_planted_mistake_fails_its_vector(mutant: type[MeterFold], name: str) -> None:
    (case,) = (case for case in CASES if case["name"] == name)
    with pytest.raises(AssertionError):
        assert_case_passes(case, mutant)


def test_the_reference_stands_on_the_standard_library_and_a_pattern_engine_alone() -> None:
    for path in (TESTS / "reference").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names = [str(node.module)]
            for name in names:
                top = name.split(".")[0]
                known = top in sys.stdlib_module_names or top == "re2"
                known = known or name.startswith("tests.reference.")
                assert known, f"{path.name} imports {name}"
