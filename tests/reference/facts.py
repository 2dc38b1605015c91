"""Facts of a meter, and what they come to together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.reference.amounts import BILLION, format_amount, mean
from tests.reference.definitions import Aggregate
from tests.reference.fingerprint import canonical_json


class Slot(NamedTuple):
    """Which row: a key with its period start still a number."""

    tenant_id: str
    metric: str
    customer_ref: str
    groups: tuple[str | None, ...]
    period_start: int


@dataclass(frozen=True)
class Fact:
    """What one event is to one meter. `seq` is the original's, also after an amend."""

    slot: Slot
    period_end: int
    ts: int
    seq: int
    value: int


def aggregate(name: Aggregate, facts: Sequence[Fact]) -> int | None:
    """In billionths. Of nothing, a sum and a number of things are 0 and the rest is null."""
    values = [fact.value for fact in facts]
    if name == "sum":
        return sum(values)
    if name == "count":
        return len(values) * BILLION
    if name == "unique":
        return len(set(values)) * BILLION
    if not facts:
        return None
    if name == "max":
        return max(values)
    if name == "min":
        return min(values)
    if name == "last":
        return max(facts, key=lambda fact: (fact.ts, fact.seq)).value
    return mean(sum(values), len(values))


def add(left: int | None, right: int | None) -> int | None:
    """Null counts as 0, but two nulls are null."""
    if left is None and right is None:
        return None
    return (left or 0) + (right or 0)


def shown(billionths: int | None) -> str | None:
    return None if billionths is None else format_amount(billionths)


def group_value(meta: Mapping[str, Any] | None, name: str) -> str | None:
    """A string as it is, anything else as JSON; what is absent is null."""
    value = None if meta is None else meta.get(name)
    return value if value is None or isinstance(value, str) else canonical_json(value)
