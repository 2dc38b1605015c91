"""The mirror benchmark runs. How fast it was is never a matter of a test.

Not its part `pipeline`: Spark takes longer than everything else, and that both sources give the
same is shown in tests/integration/test_kafka_pipeline.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.mirror.__main__ import main

ROOT = Path(__file__).parents[2]


def test_a_quick_run_measures_the_mirror_beside_a_plain_producer_and_without_a_broker(
    tmp_path: Path,
) -> None:
    path = tmp_path / "found.json"
    completed = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.mirror", "--quick"),
            *("--only", "throughput", "--only", "away", "--json", str(path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    found = json.loads(path.read_text())
    [throughput] = found["throughput"]
    assert (throughput["store"], throughput["events"]) == ("sqlite", 2_000)
    for [run] in (throughput["mirror"], throughput["plain"]):
        assert run["sent"]["seconds"] > 0
        assert [point["events"] for point in run["sent"]["points"]] == [2_000]
        assert run["sent"]["points"][0]["rss_mib"] > 0
    [away] = found["away"]
    assert (away["away_s"], away["events_per_s"]) == (0.2, 200)
    assert away["waiting_events"] > 0
    assert away["caught_up_s"] > 0
    assert found["pipeline"] is None
    assert "Ledger to Kafka, 2,000 events" in completed.stdout
    assert "The broker killed and away" in completed.stdout


def test_events_that_are_no_whole_commits_are_a_usage_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--events", "150"])
    assert "a multiple of 100, such as 100000" in capsys.readouterr().err
