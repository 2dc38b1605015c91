"""Spark's classes as Java has read and checked them, kept in a file so that it starts sooner.

Reading them anew is more than half of what a start takes. Java makes such an archive when it ends,
of what it has used; `python -m tidemark.app.class_archive` runs a small pipeline for that. It
belongs to one Java and one Spark. Java looks whether it does, and does without it if not; so it may
be absent, old or removed at any time.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Final

import pyspark

from tidemark.pipeline.java import Java

# Where other files of an environment are that no package brought.
_DIRECTORY: Final = Path(sys.prefix) / "var" / "tidemark"
ARCHIVING: Final = "-XX:ArchiveClassesAtExit"
# That an archive does not fit is nothing to tell anybody.
_SILENT: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


def archive_path(java: Java) -> Path:
    """Where the archive for this Java is, if there is one."""
    program = java.program.resolve()
    identity = f"{program} {program.stat().st_mtime_ns} {Path(pyspark.__file__).resolve()}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return _DIRECTORY / f"spark-{pyspark.__version__}-java-{java.version}-{digest}.jsa"


def sharing(java: Java) -> tuple[str, ...]:
    """The options with which Java takes what is in the archive."""
    archive = archive_path(java)
    return (f"-XX:SharedArchiveFile={archive}", *_SILENT) if archive.exists() else ()


def archiving(archive: Path) -> str:
    """The option with which Java makes an archive when it ends."""
    return f"{ARCHIVING}={archive}"
