"""The options of a Spark session: ours, the user's over them, and those that are pinned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.services.spark import SparkTestConfig
from tidemark.pipeline.session_options import is_local, local_cores, session_options


def options_of(master: str = "local[3]", **options: Any) -> dict[str, str]:
    config = SparkTestConfig(master, {name.replace("_", "."): v for name, v in options.items()})
    return session_options(config, scratch=Path("/state/scratch"), warehouse=Path("/state/tables"))


def test_a_user_option_wins_over_our_default() -> None:
    assert options_of()["spark.driver.memory"] == "2g"
    assert options_of(spark_driver_memory="7g")["spark.driver.memory"] == "7g"
    assert options_of()["spark.ui.enabled"] == "false"
    assert options_of(spark_ui_enabled=True)["spark.ui.enabled"] == "true"
    assert options_of(spark_ui_port=4050)["spark.ui.port"] == "4050"


def test_what_would_change_results_stays_as_it_is() -> None:
    config = SparkTestConfig(options={"spark.sql.ansi.enabled": False})
    options = session_options(config, scratch=Path("/s"), warehouse=Path("/w"))
    assert options["spark.sql.ansi.enabled"] == "true"
    assert options["spark.sql.session.timeZone"] == "UTC"


def test_a_local_session_shuffles_into_as_many_parts_as_it_has_cores() -> None:
    assert options_of("local[3]")["spark.sql.shuffle.partitions"] == "3"
    assert options_of("local")["spark.sql.shuffle.partitions"] == "1"
    assert int(options_of("local[*]")["spark.sql.shuffle.partitions"]) >= 1


def test_a_local_session_listens_on_loopback_only() -> None:
    local = options_of()
    assert local["spark.driver.host"] == local["spark.driver.bindAddress"] == "127.0.0.1"


def test_a_cluster_keeps_its_own_places_and_addresses() -> None:
    cluster = options_of("spark://head:7077")
    for name in ("spark.driver.host", "spark.local.dir"):
        assert name not in cluster
    assert cluster["spark.sql.shuffle.partitions"] == "16"


def test_local_masters_are_told_from_clusters() -> None:
    assert [is_local(m) for m in ("local", "local[2]", "local[*]", "local[2,3]")] == [True] * 4
    assert [is_local(m) for m in ("local-cluster[1,1,1024]", "yarn", "spark://a")] == [False] * 3
    assert [local_cores(m) for m in ("local[2,3]", "k8s://x")] == [2, None]
