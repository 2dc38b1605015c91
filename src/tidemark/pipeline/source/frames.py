"""The ledger as a DataFrame, for the stages of the pipeline."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from tidemark.config import Config
from tidemark.ledger.opening import sqlite_path
from tidemark.pipeline.source.database import Owner, StreamOfTenant
from tidemark.pipeline.source.datasource import SQLITE_SCHEME, LedgerSource
from tidemark.pipeline.source.offsets import BEGINNING, Offset
from tidemark.pipeline.source.schema import SOURCE_NAME


def ledger_address(config: Config) -> str:
    """Where the source finds the configured ledger."""
    path = sqlite_path(config)
    if path is not None:
        return f"{SQLITE_SCHEME}{path.absolute()}"
    assert config.ledger.url is not None
    return config.ledger.url


def parts_at_once(spark: SparkSession) -> int:
    """Into how many parts to share out a batch.

    As many as after the shuffle: what Spark itself proposes counts the cores that have reported so
    far, and on a cluster that is next to none when a query starts.
    """
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def ledger_stream(
    spark: SparkSession,
    address: str,
    *,
    start: Offset = BEGINNING,
    end: Offset | None = None,
    max_rows: int | None = None,
    partitions: int | None = None,
    blocks: str | None = None,
) -> DataFrame:
    """The ledger as a stream of events and commits, from `start` where there is no checkpoint.

    `blocks` says what is landed, where events need not be read from the ledger itself.
    """
    spark.dataSource.register(LedgerSource)
    reader = (
        spark.readStream.format(SOURCE_NAME)
        .option("ledger", address)
        .option("start", json.dumps(start.as_json()))
        .option("partitions", partitions or parts_at_once(spark))
    )
    if max_rows is not None:
        reader = reader.option("max_rows", max_rows)
    if end is not None:
        reader = reader.option("end", json.dumps(end.as_json()))
    if blocks is not None:
        reader = reader.option("blocks", blocks)
    return reader.load()


def ledger_rows(
    spark: SparkSession,
    address: str,
    *,
    after: int = 0,
    upto: int | None = None,
    owners: Sequence[Owner] | None = None,
    streams: Sequence[StreamOfTenant] | None = None,
    partitions: int | None = None,
) -> DataFrame:
    """The records of the commits in `(after, upto]`, which are times of commits.

    With `owners` or `streams`, only the events of these, corrections included, and no commits.
    """
    spark.dataSource.register(LedgerSource)
    reader = (
        spark.read.format(SOURCE_NAME)
        .option("ledger", address)
        .option("after", after)
        .option("partitions", partitions or parts_at_once(spark))
    )
    if upto is not None:
        reader = reader.option("upto", upto)
    if owners is not None:
        reader = reader.option("owners", json.dumps(owners))
    if streams is not None:
        reader = reader.option("streams", json.dumps(streams))
    return reader.load()
