"""The settings of landing: raw events for analysts."""

from __future__ import annotations

from pydantic import Field

from tidemark.config.durations import UNITS_US
from tidemark.config.section import Section
from tidemark.config.values import Duration, PathText


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
        le=10_000_000,
        description="How many events a file holds. It cannot be changed for a directory in use.",
    )
    every_us: Duration = Field(
        default=10 * UNITS_US["s"],
        ge=UNITS_US["ms"],
        validation_alias="every",
        description="How often the last file, which is not full yet, is written anew.",
    )


class LandingConfig(Section):
    """Raw events for analysts."""

    parquet: ParquetLandingConfig = Field(default_factory=ParquetLandingConfig)
