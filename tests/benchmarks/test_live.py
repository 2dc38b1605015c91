"""The live benchmark runs, every part of it. How fast it was is never a matter of a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_quick_run_measures_every_part_and_says_what_was_promised(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    completed = subprocess.run(
        [sys.executable, "-m", "benchmarks.live", "--quick", "--json", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    found = json.loads(path.read_text())
    assert {(run["workload"], run["filters"]) for run in found["engine"]} == {
        (workload, filters) for workload in ("equality", "mix") for filters in (10, 100)
    }
    delivery = found["delivery"]
    assert [run["cell"]["clients"] for run in delivery["throughput"]] == [1, 10]
    assert all(run["messages"] > 0 for run in delivery["throughput"])
    assert [late["clients"] for late in delivery["lateness"]] == [1, 5]
    assert all(0 < late["p50_ms"] <= late["p99_ms"] for late in delivery["lateness"])
    assert [idle["subscribers"] for idle in delivery["idle"]] == [20]
    [many] = found["many"]
    assert (many["views"], many["clients"]) == (2, 8)
    assert many["messages_per_s"] > 0
    [webhooks] = found["webhooks"]
    assert webhooks["attempts"] >= webhooks["events"] == 50
    assert found["targets"]
    assert all(target["what"] in completed.stdout for target in found["targets"])
