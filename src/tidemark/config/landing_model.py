"""The settings of landing: raw events for analysts."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from tidemark.config.durations import UNITS_US
from tidemark.config.faults import Expected
from tidemark.config.names import CLICKHOUSE_NAME_PATTERN
from tidemark.config.section import Section
from tidemark.config.values import ClickHouseUrl, Duration, PathText

_MOST_EVENTS: Final = 10_000_000

ClickHouseName = Annotated[
    str,
    Field(pattern=CLICKHOUSE_NAME_PATTERN),
    Expected("a name of letters, digits and underscores", pattern=CLICKHOUSE_NAME_PATTERN),
]


class ParquetLandingConfig(Section):
    """Raw events as Parquet files, in fixed blocks in the order of the ledger."""

    enabled: bool = Field(default=False, description="Whether `tidemark up` writes them.")
    path: PathText | None = Field(
        default=None,
        description="The directory, relative to `state_dir`; by default `landing/parquet`.",
    )
    block_events: int = Field(
        default=100_000,
        ge=1,
        le=_MOST_EVENTS,
        description="How many events a file holds. It cannot be changed for a directory in use.",
    )
    every_us: Duration = Field(
        default=10 * UNITS_US["s"],
        ge=UNITS_US["ms"],
        validation_alias="every",
        description="How often the last file, which is not full yet, is written anew.",
    )


class ClickHouseLandingConfig(Section):
    """Raw events in a table of ClickHouse, each block of them a partition."""

    enabled: bool = Field(default=False, description="Whether `tidemark up` writes them.")
    url: ClickHouseUrl = Field(
        default=None,
        description=(
            "The server, `http://user:password@host:8123` or `https://…`, or `chdb:///path` for "
            "ClickHouse within the process; by default that, in `landing/chdb` in `state_dir`."
        ),
    )
    database: ClickHouseName = Field(
        default="tidemark", description="The database. On a server it must be there."
    )
    table: ClickHouseName = Field(
        default="events",
        description=(
            "The table, which is made if it is not there. Beside it stand two whose names end in "
            "`_staging` and `_landing`."
        ),
    )
    block_events: int = Field(
        default=100_000,
        ge=1,
        le=_MOST_EVENTS,
        description="How many events a partition holds. It cannot be changed for a table in use.",
    )
    every_us: Duration = Field(
        default=10 * UNITS_US["s"],
        ge=UNITS_US["ms"],
        validation_alias="every",
        description="How often the last partition, which is not full yet, is written anew.",
    )


class LandingConfig(Section):
    """Raw events for analysts."""

    parquet: ParquetLandingConfig = Field(default_factory=ParquetLandingConfig)
    clickhouse: ClickHouseLandingConfig = Field(default_factory=ClickHouseLandingConfig)

    @property
    def is_enabled(self) -> bool:
        return self.parquet.enabled or self.clickhouse.enabled
