"""The options a Spark session starts with: our defaults, the user's, and those that are pinned.

The defaults are for what Tidemark does: one long query of many small batches, started often while
people try things out. Any of them can be set otherwise in `spark.options`; what would change
results cannot, and a configuration that tries is refused when it is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from tidemark.config.pinned_options import PINNED_OPTIONS

OptionValue: TypeAlias = str | int | float | bool

# Hadoop without its native library starts processes to rename and to set modes: 42 to 97 of them a
# micro-batch. This manager does without, and nothing rests on the checkpoint: the frontier in the
# views store decides where a batch begins.
_CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

# They are about files, subqueries and names that our plans do not have, and go through the whole
# plan of every micro-batch to find that out.
_IDLE_RULES = (
    "org.apache.spark.sql.catalyst.optimizer.RemoveRedundantAliases",
    "org.apache.spark.sql.catalyst.optimizer.OptimizeOneRowRelationSubquery",
    "org.apache.spark.sql.execution.datasources.SchemaPruning",
    "org.apache.spark.sql.execution.datasources.PruneFileSourcePartitions",
)

_DEFAULTS: Final = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What is kept for a page that nobody looks at.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.catalogImplementation": "in-memory",
    # To plan anew between two stages takes longer than most of our batches.
    "spark.sql.adaptive.enabled": "false",
    # On a cluster; locally it is one for each core. Spark's own 200 are for large batches.
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    "spark.python.worker.reuse": "true",
    # Else every column that is put together asks Java a few questions more, for messages about
    # lines of our own code.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.optimizer.excludedRules": ",".join(_IDLE_RULES),
    # More that goes through the whole plan of every micro-batch for nothing: conditions carried
    # over to other inputs of a join, equal shuffles, columns of type char, variants in files.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.exchange.reuse": "false",
    "spark.sql.readSideCharPadding": "false",
    "spark.sql.variant.pushVariantIntoScan": "false",
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_MANAGER,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
_LOCAL_MASTER = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")
_LOOPBACK = "127.0.0.1"


class SparkSettings(Protocol):
    """The section `spark` of the configuration."""

    @property
    def master(self) -> str: ...
    @property
    def options(self) -> Mapping[str, OptionValue]: ...
    @property
    def java_home(self) -> str | None: ...


def is_local(master: str) -> bool:
    """Whether the work is done by threads of the driver's own Java process."""
    return _LOCAL_MASTER.fullmatch(master) is not None


def local_cores(master: str) -> int | None:
    """How many tasks run at once, or None on a cluster, which knows for itself."""
    match = _LOCAL_MASTER.fullmatch(master)
    if match is None:
        return None
    if match[1] == "*":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return int(match[1] or 1)


def session_options(config: SparkSettings, *, scratch: Path, warehouse: Path) -> dict[str, str]:
    """Every option of the session, as Spark spells them."""
    options = dict(_DEFAULTS)
    options["spark.master"] = config.master
    options["spark.sql.warehouse.dir"] = warehouse.as_uri()
    cores = local_cores(config.master)
    if cores is not None:
        # The workers of a cluster have places of their own, and may not have this one.
        options["spark.local.dir"] = str(scratch)
        options["spark.sql.shuffle.partitions"] = str(cores)
        options["spark.driver.host"] = _LOOPBACK
        options["spark.driver.bindAddress"] = _LOOPBACK
    for name, value in config.options.items():
        options[name] = _spelt(value)
    return options | {name: pinned.value for name, pinned in PINNED_OPTIONS.items()}


def _spelt(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
