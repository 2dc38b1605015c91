"""Spark's connector to Kafka, which is not among the files of PySpark."""

from __future__ import annotations

from typing import Final

from tidemark.config import Config
from tidemark.pipeline.session_options import SparkSettings

# The newest there is, which works with the Spark that Tidemark brings.
CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
_PACKAGES: Final = "spark.jars.packages"
# With one of these, its files are at hand.
_AT_HAND: Final = ("spark.jars", "spark.driver.extraClassPath")


def spark_settings(config: Config) -> SparkSettings:
    """Those of the configuration; where the pipeline reads Kafka, Spark fetches its connector
    unless it is told where it is."""
    spark = config.spark
    if config.pipeline.source != "kafka" or any(name in spark.options for name in _AT_HAND):
        return spark
    packages = [*filter(None, [str(spark.options.get(_PACKAGES, ""))]), CONNECTOR]
    if any("spark-sql-kafka" in package for package in packages[:-1]):
        return spark
    options = {**spark.options, _PACKAGES: ",".join(packages)}
    return spark.model_copy(update={"options": options})
