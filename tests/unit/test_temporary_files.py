"""Where tests keep their files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import temporary_files

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, sys, tempfile
from pathlib import Path
from tests import temporary_files

temporary_files.MEMORY = Path(sys.argv[1])
temporary_files.FILES_BYTES = int(sys.argv[2])
temporary_files.PROCESSES_BYTES = 0
temporary_files.keep_in_memory()
print(tempfile.mkdtemp(), os.environ.get("TMPDIR"))
if sys.argv[3] == "failed":
    temporary_files.leave_behind()
"""


def ran(memory: Path, *, needed: int = 0, ended: str = "well", tmpdir: Path | None = None) -> str:
    """What a process says of its temporary files."""
    env = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, memory, str(needed), ended],
        cwd=ROOT,
        env={**env, **({} if tmpdir is None else {"TMPDIR": str(tmpdir)})},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_where_there_is_room_they_are_in_memory_and_gone_with_the_run(tmp_path: Path) -> None:
    made, place = ran(tmp_path).split()
    assert Path(made).parent == Path(place)
    assert Path(place).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_what_a_failed_run_leaves_is_there_until_the_next(tmp_path: Path) -> None:
    made, _ = ran(tmp_path, ended="failed").split()
    assert Path(made).is_dir()
    ran(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_where_there_is_no_room_they_are_where_they_always_were(tmp_path: Path) -> None:
    made, place = ran(tmp_path, needed=1 << 60).split()
    assert place == "None"
    assert tmp_path not in Path(made).parents
    Path(made).rmdir()


def test_who_names_a_place_has_them_there(tmp_path: Path) -> None:
    named = tmp_path / "named"
    named.mkdir()
    made, _ = ran(tmp_path, tmpdir=named).split()
    assert Path(made).parent == named


def test_without_such_a_place_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporary_files, "MEMORY", tmp_path / "missing")
    monkeypatch.delenv("TMPDIR", raising=False)
    temporary_files.keep_in_memory()
    assert "TMPDIR" not in os.environ
