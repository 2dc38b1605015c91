"""Which meters a reader asks for, and which periods of each."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.config.suggestions import nearest
from tidemark.errors import RequestError
from tidemark.pipeline.definitions import MeterDefinition
from tidemark.pipeline.periods import period_start
from tidemark.timestamps import MAX_TIMESTAMP_US


def chosen_meters(
    meters: Sequence[MeterDefinition], name: str | None, metric: str | None
) -> list[MeterDefinition]:
    """The meters of this name and metric, in the order of their names."""
    names = [meter.name for meter in meters]
    if name is not None and name not in names:
        near = nearest(name, names)
        raise RequestError(
            f"there is no meter {name[:64]!r}",
            status=404,
            code="unknown_meter",
            field="meter",
            hint=f"Did you mean {' or '.join(f'`{it}`' for it in near)}?"
            if near
            else f"There are: {', '.join(names) or 'none'}.",
        )
    return [
        meter for meter in meters if name in (None, meter.name) and metric in (None, meter.metric)
    ]


def first_period(meter: MeterDefinition, from_us: int) -> int:
    """Where the first period begins that ends after this time."""
    if from_us > MAX_TIMESTAMP_US:
        return from_us
    return period_start(from_us, meter.period, meter.timezone)
