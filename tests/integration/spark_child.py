"""A process with a Spark session of its own, for tests that must not share one.

It runs the steps that are given as JSON and says, as JSON, what it found.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.services.spark import SparkTestConfig
from tidemark.errors import TidemarkError
from tidemark.pipeline.session import start_session, stop_session
from tidemark.pipeline.source.frames import parts_at_once


def importing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker."""
    import tidemark.pipeline.source.datasource

    assert tidemark.pipeline.source.datasource.LedgerSource.name() == "tidemark_ledger"
    yield from batches


def places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker."""
    import pyspark

    import tidemark

    for _ in batches:
        found = {"pyspark": [pyspark.__file__], "tidemark": [tidemark.__file__]}
        yield pa.RecordBatch.from_pydict(found)


def run(step: dict[str, Any]) -> dict[str, Any]:
    config = SparkTestConfig(
        step.get("master", "local[2]"), step.get("options", {}), step.get("java_home")
    )
    before = signal.getsignal(signal.SIGINT)
    try:
        spark = start_session(config, state_dir=Path(step["state_dir"]))
    except TidemarkError as error:
        return {"error": error.as_dict()}
    jvm: Any = spark._jvm
    said = {
        "java": jvm.java.lang.System.getProperty("java.specification.version"),
        "java_pid": jvm.java.lang.ProcessHandle.current().pid(),
        "settings": {name: spark.conf.get(name, None) for name in step.get("settings", ())},
        "parts": parts_at_once(spark),
        "sources": _registered_sources(jvm),
        "sum": spark.range(10).selectExpr("sum(id)").collect()[0][0],
        "rows": spark.range(5).mapInArrow(importing, "id long").count(),
        "places": spark.range(1)
        .mapInArrow(places, "pyspark string, tidemark string")
        .collect()[0]
        .asDict(),
        "same": start_session(config, state_dir=Path(step["state_dir"])) is spark,
        "own_interrupt": signal.getsignal(signal.SIGINT) is before,
        "secret": os.environ.get("PYSPARK_GATEWAY_SECRET"),
    }
    try:
        start_session(SparkTestConfig("local[1]"), state_dir=Path(step["state_dir"]))
    except TidemarkError as error:
        said["other"] = error.as_dict()
    stop_session()
    stop_session()
    return said


def _registered_sources(jvm: Any) -> str:
    """What Spark takes for the data sources of other packages, before it has looked for them."""
    manager = "org.apache.spark.sql.execution.datasources.DataSourceManager$"
    module = jvm.java.lang.Class.forName(manager).getField("MODULE$").get(None)
    return str(module.dataSourceBuilders().toString())


if __name__ == "__main__":
    sys.stdout.write(json.dumps([run(step) for step in json.loads(sys.argv[1])]) + "\n")
