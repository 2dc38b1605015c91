"""Which rows of meters and tables an event belongs to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidemark.ops.explaining.contents import Content
from tidemark.pipeline.definitions import MeterDefinition, TableDefinition, meter_schema
from tidemark.pipeline.output.encoding import bounded_key, row_key
from tidemark.pipeline.periods import period_end, period_start

_NULL = msgspec.Raw(b"null")


class MeterPlace(msgspec.Struct, frozen=True):
    """The row of a meter that a content belongs to, and its period."""

    content: Content
    ts: int
    groups: tuple[str | None, ...]
    period_start: int
    period_end: int
    row_key: str


def meter_place(meter: MeterDefinition, content: Content) -> MeterPlace | None:
    """None for a content without a time that can be read."""
    if content.ts is None:
        return None
    event = content.event
    groups = tuple(_group(content.members.get(name)) for name in meter.group_by)
    start = period_start(content.ts, meter.period, meter.timezone)
    key = (event.tenant_id, meter.metric, event.customer_ref, *groups, start)
    return MeterPlace(
        content=content,
        ts=content.ts,
        groups=groups,
        period_start=start,
        period_end=period_end(start, meter.period, meter.timezone),
        row_key=row_key(meter_schema(meter), key),
    )


def table_row_key(table: TableDefinition, content: Content) -> str:
    """The key of the row that a content is written to.

    A key's values are written in it as they are in an event's data, which is canonical.
    """
    values: Sequence[object] = [
        content.event.tenant_id,
        *(content.members.get(name, _NULL) for name in table.key),
    ]
    return bounded_key(msgspec.json.encode(values))


def _group(raw: msgspec.Raw | None) -> str | None:
    """The value of a group: what is no text is the text of its JSON."""
    if raw is None:
        return None
    value = msgspec.json.decode(raw)
    if value is None or isinstance(value, str):
        return value
    return bytes(raw).decode()
