"""Windows to run over generated ledgers of a stream.

The times in these ledgers are few, so what suits them is a matter of the column that they are read
from: `UNIT` says how far apart the times of each are, and all sizes are small multiples of that.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from hypothesis import strategies as st

from tests.generated.ledgers import DAY, HOUR, SECOND
from tests.generated.streams import (
    DELETED,
    FAILING,
    FIELDS,
    GONE,
    IS_HERE,
    QUOTIENT,
    STREAM,
    TABLES,
)
from tests.reference.instants import parse_instant
from tests.reference.tables import Condition, EventTime, Values
from tests.reference.window_definitions import ONE, Value, Window

_LAST: Final = parse_instant("2261-12-31T23:59:59.999999Z")


def _seconds(value: int) -> int | None:
    return value * SECOND if 0 <= value * SECOND <= _LAST else None


def _ten_times(values: Values) -> Fraction | None:
    return None if values["price"] is None else values["price"] * 10


PRICE: Final = Value("price", lambda values: values["price"])
NUMBER: Final = Value("ts", lambda values: values["ts"])
COUNT: Final = Value("count", lambda values: values["count"])
QUOTIENTS: Final = Value(QUOTIENT.text, QUOTIENT.of)
# The largest prices have no place any more.
TEN_TIMES: Final = Value("price * 10", _ten_times)
HERE: Final = Condition(IS_HERE.text, IS_HERE.of)

_TIMES: Final = {table.name: table.time for table in TABLES}
AT: Final = _TIMES["timed"]
NUMBERED: Final = _TIMES["by_number"]
# 0, 1 and 2 seconds after 1970, and the year 2038, which is ahead of all commits.
COUNTED: Final = EventTime("count", "unixtimestamp_s", _seconds)
# What the time of the stream may be. None: when an event is received.
STREAM_TIMES: Final[tuple[EventTime | None, ...]] = (COUNTED, AT, NUMBERED, None)
UNIT: Final[Mapping[EventTime | None, int]] = {COUNTED: SECOND, AT: 1, NUMBERED: 1000, None: DAY}

# In units: tumbling, hopping, and hopping with a size that is no multiple of the distance.
SIZES: Final = ((1, 1), (1, 1), (2, 2), (2, 1), (3, 2), (5, 1))
# For how long a window refires: units, and microseconds on top.
REFIRES: Final = ((0, 0), (1, 0), (1, HOUR), (0, 30 * DAY))

# The values that each part of a window is taken from, the simplest first.
PARTS: Final[dict[str, Sequence[Any]]] = {
    "aggregate": ("sum", "max", "min", "count", "last", "avg", "unique"),
    "group_by": ((), ("place",), ("id",), ("text",), ("price", "is_deleted"), ("place", "at")),
    "value": (PRICE, NUMBER, NUMBER, COUNT, ONE, QUOTIENTS, TEN_TIMES),
    "where": (None, None, None, HERE, DELETED, GONE, FAILING),
    "emit": ("close", "change"),
    "late": ("drop", "side_output", "refire"),
}


def windows(time: EventTime | None, **fixed: Any) -> st.SearchStrategy[Window]:
    """Windows of a stream with this time from hypothesis; what is given stays as it is."""
    parts = {
        name: st.just(fixed[name]) if name in fixed else st.sampled_from(values)
        for name, values in PARTS.items()
    }
    return st.builds(
        _window,
        name=st.just("w"),
        time=st.just(time),
        size=st.sampled_from(SIZES),
        refire=st.sampled_from(REFIRES),
        parts=st.fixed_dictionaries(parts),
    )


def random_window(seed: int, **fixed: Any) -> Window:
    """The window of a seed, named by it; `time` may be given too."""
    source = random.Random(seed)
    time = source.choice(STREAM_TIMES)
    parts = {name: source.choice(values) for name, values in PARTS.items()}
    return _window(
        name=f"w{seed}",
        time=fixed.pop("time", time),
        size=source.choice(SIZES),
        refire=source.choice(REFIRES),
        parts={**parts, **fixed},
    )


def _window(
    name: str,
    time: EventTime | None,
    size: tuple[int, int],
    refire: tuple[int, int],
    parts: Mapping[str, Any],
) -> Window:
    unit = UNIT[time]
    refire_for_us = refire[0] * unit + refire[1] if parts["late"] == "refire" else None
    return Window(
        name=name,
        stream=STREAM,
        fields=FIELDS,
        size_us=size[0] * unit,
        every_us=size[1] * unit,
        refire_for_us=refire_for_us,
        time=time,
        **parts,
    )


# Every aggregate, and every way to emit with every policy. The simplest first.
_ALL: Final[tuple[tuple[str, tuple[int, int], dict[str, Any]], ...]] = (
    ("sums", (1, 1), {"aggregate": "sum", "value": PRICE}),
    (
        "greatest",
        (2, 1),
        {"aggregate": "max", "value": PRICE, "late": "side_output", "group_by": ("place",)},
    ),
    (
        "least",
        (1, 1),
        {"aggregate": "min", "value": QUOTIENTS, "late": "refire", "group_by": ("text",)},
    ),
    (
        "numbers",
        (3, 2),
        {"aggregate": "count", "value": ONE, "emit": "change", "where": DELETED},
    ),
    (
        "lasts",
        (5, 1),
        {"aggregate": "last", "value": NUMBER, "emit": "change", "late": "side_output"},
    ),
    (
        "means",
        (1, 1),
        {
            "aggregate": "avg",
            "value": TEN_TIMES,
            "emit": "change",
            "late": "refire",
            "group_by": ("price", "is_deleted"),
        },
    ),
    (
        "kinds",
        (2, 2),
        {"aggregate": "unique", "value": PRICE, "late": "side_output", "where": FAILING},
    ),
    ("again", (2, 1), {"aggregate": "sum", "value": NUMBER, "late": "refire"}),
)


def windows_of(time: EventTime | None) -> tuple[Window, ...]:
    """The same windows for a stream with this time."""
    simplest = {name: values[0] for name, values in PARTS.items()}
    return tuple(
        _window(name, time, size, (1, HOUR), {**simplest, **parts}) for name, size, parts in _ALL
    )


WINDOWS: Final = windows_of(COUNTED)
