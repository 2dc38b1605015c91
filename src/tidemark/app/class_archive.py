"""Makes the archive of classes with which Spark starts in less than half the time.

    python -m tidemark.app.class_archive [--quiet]     does nothing if it is there

It runs a pipeline over a ledger of one event, so that what a pipeline uses is what is kept.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
from pathlib import Path

from tidemark.app.pipeline import run_pipeline
from tidemark.clock import SystemClock
from tidemark.config import Config
from tidemark.errors import TidemarkError
from tidemark.ingress.drafts import Draft, Submission, no_corrections
from tidemark.ledger.opening import open_ledger
from tidemark.pipeline.class_archive import archive_path, archiving
from tidemark.pipeline.java import find_java


def make_archive() -> Path | None:
    """The archive, made if it is not there; None where none can be kept."""
    archive = archive_path(find_java())
    if archive.exists():
        return archive
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(archive.parent, os.W_OK):
        return None
    with tempfile.TemporaryDirectory(prefix="tidemark-classes-", dir=archive.parent) as scratch:
        unfinished = Path(scratch) / archive.name
        config = _config(Path(scratch), unfinished)
        asyncio.run(_write_event(config))
        run_pipeline(
            config,
            until_caught_up=True,
            on_progress=lambda standing: None,
            stop=threading.Event(),
        )
        if not unfinished.exists():
            return None
        # Another process may have been as quick; theirs is as good.
        unfinished.replace(archive)
    return archive


def _config(state_dir: Path, archive: Path) -> Config:
    return Config.model_validate(
        {
            "state_dir": str(state_dir),
            "streams": {
                "usage": {"kind": "usage"},
                "notes": {"identity": ["id"], "fields": {"id": "string", "amount": "decimal"}},
            },
            "meters": {"calls": {"period": "month"}},
            "views": {
                "notes": {"stream": "notes", "key": ["id"], "calculated": {"b": "amount * 2"}}
            },
            "spark": {
                "master": "local[2]",
                "options": {"spark.driver.extraJavaOptions": archiving(archive)},
            },
        }
    )


async def _write_event(config: Config) -> None:
    ledger = await open_ledger(config, SystemClock())
    try:
        usage = Draft(
            tenant_id="t",
            stream="usage",
            idempotency_key="1",
            content_hash=bytes(32),
            occurred_at=None,
            metric="calls",
            customer_ref="c",
            quantity="1",
        )
        note = Draft(
            tenant_id="t",
            stream="notes",
            idempotency_key="2",
            content_hash=bytes(32),
            occurred_at=None,
            data='{"amount":"1","id":"n"}',
        )
        await ledger.append_group([Submission("classes", [usage, note])], no_corrections)
    finally:
        await ledger.close()


def main() -> int:
    quiet = "--quiet" in sys.argv[1:]
    try:
        archive = make_archive()
    except TidemarkError as error:
        sys.stderr.write(f"class archive: {error.message}\n{error.hint}\n")
        return 1
    if not quiet:
        sys.stdout.write(f"class archive: {archive or 'none, this environment is read-only'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
