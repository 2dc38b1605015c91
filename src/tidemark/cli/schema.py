"""`tidemark schema`: what can be asked for over GraphQL, as text."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from tidemark.cli.options import config_option, configuration, json_option
from tidemark.cli.output import write_json, write_lines, write_note
from tidemark.config import Config


@click.command
@config_option
@json_option
def schema(config_path: Path | None, as_json: bool) -> None:
    """Print the GraphQL schema.

    It is printed in the schema definition language (SDL), as tools that generate code read it. No
    server is needed. The types of calculated columns are those that the pipeline has declared; for
    a view that it has not made yet, or made with another definition, Spark is asked for some
    seconds.
    """
    configured = configuration(config_path)
    text = _sdl(configured.config)
    if as_json:
        write_json({"config": configured.as_json, "sdl": text})
    else:
        write_lines(text.splitlines())


def _sdl(config: Config) -> str:
    from tidemark.app.view_schemas import known_calculated, view_schemas
    from tidemark.live.graphql.described import described_views
    from tidemark.live.graphql.sdl import print_sdl
    from tidemark.pipeline.output.errors import ViewsUnavailable

    try:
        calculated, unknown = asyncio.run(known_calculated(config))
    except ViewsUnavailable as error:
        write_note(f"the views cannot be read, so Spark is asked: {error.message}")
        calculated, unknown = {}, list(config.views)
    if unknown:
        from tidemark.cli.spark_questions import calculated_columns

        calculated = {**calculated_columns(config), **calculated}
    return print_sdl(described_views(config, view_schemas(config, calculated)))
