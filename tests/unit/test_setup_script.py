"""Setting up on a machine that lacks something says what is missing and how to get it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Enough of a checkout for the script, and a directory that is all there is on PATH."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "scripts", checkout / "scripts")
    shutil.copytree(ROOT / "requirements", checkout / "requirements")
    shutil.copy(ROOT / "pyproject.toml", checkout)
    (tmp_path / "bin").mkdir()
    for name in ("sh", "dirname", "rm", "cat", "cksum"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "bin" / name).symlink_to(found)
    return checkout


def add_python(checkout: Path, name: str, script: str) -> None:
    program = checkout.parent / "bin" / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def set_up(checkout: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "scripts" / "venv", "runtime"],
        env={"PATH": str(checkout.parent / "bin"), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


OLD = 'case $1 in --version) echo "Python 3.9.2" ;; *) exit 1 ;; esac'


def test_without_any_python_it_says_which_one_to_install(checkout: Path) -> None:
    result = set_up(checkout)
    assert result.returncode == 1
    assert "no Python 3.11 or newer on PATH (python3 is not there)" in result.stderr
    assert "Install Python 3.11 or newer" in result.stderr


def test_a_python_that_is_too_old_is_named(checkout: Path) -> None:
    add_python(checkout, "python3", OLD)
    result = set_up(checkout)
    assert result.returncode == 1
    assert "python3 is Python 3.9.2" in result.stderr
    assert "make setup PYTHON=" in result.stderr


def test_a_python_that_was_asked_for_is_not_replaced_by_another(checkout: Path) -> None:
    add_python(checkout, "python3", f'exec {sys.executable} "$@"')
    add_python(checkout, "ancient", OLD)
    result = set_up(checkout, PYTHON="ancient")
    assert result.returncode == 1
    assert "PYTHON=ancient is Python 3.9.2" in result.stderr
    assert not (checkout / ".venv").exists()


def test_a_newer_python_beside_an_old_one_is_found(checkout: Path) -> None:
    add_python(checkout, "python3", OLD)
    add_python(checkout, "python3.12", "case $2 in *version_info*) exit 0 ;; *) exit 1 ;; esac")
    result = set_up(checkout)
    assert "no Python 3.11" not in result.stderr
    assert "cannot make a virtual environment" in result.stderr


def test_a_python_without_venv_and_pip_says_what_to_install(checkout: Path) -> None:
    add_python(
        checkout,
        "python3",
        f"""case "$*" in
        *ensurepip*|"-m pip"*|"-m virtualenv"*) exit 1 ;;
        *) exec {sys.executable} "$@" ;;
        esac""",
    )
    result = set_up(checkout)
    assert result.returncode == 1
    assert "cannot make a virtual environment with pip in it" in result.stderr
    assert "apt-get install python3-venv" in result.stderr
    assert not (checkout / ".venv").exists()


def test_an_environment_that_is_up_to_date_is_left_alone() -> None:
    """The one that these tests run in."""
    before = (ROOT / ".venv" / ".dev-installed").stat().st_mtime_ns
    result = subprocess.run(
        [ROOT / "scripts" / "venv", "dev"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (result.stdout, result.stderr) == ("", "")
    assert (ROOT / ".venv" / ".dev-installed").stat().st_mtime_ns == before
