"""What only Spark can say of a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.cli.logs import quiet_spark
from tidemark.cli.long_work import run_beside
from tidemark.config import Config

if TYPE_CHECKING:
    from tidemark.pipeline.output.schema import Column


def calculated_columns(config: Config) -> dict[str, tuple[Column, ...]]:
    """The calculated columns of each table; `ConfigError` for the first expression at fault."""
    quiet_spark()

    def work(stop: object) -> dict[str, tuple[Column, ...]]:
        from tidemark.app.pipeline import check_expressions

        return check_expressions(config)

    return run_beside(work)
