"""Views as a pipeline would leave them, written through the store's own port."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from tidemark.clock import SystemClock
from tidemark.config import load_config
from tidemark.ledger.opening import open_ledger
from tidemark.pipeline.definitions import Definitions, MeterDefinition, meter_schema
from tidemark.pipeline.output.batch import Adjustment, ErrorRow, Frontier, RowWrites, ViewBatch
from tidemark.pipeline.output.encoding import row_key
from tidemark.pipeline.output.schema import Value
from tidemark.timestamps import parse_timestamp
from tidemark.views.opening import open_views


class MeterRow(msgspec.Struct, frozen=True):
    """One row of a meter; counters that are not given are null."""

    meter: str
    tenant_id: str
    customer_ref: str
    period_start: str
    counters: Mapping[str, Value] = {}
    groups: tuple[str | None, ...] = ()


class FilledViews:
    """The views that belong to a configuration."""

    def __init__(self, config_path: Path, env: Mapping[str, str]) -> None:
        self._config = load_config(config_path, dict(env))
        self._meters = {meter.name: meter for meter in Definitions.of(self._config).meters}

    def commit(
        self,
        *rows: MeterRow,
        adjustments: Sequence[Mapping[str, Any]] = (),
        errors: Sequence[Mapping[str, Any]] = (),
        changed: Mapping[str, Any] | None = None,
    ) -> int:
        """Take the views to the last commit of the ledger; the sequence they are at then.

        `changed` are fields of the definitions that the views are declared with.
        """
        return asyncio.run(self._commit(rows, adjustments, errors, changed or {}))

    async def _commit(
        self,
        rows: Sequence[MeterRow],
        adjustments: Sequence[Mapping[str, Any]],
        errors: Sequence[Mapping[str, Any]],
        changed: Mapping[str, Any],
    ) -> int:
        ledger = await open_ledger(self._config, SystemClock())
        views = await open_views(self._config)
        try:
            head = await ledger.head()
            end = Frontier(head.last_sequence, head.received_at, head.chain, ledger.ledger_id)
            meters = {
                name: msgspec.structs.replace(meter, **changed)
                for name, meter in self._meters.items()
            }
            await views.declare([meter_schema(meter) for meter in meters.values()])
            written = await views.commit(
                ViewBatch(
                    await views.frontier(),
                    end,
                    rows=[
                        _writes(meter, [row for row in rows if row.meter == name], end.received_at)
                        for name, meter in meters.items()
                    ],
                    adjustments=[_adjustment(fields, end.received_at) for fields in adjustments],
                    errors=[_error(fields, end.received_at) for fields in errors],
                )
            )
            assert written
            return end.ingress_sequence
        finally:
            await views.close()
            await ledger.close()


def counters(amount: str, adjusted: str = "0", **more: Value) -> dict[str, Value]:
    """Of a meter that sums, after one counted event of this amount."""
    value = Decimal(amount)
    same: dict[str, Value] = dict.fromkeys(("agg_sum", "agg_max", "agg_min", "agg_last"), value)
    return {
        **same,
        "agg_count": 1,
        "counted": value,
        "adjusted": Decimal(adjusted),
        "total": value + Decimal(adjusted),
        **more,
    }


def _writes(meter: MeterDefinition, rows: Sequence[MeterRow], received_at: int) -> RowWrites:
    schema = meter_schema(meter)
    values = [
        {
            **dict.fromkeys(column.name for column in schema.columns),
            "tenant_id": row.tenant_id,
            "metric": meter.metric,
            "customer_ref": row.customer_ref,
            **dict(zip(meter.group_by, row.groups, strict=True)),
            "period_start": parse_timestamp(row.period_start),
            **row.counters,
        }
        for row in rows
    ]
    return RowWrites(
        meter.name,
        [row_key(schema, [of_row[name] for name in schema.key]) for of_row in values],
        [received_at] * len(rows),
        [[of_row[column.name] for of_row in values] for column in schema.columns],
    )


def _adjustment(fields: Mapping[str, Any], received_at: int) -> Adjustment:
    return Adjustment(
        **{
            "part": 0,
            "received_at": received_at,
            "group_values": "{}",
            "reason": "late",
            **fields,
            "period_start": parse_timestamp(fields["period_start"]),
            "amount": Decimal(fields["amount"]),
        }
    )


def _error(fields: Mapping[str, Any], received_at: int) -> ErrorRow:
    return ErrorRow(**{"received_at": received_at, "stage": "decode", **fields})
