"""From the commits of a view to what each subscriber must hear: pure, without I/O and clock.

`changes` reads rows of the log as far as needed, `conditions`, `ranges` and `index` find the
filters that a change matters to, `transitions` says what it means to them, `source` shares all of
that among subscribers, and `backlog` holds what one of them has not been sent yet.
"""

from tidemark.live.engine.backlog import Backlog, BacklogLimits, Progress
from tidemark.live.engine.changes import ChangedRow
from tidemark.live.engine.source import Counters, Membership, Source, Subscriber
from tidemark.live.engine.transitions import Item, Projection

__all__ = [
    "Backlog",
    "BacklogLimits",
    "ChangedRow",
    "Counters",
    "Item",
    "Membership",
    "Progress",
    "Projection",
    "Source",
    "Subscriber",
]
