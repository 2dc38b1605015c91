"""The pipeline benchmark runs. How fast it was is never a matter of a test.

Only its first part: the others stand on the same, and each takes as long again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_quick_run_measures_beside_the_limits_and_says_what_was_promised(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    completed = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.pipeline"),
            *("--quick", "--only", "catch-up", "--json", str(path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    found = json.loads(path.read_text())
    [store] = found["catch_up"]["stores"]
    assert [run["events"] for run in store["runs"]] == [2_000]
    assert 0 < store["rows"] <= store["changes"] <= 2_000
    assert found["catch_up"]["limits"]["spark_s"] > 0
    assert found["catch_up"]["limits"]["duckdb_s"] > 0
    assert found["targets"]
    assert all(target["what"] in completed.stdout for target in found["targets"])
