"""Running aggregates, fact by fact, and what a counter's row shows of them.

Amounts are whole numbers of billionths, so nothing is ever rounded but a mean that is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidemark.pipeline.output.schema import Value

# Not loaded in the processes of tasks, which have no configuration to read.
if TYPE_CHECKING:
    from tidemark.config.pipeline_model import Aggregate

_PLACES: Final = -9
_BILLION: Final = 10**9
# Python's own context would round at 28 digits without a word.
_EXACT: Final = Context(prec=60)


class Order(NamedTuple):
    """What `last` goes by."""

    ts: int
    sequence: int


class Tally:
    """The aggregates of a set of facts to which facts are added."""

    __slots__ = (
        *("count", "distinct", "last", "last_order", "maximum", "members", "minimum", "total"),
    )

    def __init__(self) -> None:
        self.total = 0
        self.count = 0
        self.maximum: int | None = None
        self.minimum: int | None = None
        self.last: int | None = None
        self.last_order: Order | None = None
        self.distinct = 0
        # How often each value is in the set, as far as it matters; kept for `unique` only.
        self.members: dict[int, int] | None = None

    def add(self, value: int, order: Order) -> None:
        self.total += value
        self.count += 1
        if self.maximum is None or value > self.maximum:
            self.maximum = value
        if self.minimum is None or value < self.minimum:
            self.minimum = value
        if self.last_order is None or order > self.last_order:
            self.last_order, self.last = order, value
        if self.members is not None:
            times = self.members.get(value, 0)
            self.members[value] = times + 1
            self.distinct += times == 0

    def aggregate(self, name: Aggregate) -> int | None:
        """In billionths. Of nothing, a sum and a number of things are 0 and the rest is null."""
        if name == "sum":
            return self.total
        if name == "count":
            return self.count * _BILLION
        if name == "unique":
            return self.distinct * _BILLION
        if name == "max":
            return self.maximum
        if name == "min":
            return self.minimum
        if name == "last":
            return self.last
        return None if self.count == 0 else _mean(self.total, self.count)


class Counter:
    """All that is known of one row of a meter."""

    __slots__ = ("counted", "everything", "standing_count", "standing_sum", "watermark")

    def __init__(self, aggregate: Aggregate) -> None:
        self.counted = self._tally()
        self.everything = self._tally()
        if aggregate == "unique":
            self.counted.members, self.everything.members = {}, {}
        self.standing_sum = 0
        self.standing_count = 0
        self.watermark: int | None = None

    def _tally(self) -> Tally:
        return Tally()

    def see(self, ts: int) -> None:
        """Moves the watermark, which never goes back."""
        if self.watermark is None or ts > self.watermark:
            self.watermark = ts

    @classmethod
    def of(cls, aggregate: Aggregate, state: Mapping[str, Any]) -> Counter:
        """The counter that goes on from a row's columns. Of the members none is known yet."""
        counter = cls(aggregate)
        counted, everything = counter.counted, counter.everything
        counted.total = to_billionths(state["agg_sum"])
        counted.count = state["agg_count"]
        counted.maximum = _billionths(state["agg_max"])
        counted.minimum = _billionths(state["agg_min"])
        counted.last = _billionths(state["agg_last"])
        if state["last_ts"] is not None:
            counted.last_order = Order(state["last_ts"], state["last_sequence"])
        everything.total = _billionths(state["all_sum"]) or 0
        everything.count = state["all_count"] or 0
        everything.maximum = _billionths(state["all_max"])
        everything.minimum = _billionths(state["all_min"])
        everything.last = _billionths(state["all_last"])
        everything.distinct = state["all_distinct"] or 0
        if state["all_last_ts"] is not None:
            everything.last_order = Order(state["all_last_ts"], state["all_last_sequence"])
        if aggregate == "unique":
            counted.distinct = to_billionths(state["counted"]) // _BILLION
        counter.standing_sum = _billionths(state["standing_sum"]) or 0
        counter.standing_count = state["standing_count"]
        counter.watermark = state["watermark_ts"]
        return counter

    def shown(self, aggregate: Aggregate) -> tuple[Value, ...]:
        """The values of the columns `definitions.COUNTERS`."""
        tally = self.counted
        counted = tally.aggregate(aggregate)
        total = self.everything.aggregate(aggregate)
        if self.standing_count:
            total = (total or 0) + self.standing_sum
        adjusted = None
        if counted is not None or total is not None:
            adjusted = (total or 0) - (counted or 0)
        return (
            to_decimal(tally.total),
            to_decimal(tally.maximum),
            to_decimal(tally.minimum),
            tally.count,
            to_decimal(tally.last),
            self.watermark,
            to_decimal(counted),
            to_decimal(adjusted),
            to_decimal(total),
        )

    def kept(self, aggregate: Aggregate) -> tuple[Value, ...]:
        """The values of the columns `definitions.STATE`: of everything, only what its aggregate
        needs, so that every fold keeps the same."""
        last, all_last = self.counted.last_order, self.everything.last_order
        everything = self.everything
        wanted = WANTED[aggregate]
        return (
            None if last is None else last.ts,
            None if last is None else last.sequence,
            to_decimal(everything.total) if "all_sum" in wanted else None,
            to_decimal(everything.maximum) if "all_max" in wanted else None,
            to_decimal(everything.minimum) if "all_min" in wanted else None,
            everything.count if "all_count" in wanted else None,
            everything.distinct if "all_distinct" in wanted else None,
            to_decimal(everything.last) if "all_last" in wanted else None,
            all_last.ts if all_last and "all_last" in wanted else None,
            all_last.sequence if all_last and "all_last" in wanted else None,
            to_decimal(self.standing_sum) if self.standing_count else None,
            self.standing_count,
        )


# Which aggregates over everything in effect are needed to go on with each kind of meter.
WANTED: Final[dict[Aggregate, frozenset[str]]] = {
    "sum": frozenset({"all_sum"}),
    "max": frozenset({"all_max"}),
    "min": frozenset({"all_min"}),
    "count": frozenset({"all_count"}),
    "last": frozenset({"all_last"}),
    "avg": frozenset({"all_sum", "all_count"}),
    "unique": frozenset({"all_distinct"}),
}


def to_decimal(billionths: int | None) -> Decimal | None:
    return None if billionths is None else Decimal(billionths).scaleb(_PLACES, _EXACT)


def to_billionths(amount: Decimal) -> int:
    return int(amount.scaleb(-_PLACES, _EXACT))


def _billionths(amount: Decimal | None) -> int | None:
    return None if amount is None else to_billionths(amount)


def _mean(total: int, count: int) -> int:
    """The quotient rounded to a whole billionth, half to even."""
    quotient, rest = divmod(abs(total), count)
    if 2 * rest > count or (2 * rest == count and quotient % 2):
        quotient += 1
    return quotient if total >= 0 else -quotient
