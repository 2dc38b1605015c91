"""Meters to run over generated ledgers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

from tests.generated.ledgers import DAY, HOUR
from tests.reference.amounts import BILLION, format_amount, parse_amount
from tests.reference.definitions import Condition, Meter, Value
from tests.reference.history import Event


def _is_at_least_one(event: Event) -> bool | None:
    return None if event["quantity"] is None else parse_amount(event["quantity"]) >= BILLION


def _is_of_r1(event: Event) -> bool | None:
    return None if event["resource_id"] is None else event["resource_id"] == "r1"


def _negated(event: Event) -> str | None:
    return None if event["quantity"] is None else format_amount(-parse_amount(event["quantity"]))


AT_LEAST_ONE: Final = Condition("quantity >= 1", _is_at_least_one)
OF_R1: Final = Condition("resource_id = 'r1'", _is_of_r1)
QUANTITY: Final = Meter("plain", "api_calls").value
NEGATED: Final = Value("-quantity", _negated)

# The values that each part of a meter is taken from, the simplest first.
PARTS: Final[dict[str, Sequence[Any]]] = {
    "aggregate": ("sum", "max", "min", "count", "last", "avg", "unique"),
    "period": ("month", "month", "week", "day", "hour"),
    "zone": ("UTC", "America/New_York", "Europe/Berlin"),
    "lateness_us": (48 * HOUR, HOUR, 0),
    "close_after_us": (None, None, None, 0, HOUR, 3 * DAY),
    "group_by": ((), (), ("region",), ("region", "plan")),
    "where": (None, None, None, AT_LEAST_ONE, OF_R1),
    "value": (QUANTITY, QUANTITY, QUANTITY, NEGATED),
}


def meters(**fixed: Any) -> st.SearchStrategy[Meter]:
    """Meters of "api_calls" from hypothesis; what is given stays as it is."""
    parts = {
        name: st.just(fixed[name]) if name in fixed else st.sampled_from(values)
        for name, values in PARTS.items()
    }
    return st.builds(Meter, name=st.just("m"), metric=st.just("api_calls"), **parts)


def random_meter(seed: int, **fixed: Any) -> Meter:
    """The meter of a seed, named by it."""
    source = random.Random(seed)
    parts = {name: source.choice(values) for name, values in PARTS.items()}
    return Meter(name=f"m{seed}", metric="api_calls", **{**parts, **fixed})
