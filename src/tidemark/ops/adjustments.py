"""What came too late to be counted, and what operators added: each with the event it is due to."""

from __future__ import annotations

from typing import Final

import msgspec

from tidemark.decimals import plain_decimal
from tidemark.ops.frontier import FrontierWatch, sequence_of_frontier
from tidemark.ops.listings import Listing, listing_response, wants_csv
from tidemark.ops.meter_choice import chosen_meters, first_period
from tidemark.ops.opened_views import OpenedViews, as_refusals
from tidemark.ops.parameters import (
    PlaceNumber,
    PlaceText,
    decode_position,
    limit_of,
    sequence_of,
    time_of,
)
from tidemark.ops.usage import (
    DEFAULT_PAGE,
    LARGEST_PAGE,
    PAGE_PARAMETERS,
    USAGE_FILTERS,
    WAIT_PARAMETERS,
    wait_of,
)
from tidemark.pipeline.definition_hash import definition_hash
from tidemark.pipeline.definitions import MeterDefinition
from tidemark.pipeline.output.batch import Adjustment
from tidemark.pipeline.periods import period_end
from tidemark.timestamps import format_timestamp
from tidemark.views.port import AdjustmentFilter, ViewsStore
from tidemark.web.access import visible_tenants
from tidemark.web.messages import Request, Response

ADJUSTMENT_FILTERS: Final = (*USAGE_FILTERS, "ingressSequence", "originalSequence")
_NO_GROUPS: Final = "{}"


class AdjustmentEntry(msgspec.Struct, rename="camel", omit_defaults=True):
    """One adjustment. `part` tells the two of a late amend apart: 0 takes away, 1 adds."""

    meter: str
    tenant_id: str
    metric: str
    customer_ref: str
    period_start: str
    quantity: str
    reason: str
    idempotency_key: str
    ingress_sequence: str
    part: int
    source_timestamp: str
    period_end: str | None = None
    original_key: str | None = None
    original_sequence: str | None = None
    groups: msgspec.Raw | None = None


class AdjustmentPosition(msgspec.Struct, array_like=True):
    """A page ended behind this adjustment."""

    ingress_sequence: PlaceNumber
    view: PlaceText
    part: PlaceNumber


class Adjustments:
    """Handlers over the adjustments of all meters."""

    def __init__(self, views: OpenedViews, watch: FrontierWatch) -> None:
        self._views = views
        self._watch = watch

    async def list_adjustments(self, request: Request) -> Response:
        query = request.query((*ADJUSTMENT_FILTERS, *WAIT_PARAMETERS, *PAGE_PARAMETERS))
        as_csv = wants_csv(request, query)
        limit = limit_of(query, DEFAULT_PAGE, LARGEST_PAGE)
        position = decode_position(query, AdjustmentPosition)
        meters = self._views.definitions.meters
        chosen = chosen_meters(meters, query.get("meter"), None)
        from_us, to_us = time_of(query, "from"), time_of(query, "to")
        wanted = AdjustmentFilter(
            tenant_ids=visible_tenants(request.caller, query.get("tenantId")),
            view=query.get("meter"),
            metric=query.get("metric"),
            customer_ref=query.get("customerRef"),
            period_from=None
            if from_us is None
            else min([from_us, *(first_period(meter, from_us) for meter in chosen)]),
            period_to=to_us,
            ingress_sequence=sequence_of(query, "ingressSequence"),
            original_sequence=sequence_of(query, "originalSequence"),
        )
        wait = wait_of(query)
        with as_refusals():
            if not self._views.has_any:
                listing = Listing("adjustments", AdjustmentEntry, [], 0, None)
            else:
                if wait is not None:
                    await self._watch.wait_for(*wait)
                store = await self._views.store()
                listing = await self._read(store, wanted, from_us, position, limit)
        return listing_response(listing, query, as_csv=as_csv)

    async def _read(
        self,
        store: ViewsStore,
        wanted: AdjustmentFilter,
        from_us: int | None,
        position: AdjustmentPosition | None,
        limit: int,
    ) -> Listing:
        built_with = {view.name: view.definition_hash for view in await store.declared()}
        # The periods of an adjustment are those of the definition that made it.
        meters = {
            meter.name: meter
            for meter in self._views.definitions.meters
            if built_with.get(meter.name) == definition_hash(meter)
        }
        page = await store.read_adjustments(
            wanted,
            after=None if position is None else msgspec.structs.astuple(position),
            limit=limit,
        )
        shown = []
        for adjustment in page.adjustments:
            end_us = adjusted_period_end(adjustment, meters.get(adjustment.view))
            last_us = adjustment.period_start if end_us is None else end_us - 1
            if from_us is None or last_us >= from_us:
                shown.append(adjustment_entry(adjustment, end_us))
        cursor = page.next_cursor
        return Listing(
            "adjustments",
            AdjustmentEntry,
            shown,
            sequence_of_frontier(page.frontier),
            None if cursor is None else AdjustmentPosition(*cursor),
        )


def adjusted_period_end(adjustment: Adjustment, meter: MeterDefinition | None) -> int | None:
    """Where its period ends; not known of a meter that is not defined as it was."""
    if meter is None:
        return None
    return period_end(adjustment.period_start, meter.period, meter.timezone)


def adjustment_entry(adjustment: Adjustment, end_us: int | None) -> AdjustmentEntry:
    original, groups = adjustment.original_sequence, adjustment.group_values
    return AdjustmentEntry(
        meter=adjustment.view,
        tenant_id=adjustment.tenant_id,
        metric=adjustment.metric,
        customer_ref=adjustment.customer_ref,
        period_start=format_timestamp(adjustment.period_start),
        quantity=plain_decimal(adjustment.amount),
        reason=adjustment.reason,
        idempotency_key=adjustment.idempotency_key,
        ingress_sequence=str(adjustment.ingress_sequence),
        part=adjustment.part,
        source_timestamp=format_timestamp(adjustment.received_at),
        period_end=None if end_us is None else format_timestamp(end_us),
        original_key=adjustment.original_key,
        original_sequence=None if original is None else str(original),
        groups=None if groups == _NO_GROUPS else msgspec.Raw(groups.encode()),
    )
