"""The columns of the configured views, also before there is a pipeline that has made them.

All but the calculated columns follow from the configuration. Those are known to Spark, and to the
store of views once the pipeline has declared them there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from tidemark.config import Config
from tidemark.pipeline.definition_hash import INTERNAL_MARK, definition_hash
from tidemark.pipeline.definitions import (
    Definitions,
    meter_schema,
    table_schema,
)
from tidemark.pipeline.output.schema import Column, ViewSchema
from tidemark.pipeline.stream_columns import TENANT_ID
from tidemark.pipeline.windows.definition import window_schemas
from tidemark.views.opening import migrate_views, open_views, views_place

Calculated: TypeAlias = Mapping[str, tuple[Column, ...]]
"""The calculated columns of tables, by the table's name."""


def view_schemas(config: Config, calculated: Calculated) -> list[ViewSchema]:
    """The views as the pipeline declares them, those that nobody sees left out."""
    definitions = Definitions.of(config)
    unlogged = definitions.unlogged
    return [
        *(meter_schema(it, logged=it.name not in unlogged) for it in definitions.meters),
        *(
            table_schema(it, calculated[it.name], logged=it.name not in unlogged)
            for it in definitions.tables
        ),
        *(
            schema
            for it in definitions.windows
            for schema in window_schemas(it, logged=it.name not in unlogged)
            if INTERNAL_MARK not in schema.name
        ),
    ]


async def known_calculated(config: Config) -> tuple[dict[str, tuple[Column, ...]], list[str]]:
    """The calculated columns that are known without Spark, and the tables of which they are not.

    A store that is not there yet is not made. Raises `ViewsUnavailable`.
    """
    tables = Definitions.of(config).tables
    known: dict[str, tuple[Column, ...]] = {it.name: () for it in tables if not it.calculated}
    if len(known) == len(tables):
        return known, []
    declared = await _declared(config)
    for table in tables:
        schema = declared.get(table.name)
        if schema is not None and schema.definition_hash == definition_hash(table):
            others = {TENANT_ID, *(field.name for field in table.fields)}
            known[table.name] = tuple(it for it in schema.visible if it.name not in others)
    return known, [it.name for it in tables if it.name not in known]


async def _declared(config: Config) -> dict[str, ViewSchema]:
    place = views_place(config)
    if isinstance(place, Path) and not place.exists():
        return {}
    if await migrate_views(config, dry_run=True):
        # Opening would migrate it, which is not for somebody who only asks.
        return {}
    store = await open_views(config)
    try:
        return {schema.name: schema for schema in await store.declared()}
    finally:
        await store.close()
