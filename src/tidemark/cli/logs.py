"""What a process that goes on says while it does: one line each, on stderr."""

from __future__ import annotations

import logging
import sys


def log_to_stderr() -> None:
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    # What these say while all is well is said above, in fewer words.
    for name in ("uvicorn", "uvicorn.error", "tidemark.client"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It logs a traceback for each connection that a database takes with it; we say it in a line.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)
    quiet_spark()


def quiet_spark() -> None:
    """What goes wrong between Python and Java is raised, and told by whoever catches it."""
    for name in ("py4j", "pyspark"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # Some of it is logged under no name; nothing of ours is.
    logging.getLogger().addFilter(lambda record: False)
    # With no handler at all, Python would make one at the first such line.
    logging.getLogger().addHandler(logging.NullHandler())
