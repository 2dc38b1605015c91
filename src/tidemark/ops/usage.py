"""What was used: the rows of all meters, the counted and the adjusted apart."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.decimals import plain_decimal
from tidemark.ops.frontier import FrontierWatch, sequence_of_frontier
from tidemark.ops.listings import Listing, listing_response, wants_csv
from tidemark.ops.meter_choice import chosen_meters, first_period
from tidemark.ops.opened_views import OpenedViews, as_refusals
from tidemark.ops.parameters import (
    PlaceText,
    decode_position,
    invalid,
    limit_of,
    sequence_of,
    time_of,
    unknown_cursor,
)
from tidemark.pipeline.definition_hash import definition_hash
from tidemark.pipeline.definitions import METER_KEY, PERIOD_START, MeterDefinition
from tidemark.pipeline.output.errors import DefinitionChanged
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import Value
from tidemark.pipeline.periods import period_end
from tidemark.timestamps import format_timestamp
from tidemark.views.port import RowFilter, ViewsStore
from tidemark.web.access import visible_tenants
from tidemark.web.messages import Request, Response

USAGE_FILTERS: Final = ("tenantId", "metric", "customerRef", "meter", "from", "to")
WAIT_PARAMETERS: Final = ("minSequence", "timeoutMs")
PAGE_PARAMETERS: Final = ("limit", "cursor", "format")
DEFAULT_PAGE: Final = 100
LARGEST_PAGE: Final = 1000
DEFAULT_TIMEOUT_MS: Final = 10_000
LONGEST_TIMEOUT_MS: Final = 30_000
# A page ends between two meters once so much time has gone into it.
_PAGE_BUDGET_US: Final = MICROS_PER_SECOND


class UsageEntry(msgspec.Struct, rename="camel", omit_defaults=True):
    """One row of a meter. Decimals and 64-bit numbers are strings in plain notation."""

    meter: str
    tenant_id: str
    metric: str
    customer_ref: str
    period_start: str
    period_end: str
    sum: str | None
    max: str | None
    min: str | None
    count: str | None
    last: str | None
    counted: str | None
    adjusted: str | None
    total: str | None
    watermark_ts: str | None
    source_timestamp: str
    groups: dict[str, str | None] | None = None


class UsagePosition(msgspec.Struct, array_like=True):
    """A page ended in this meter, behind this row; with None, before its first."""

    meter: str
    after: PlaceText | None


class Usage:
    """Handlers over the views of the meters."""

    def __init__(self, views: OpenedViews, watch: FrontierWatch, clock: Clock) -> None:
        self._views = views
        self._watch = watch
        self._clock = clock

    async def list_usage(self, request: Request) -> Response:
        query = request.query((*USAGE_FILTERS, *WAIT_PARAMETERS, *PAGE_PARAMETERS))
        as_csv = wants_csv(request, query)
        question = _Question(query, visible_tenants(request.caller, query.get("tenantId")))
        limit = limit_of(query, DEFAULT_PAGE, LARGEST_PAGE)
        position = decode_position(query, UsagePosition)
        meters = chosen_meters(
            self._views.definitions.meters, query.get("meter"), query.get("metric")
        )
        if position is not None:
            meters = _from_position(meters, position)
        wait = wait_of(query)
        with as_refusals():
            if not self._views.has_any:
                listing = Listing("usage", UsageEntry, [], 0, None)
            else:
                if wait is not None:
                    await self._watch.wait_for(*wait)
                store = await self._views.store()
                listing = await self._read(store, meters, question, position, limit)
        return listing_response(listing, query, as_csv=as_csv)

    async def _read(
        self,
        store: ViewsStore,
        meters: Sequence[MeterDefinition],
        question: _Question,
        position: UsagePosition | None,
        limit: int,
    ) -> Listing:
        entries: list[UsageEntry] = []
        frontiers: list[int] = []
        next_position: UsagePosition | None = None
        deadline_us = self._clock.elapsed_us() + _PAGE_BUDGET_US
        declared = {view.name: view.definition_hash for view in await store.declared()}
        after = None if position is None else position.after
        for place, meter in enumerate(meters):
            if meter.name not in declared:
                continue
            if place and self._clock.elapsed_us() > deadline_us:
                next_position = UsagePosition(meter.name, None)
                break
            _require_definition(meter, declared[meter.name])
            page = await store.read_rows(
                meter.name,
                question.rows_of(meter),
                after=None if place else after,
                limit=limit - len(entries),
            )
            entries += [_entry(meter, page.columns, row) for row in page.rows]
            frontiers.append(sequence_of_frontier(page.frontier))
            if page.next_cursor is not None:
                next_position = UsagePosition(meter.name, page.next_cursor)
                break
        if not frontiers:
            frontiers.append(sequence_of_frontier(await store.frontier()))
        # Each meter was read at a moment of its own: what all of them hold is what the first held.
        return Listing("usage", UsageEntry, entries, min(frontiers), next_position)


class _Question(msgspec.Struct, frozen=True):
    """Which rows a reader asks for."""

    query: dict[str, str]
    tenant_ids: tuple[str, ...] | None

    def __post_init__(self) -> None:
        for name in ("from", "to"):
            time_of(self.query, name)

    def rows_of(self, meter: MeterDefinition) -> RowFilter:
        """The rows of one meter; a period is asked for if it overlaps the time asked for."""
        equal: dict[str, Value] = {"metric": meter.metric}
        one_of: dict[str, Sequence[Value]] = {}
        if "customerRef" in self.query:
            equal["customer_ref"] = self.query["customerRef"]
        if self.tenant_ids is not None:
            one_of["tenant_id"] = self.tenant_ids
        from_us, to_us = time_of(self.query, "from"), time_of(self.query, "to")
        return RowFilter(
            equal=equal,
            one_of=one_of,
            at_least={} if from_us is None else {PERIOD_START: first_period(meter, from_us)},
            below={} if to_us is None else {PERIOD_START: to_us},
        )


def wait_of(query: dict[str, str]) -> tuple[int, int] | None:
    """The sequence to wait for and how many microseconds at most, if there is one to wait for."""
    text = query.get("timeoutMs", str(DEFAULT_TIMEOUT_MS))
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    if not is_number or int(text) > LONGEST_TIMEOUT_MS:
        raise invalid(
            "timeoutMs", "is not possible", f"Give a whole number from 0 to {LONGEST_TIMEOUT_MS}."
        )
    sequence = sequence_of(query, "minSequence")
    return None if sequence is None else (sequence, int(text) * 1000)


def _from_position(meters: list[MeterDefinition], position: UsagePosition) -> list[MeterDefinition]:
    """The meters from the one on in which the last page ended."""
    names = [meter.name for meter in meters]
    if position.meter not in names:
        raise unknown_cursor("names no place in this list", "Start again without a cursor.")
    return meters[names.index(position.meter) :]


def _require_definition(meter: MeterDefinition, built_with: str) -> None:
    if definition_hash(meter) != built_with:
        raise DefinitionChanged(
            f"the meter {meter.name} was counted with another definition than it has now",
            hint="Start the server with the configuration that the pipeline has. Until then, ask"
            " for other meters by name.",
            field="meter",
        )


def _entry(meter: MeterDefinition, columns: tuple[str, ...], row: ViewRow) -> UsageEntry:
    values: dict[str, Any] = dict(zip(columns, row.values, strict=True))
    start_us = values[PERIOD_START]
    group_names = columns[len(METER_KEY) : columns.index(PERIOD_START)]
    count, watermark_us = values["agg_count"], values["watermark_ts"]
    return UsageEntry(
        meter=meter.name,
        tenant_id=values["tenant_id"],
        metric=values["metric"],
        customer_ref=values["customer_ref"],
        period_start=format_timestamp(start_us),
        period_end=format_timestamp(period_end(start_us, meter.period, meter.timezone)),
        sum=_plain(values["agg_sum"]),
        max=_plain(values["agg_max"]),
        min=_plain(values["agg_min"]),
        count=None if count is None else str(count),
        last=_plain(values["agg_last"]),
        counted=_plain(values["counted"]),
        adjusted=_plain(values["adjusted"]),
        total=_plain(values["total"]),
        watermark_ts=None if watermark_us is None else format_timestamp(watermark_us),
        source_timestamp=format_timestamp(row.received_at),
        groups={name: values[name] for name in group_names} or None,
    )


def _plain(value: Decimal | None) -> str | None:
    return None if value is None else plain_decimal(value)
