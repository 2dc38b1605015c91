"""When a fact of a meter is late, and the names of things in a fold of meters."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidemark.canonical import canonical_json
from tidemark.pipeline.definitions import MeterDefinition

if TYPE_CHECKING:
    # A server asks when a fact is late, too, and has no other use for it.
    import pyarrow as pa

LATE: Final = "late"
CLOSED: Final = "closed"


class Slot(NamedTuple):
    """Which row of a meter."""

    tenant_id: str
    customer_ref: str
    groups: tuple[str | None, ...]
    period_start: int


class Fact(NamedTuple):
    """One fact of a meter as the folds in Python take it. A correction that has no content has no
    groups and no period, and what follows is None; so is `period_end` where no period closes."""

    ingress_sequence: int
    received_at: int
    previous_received_at: int | None
    idempotency_key: str
    target_key: str | None
    tenant_id: str
    customer_ref: str
    kind: str
    groups: list[str | None]
    period_start: int | None
    period_end: int | None
    ts: int | None
    value: Decimal | None
    reason: str | None

    @property
    def slot(self) -> Slot:
        assert self.period_start is not None
        return Slot(self.tenant_id, self.customer_ref, tuple(self.groups), self.period_start)


def facts_in_order(table: pa.Table) -> list[Fact]:
    """The facts of a table, commit by commit and in sequence."""
    ordered = table.sort_by("ingress_sequence")
    columns = (ordered.column(name).to_pylist() for name in Fact._fields)
    return [Fact(*values) for values in zip(*columns, strict=True)]


def late_reason(
    meter: MeterDefinition,
    *,
    ts: int,
    period_end: int,
    watermark: int | None,
    previous_received_at: int | None,
) -> str | None:
    """Why a fact would be late at a commit; None if it would not.

    `watermark` is that of its row before the commit, `previous_received_at` the commit before it.
    Being behind the watermark comes before being after the close.
    """
    if watermark is not None and ts < watermark - meter.lateness_us:
        return LATE
    if (
        meter.close_after_us is not None
        and previous_received_at is not None
        and previous_received_at > period_end + meter.close_after_us
    ):
        return CLOSED
    return None


def group_values(meter: MeterDefinition, groups: Any) -> str:
    """The groups of a row as an adjustment names them."""
    return canonical_json(dict(zip(meter.group_by, groups, strict=True))).decode()
