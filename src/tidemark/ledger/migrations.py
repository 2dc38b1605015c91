"""The numbered schema files of a stage and which of them its store still needs."""

from __future__ import annotations

import re
from importlib import resources

import msgspec

from tidemark.errors import SchemaMismatch

_NAME = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")


class Migration(msgspec.Struct, frozen=True):
    """One schema file; `version` is its number."""

    version: int
    name: str
    sql: str


class Stage(msgspec.Struct, frozen=True):
    """A stage that keeps a store: the package with its schema files, and what people call it."""

    package: str
    name: str


LEDGER = Stage("tidemark.ledger", "ledger")


def migrations(dialect: str, stage: Stage = LEDGER) -> list[Migration]:
    """All schema files of a dialect, oldest first."""
    found = []
    for entry in (resources.files(stage.package) / "sql" / dialect).iterdir():
        match = _NAME.match(entry.name)
        if match:
            found.append(Migration(int(match[1]), entry.name, entry.read_text("utf-8")))
    return sorted(found, key=lambda migration: migration.version)


def pending(dialect: str, applied: set[int], stage: Stage = LEDGER) -> list[Migration]:
    """What is still to be run. A store that is ahead of this version is refused, not guessed at."""
    known = migrations(dialect, stage)
    unknown = applied - {migration.version for migration in known}
    if unknown:
        raise SchemaMismatch(
            f"the schema of the {stage.name} has version {max(unknown)}, this Tidemark knows "
            f"{known[-1].version}",
            hint=f"Start the Tidemark version that migrated the {stage.name}, or a newer one.",
        )
    return [migration for migration in known if migration.version not in applied]
