"""The limits of the configuration are those that GraphQL holds callers to."""

from __future__ import annotations

from pathlib import Path

from tidemark.config import load_config
from tidemark.live.graphql.configured import service_limits
from tidemark.live.graphql.service import ServiceLimits


def limits(tmp_path: Path, text: str) -> ServiceLimits:
    path = tmp_path / "tidemark.yaml"
    path.write_text(text)
    return service_limits(load_config(path, {}))


def test_the_configuration_says_how_many_rows_a_query_gets(tmp_path: Path) -> None:
    assert limits(tmp_path, "live: {max_query_rows: 20000}").queries.max_rows == 20_000
    few = limits(tmp_path, "live: {max_query_rows: 10}").queries
    assert (few.default_rows, few.max_rows) == (10, 10)


def test_what_is_not_configured_is_as_it_is(tmp_path: Path) -> None:
    assert limits(tmp_path, "").queries == ServiceLimits().queries
