"""What is delivered: bytes that are made once, when the event is enqueued, and never again.

A retry and a redelivery send the very same bytes, so their signature means the same.
"""

from __future__ import annotations

import msgspec

from tidemark.live.triggers.transitions import Transition
from tidemark.timestamps import format_timestamp

_encode = msgspec.json.Encoder().encode


def payload(event_id: str, trigger: str, transition: Transition, enqueued_at: int) -> bytes:
    """The JSON of one event.

    `timestamp` is when it was enqueued and the only member that a replay may show differently;
    `source_timestamp` is that of the commit, as digits; `data` is the row as readers see it.
    """
    return _encode(
        {
            "event_id": event_id,
            "event_type": transition.event_type,
            "trigger_name": trigger,
            "timestamp": format_timestamp(enqueued_at),
            "source_timestamp": str(transition.received_at),
            "data": msgspec.Raw(transition.row.encode()),
        }
    )
