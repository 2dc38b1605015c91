"""Event-time settings to run over generated ledgers."""

from __future__ import annotations

import random
from typing import Final

from hypothesis import strategies as st

from tests.generated.ledgers import DAY, HOUR
from tests.reference.eventtime import EventTime

TOLERANCES: Final = (0, 1, HOUR, 48 * HOUR)
FUTURE_BOUNDS: Final = (None, 0, HOUR, 10 * DAY)
IDLE_TIMES: Final = (None, 1, HOUR, 3 * DAY)


def event_times() -> st.SearchStrategy[EventTime]:
    """Settings from hypothesis."""
    return st.builds(
        EventTime,
        late_tolerance=st.sampled_from(TOLERANCES),
        future_bound=st.sampled_from(FUTURE_BOUNDS),
        idle_after=st.sampled_from(IDLE_TIMES),
    )


def random_event_time(seed: int) -> EventTime:
    """The settings of a seed."""
    source = random.Random(seed)
    return EventTime(
        late_tolerance=source.choice(TOLERANCES),
        future_bound=source.choice(FUTURE_BOUNDS),
        idle_after=source.choice(IDLE_TIMES),
    )
