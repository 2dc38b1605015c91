"""A view with what people wrote about it, ready to be shown in a schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tidemark.config import Config
from tidemark.config.pipeline_model import AGGREGATES
from tidemark.pipeline.definitions import INTERNAL_MARK, PERIOD_START, TENANT_ID
from tidemark.pipeline.output.schema import ViewSchema

_METER_COLUMNS: Final = {
    TENANT_ID: "The tenant whose usage it is.",
    "metric": "What was used.",
    "customer_ref": "Who used it.",
    PERIOD_START: "When the period begins.",
    "agg_sum": "The sum of the values counted in time.",
    "agg_max": "The largest value counted in time.",
    "agg_min": "The smallest value counted in time.",
    "agg_count": "How many events were counted in time.",
    "agg_last": "The value of the latest event counted in time.",
    "watermark_ts": "The time of the latest event of this row.",
    "counted": "What the meter's aggregate of the events counted in time comes to.",
    "adjusted": "What late events and operators added to it.",
    "total": "`counted` and `adjusted` together.",
}


class DescribedView(msgspec.Struct, frozen=True):
    """`columns` holds descriptions of columns by name, as far as there are any."""

    schema: ViewSchema
    description: str | None = None
    columns: Mapping[str, str] = {}


def described_views(config: Config, schemas: Iterable[ViewSchema]) -> list[DescribedView]:
    """The views that readers see, by name, with the descriptions that the configuration has.

    `schemas` may hold the pipeline's own views too; they are left out.
    """
    return [
        _described(config, schema)
        for schema in sorted(schemas, key=lambda schema: schema.name)
        if INTERNAL_MARK not in schema.name
    ]


def _described(config: Config, schema: ViewSchema) -> DescribedView:
    meter = config.meters.get(schema.name)
    if meter is not None:
        metric = meter.metric or schema.name
        made = f"The {meter.aggregate} of `{metric}` by {meter.period} ({meter.timezone})."
        groups = {name: f"`meta.{name}` of the events." for name in meter.group_by}
        return DescribedView(
            schema,
            meter.description or f"{made} {AGGREGATES[meter.aggregate]}",
            _METER_COLUMNS | groups,
        )
    view = config.views.get(schema.name)
    if view is None:
        return DescribedView(schema)
    stream = config.streams[view.stream]
    columns = {TENANT_ID: "The tenant whose row it is."}
    columns |= {
        name: field.description for name, field in stream.fields.items() if field.description
    }
    columns |= {name: f"Calculated: `{text}`." for name, text in view.calculated.items()}
    made = f"The last event of each {', '.join(view.key)} of `{view.stream}`."
    return DescribedView(schema, view.description or stream.description or made, columns)
