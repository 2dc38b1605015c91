"""The bodies of requests, within the limits of the server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SERVER_MAX_EVENTS = 1000
SERVER_MAX_BYTES = 5 * 1024 * 1024

_OPENING = b'{"events":['
_CLOSING = b"]}"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one request may hold."""

    max_events: int
    max_bytes: int

    def admits(self, event_count: int, event_bytes: int) -> bool:
        """Whether so many events of so many bytes together make one request."""
        return (
            event_count <= self.max_events
            and request_bytes(event_count, event_bytes) <= self.max_bytes
        )


def request_bytes(event_count: int, event_bytes: int) -> int:
    """The length of `request_body` for events of this number and total length."""
    return len(_OPENING) + len(_CLOSING) + event_bytes + max(0, event_count - 1)


def request_body(events: Sequence[bytes]) -> bytes:
    """One request for these events, in this order."""
    return _OPENING + b",".join(events) + _CLOSING


def split(events: Sequence[bytes], limits: Limits) -> Iterator[Sequence[bytes]]:
    """Cut events into as few requests as order and limits allow. Each event alone must fit."""
    first = 0
    size = 0
    for index, event in enumerate(events):
        if index > first and not limits.admits(index - first + 1, size + len(event)):
            yield events[first:index]
            first, size = index, 0
        size += len(event)
    if first < len(events):
        yield events[first:]
