"""The ingest benchmark runs from end to end. How fast anything was is never a matter of a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SHAPES = [(1, 64), (100, 16), (1000, 8)]
VARIANTS = [("postgres", 1), ("sqlite", 1), ("postgres", 2)]


class Run(NamedTuple):
    """What one quick run printed, and the document it wrote."""

    report: str
    document: Any


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("benchmark") / "found.json"
    completed = subprocess.run(
        [sys.executable, "-m", "benchmarks.ingest", "--quick", "--json", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return Run(completed.stdout, json.loads(path.read_text()))


@pytest.fixture(scope="module")
def found(run: Run) -> Any:
    return run.document


def test_every_shape_is_measured_on_every_store_with_and_without_duplicates(found: Any) -> None:
    measured = {
        (
            cell["variant"]["store"],
            cell["variant"]["workers"],
            cell["cell"]["shape"]["batch"],
            cell["cell"]["shape"]["connections"],
            cell["cell"]["overlap"],
        )
        for cell in found["throughput"]["cells"]
    }
    assert measured == {
        (*variant, *shape, overlap)
        for variant in VARIANTS
        for shape in SHAPES
        for overlap in (False, True)
    }


def test_with_overlap_half_of_the_events_are_duplicates_and_nothing_fails(found: Any) -> None:
    for cell in found["throughput"]["cells"]:
        for turn in cell["turns"]:
            load = turn["sample"]["load"]
            assert load["errors"] == 0, load["first_error"]
            expected = load["events"] // 2 if cell["cell"]["overlap"] else 0
            assert load["duplicates"] == expected
            assert load["accepted"] == load["events"] - expected


def test_each_figure_stands_beside_the_limits_of_the_same_run(found: Any) -> None:
    assert found["throughput"]["raw_copy_per_s"] > 0
    assert len(found["throughput"]["echoes"]) == len(SHAPES)
    for cell in found["throughput"]["cells"]:
        assert cell["of_raw_copy"] > 0
        assert cell["of_echo"] > 0
        assert cell["generator_cpu_share"] >= 0


def test_postgresql_is_measured_with_every_commit_flushed(found: Any) -> None:
    settings = found["machine"]["postgres"]
    assert settings["fsync"] == settings["synchronous_commit"] == "on"


def test_growth_memory_and_costs_are_measured(found: Any) -> None:
    assert [growth["store"] for growth in found["growth"]] == ["postgres", "sqlite"]
    assert found["memory"]["peak_mib"] > 0
    assert len(found["memory"]["pressures"]) == 2
    assert all(cost["us"] > 0 for cost in found["costs"])


def test_the_report_says_what_was_promised(run: Run) -> None:
    assert run.document["targets"]
    assert all(target["what"] in run.report for target in run.document["targets"])
