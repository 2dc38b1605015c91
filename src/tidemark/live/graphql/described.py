"""A view with what people wrote about it, ready to be shown in a schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tidemark.config import Config
from tidemark.config.durations import format_duration
from tidemark.config.pipeline_model import AGGREGATES
from tidemark.config.window_checks import late_view
from tidemark.config.window_model import WindowConfig
from tidemark.pipeline.definition_hash import INTERNAL_MARK
from tidemark.pipeline.definitions import PERIOD_START
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.pipeline.stream_columns import TENANT_ID
from tidemark.pipeline.windows.definition import WINDOW_END, WINDOW_START

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

_WINDOW_BOUNDS: Final = {
    WINDOW_START: "When the window begins.",
    WINDOW_END: "When it ends; what happens then is in the next.",
}
_WINDOW_COLUMNS: Final = {
    **_WINDOW_BOUNDS,
    "agg_sum": "The sum of the values.",
    "agg_max": "The largest value.",
    "agg_min": "The smallest value.",
    "agg_count": "How many events there are.",
    "agg_last": "The value of the latest event.",
    "value": "What the window's aggregate comes to.",
    "is_closed": "Whether it is closed: its end was reached, or its stream was ended.",
}
_LATE_COLUMNS: Final = {
    **_WINDOW_BOUNDS,
    "ingress_sequence": "The place in order of the event, or of the correction of it.",
    "part": "0 for what a late event or correction takes away or adds, 1 for what an amend adds.",
    "event_ts": "The time of the event.",
    "amount": "Its value; negative where a correction takes it away.",
    "reason": "`late`, or the correction that came too late: `void` or `amend`.",
    "idempotency_key": "The key of the event, or of the correction.",
    "original_key": "The key of the event that is corrected.",
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
    window = _window_of(config, schema.name)
    if window is not None:
        return _described_window(schema, window, _fields(config, window.stream))
    view = config.views.get(schema.name)
    if view is None:
        return DescribedView(schema)
    stream = config.streams[view.stream]
    columns = _fields(config, view.stream)
    columns |= {name: f"Calculated: `{text}`." for name, text in view.calculated.items()}
    made = f"The last event of each {', '.join(view.key)} of `{view.stream}`."
    return DescribedView(schema, view.description or stream.description or made, columns)


def _window_of(config: Config, name: str) -> WindowConfig | None:
    """The window that a view shows, or the late events of."""
    for own, window in config.windows.items():
        if name == own or (name == late_view(own) and window.late == "side_output"):
            return window
    return None


def _described_window(
    schema: ViewSchema, window: WindowConfig, fields: dict[str, str]
) -> DescribedView:
    if any(column.name == "original_key" for column in schema.columns):
        made = f"The events of `{window.stream}` that came too late for their windows."
        return DescribedView(schema, made, _LATE_COLUMNS | fields)
    every = window.every_us or window.size_us
    made = (
        f"The {window.aggregate} of {window.value or 'events'} of `{window.stream}` in windows of"
    )
    made += f" {format_duration(window.size_us)}"
    made += "." if every == window.size_us else f" every {format_duration(every)}."
    text = window.description or f"{made} {AGGREGATES[window.aggregate]}"
    return DescribedView(schema, text, _WINDOW_COLUMNS | fields)


def _fields(config: Config, stream: str) -> dict[str, str]:
    fields = config.streams[stream].fields.items()
    told = {name: field.description for name, field in fields if field.description}
    return {TENANT_ID: "The tenant whose row it is.", **told}
