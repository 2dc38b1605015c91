"""Meters as they are defined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from tests.reference.history import Event
from tests.reference.periods import HOUR_US, PeriodName

Aggregate = Literal["sum", "max", "min", "count", "last", "avg", "unique"]

DEFAULT_LATENESS_US: Final = 48 * HOUR_US
OWN_COLUMNS: Final = (
    *("tenant_id", "metric", "customer_ref", "period_start"),
    *("agg_sum", "agg_max", "agg_min", "agg_count", "agg_last", "watermark_ts"),
    *("counted", "adjusted", "total"),
    *("amount", "reason", "idempotency_key", "ingress_sequence"),
    *("original_key", "original_sequence", "received_at"),
)


@dataclass(frozen=True)
class Condition:
    """Which usage events are facts: those of which it is true, not false and not unknown (None).

    `text` says the same as an SQL expression.
    """

    text: str
    holds: Callable[[Event], bool | None] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Value:
    """What a fact adds, as a decimal; an event without a value (None) is no fact.

    `text` says the same as an SQL expression.
    """

    text: str
    of: Callable[[Event], str | None] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Meter:
    name: str
    metric: str
    aggregate: Aggregate = "sum"
    period: PeriodName = "month"
    zone: str = "UTC"
    lateness_us: int = DEFAULT_LATENESS_US
    close_after_us: int | None = None
    group_by: tuple[str, ...] = ()
    where: Condition | None = None
    value: Value = Value("quantity", lambda event: event["quantity"])

    def __post_init__(self) -> None:
        taken = set(self.group_by) & set(OWN_COLUMNS)
        if taken or len(set(self.group_by)) < len(self.group_by):
            raise ValueError(f"no column names of their own: {self.group_by}")
