"""The pipeline on a Spark cluster that loses a worker, held against the pipeline in one process;
and on the same cluster from Kafka.

Master, workers, executors and driver are processes of their own, and a worker has nothing of the
driver's environment, nor its working directory.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final

from tests.crash.kafka_pipelines import KafkaWorld
from tests.crash.pipeline_child import run
from tests.crash.pipelines import PATIENCE_S, ROOT, PipelineProcess, job
from tests.crash.test_pipeline_crash import SETTINGS, filled
from tests.folding.mixed import mixed_ledger
from tests.services.spark import SHARED_CONFIG
from tests.services.spark_cluster import EXECUTOR_MEMORY_MIB, HOST, QUICK_JAVA, SparkCluster

LEDGER: Final = mixed_ledger(1, commits=8, entries=4)
OPTIONS: Final = {
    **SHARED_CONFIG.options,
    "spark.executor.memory": f"{EXECUTOR_MEMORY_MIB}m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    # One part for each of the two executors.
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    # For what holds a task; Tidemark itself is sent to the executors.
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}


async def test_a_cluster_gives_what_one_process_gives_also_when_it_loses_a_worker_in_a_batch(
    tmp_path: Path, postgres_url: str
) -> None:
    await filled(postgres_url, LEDGER)
    world = KafkaWorld(tmp_path, postgres_url, SETTINGS)
    await world.mirror()

    def work(
        name: str, settings: Any = SETTINGS, views_url: str | None = None, **how: Any
    ) -> dict[str, Any]:
        views_url = views_url or f"sqlite:///{tmp_path / name}.db"
        return job(settings, tmp_path / name, postgres_url, views_url, **how)

    held = tmp_path / "held"
    held.mkdir()
    jobs = [
        work("calm"),
        work("from_kafka", world.from_kafka),
        work("disturbed", views_url=postgres_url, max_rows=9, hold=held),
    ]
    with (
        SparkCluster(workers=2) as cluster,
        PipelineProcess(jobs, spark={"master": cluster.url, "options": OPTIONS}) as process,
    ):
        expected = await run(work("one_process"))
        process.started()
        calm, from_kafka = await asyncio.to_thread(process.outcomes, 2)
        worker = cluster.worker_of(await asyncio.to_thread(under_way, held))
        assert not cluster.master_says("lost executor")
        worker.kill()
        (held / "go").touch()
        [disturbed] = await asyncio.to_thread(process.outcomes, 1)
        assert cluster.master_says("Telling app of lost executor")
    assert calm == expected
    assert from_kafka == expected
    assert disturbed == expected


def under_way(held: Path) -> int:
    """Waits until a task of a batch is held; the number of its process."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := [path.name for path in held.iterdir()]):
        assert time.monotonic() < deadline, "no task is under way"
        time.sleep(0.02)
    return int(found[0])
