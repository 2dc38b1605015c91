"""Where tests in JavaScript run: Node with the packages of tests/javascript installed.

They are installed from the lock file into a cache directory, once for each state of that file,
whichever of the processes that run tests comes first. A Node that is missing is a failure.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "javascript"
INSTALLED_FROM = ("package.json", "package-lock.json", ".npmrc")
INSTALLED_WITHIN_S = 300


class NodeMissing(RuntimeError):
    """The tests need Node and npm, and one of them is not here."""


class InstallFailed(RuntimeError):
    """npm could not install what the lock file names."""


def node_project() -> Path:
    """The directory whose `node_modules` holds what tests/javascript/package.json asks for."""
    npm = _program("npm")
    home = _cache() / f"javascript-{_state()}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / "javascript.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            _install(npm, home)
    return home


def node_command(script: Path, *arguments: str) -> list[str]:
    """Runs a module of this repository in `node_project()`, which must be the working directory.

    Node looks for packages from where a script is, and that of this one is not where they are, so
    it is handed over as text.
    """
    text = script.read_text()
    return [_program("node"), "--input-type=module", "--eval", text, "--", *arguments]


def run_script(
    script: Path, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a module to its end and gives what it said; how it ended is for the caller to judge."""
    return subprocess.run(
        node_command(script, *arguments),
        cwd=node_project(),
        input=stdin,
        env=None if env is None else {**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def _install(npm: str, home: Path) -> None:
    """Beside its place first, so that an installation that was cut short is never used."""
    with tempfile.TemporaryDirectory(prefix="javascript-", dir=home.parent) as directory:
        unfinished = Path(directory) / "project"
        unfinished.mkdir()
        for name in INSTALLED_FROM:
            shutil.copyfile(SOURCE / name, unfinished / name)
        done = subprocess.run(
            [npm, "ci"],
            cwd=unfinished,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALLED_WITHIN_S,
        )
        if done.returncode != 0:
            raise InstallFailed(f"npm ci failed:\n{done.stdout}{done.stderr}")
        unfinished.rename(home)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NodeMissing(f"there is no `{name}` in PATH; install Node 20 or newer, with npm")
    return found


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidemark-tests"


def _state() -> str:
    digest = hashlib.sha256()
    for name in INSTALLED_FROM:
        digest.update((SOURCE / name).read_bytes())
    return digest.hexdigest()[:16]
