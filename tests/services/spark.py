"""One Spark session for all the tests of a process: it takes seconds to start."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from tidemark.pipeline.session import start_session, stop_session


@dataclass(frozen=True)
class SparkTestConfig:
    """The section `spark` of a configuration."""

    master: str = "local[2]"
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    java_home: str | None = None


# With Spark's connector to Kafka, for the tests that need it.
CONNECTOR = Path(__file__).parents[2] / ".venv" / "jars" / "connector"
SHARED_CONFIG = SparkTestConfig(
    options={"spark.jars": ",".join(map(str, sorted(CONNECTOR.glob("*.jar"))))}
)
_session: SparkSession | None = None


def shared_session(config: SparkTestConfig = SHARED_CONFIG) -> SparkSession:
    """The session of this process, with our own defaults. Leave its settings as they are.

    A process that is no test may have one with a `config` of its own."""
    global _session
    if _session is None:
        state_dir = Path(tempfile.mkdtemp(prefix="tidemark-spark-tests-"))
        _session = start_session(config, state_dir=state_dir)
        atexit.register(_end, state_dir)
    return _session


def _end(state_dir: Path) -> None:
    stop_session()
    shutil.rmtree(state_dir, ignore_errors=True)
