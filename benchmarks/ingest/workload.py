"""The events that are sent, and the requests they are sent in.

Everything is a function of the number of an event, so that any two runs send the same bytes and a
ledger is filled with the same distribution that it is measured with.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

TENANTS: Final = 5
METRICS: Final = ("api_calls", "bytes", "seats")
CUSTOMERS: Final = 10_007
STEP_US: Final = 1_009
EPOCH: Final = datetime(2025, 1, 1, tzinfo=UTC)
MICROS_PER_SECOND: Final = 1_000_000

# Prime to CUSTOMERS, so that neighbours in time are strangers in every index but the first.
_STRIDE: Final = 7_919

_HEAD: Final = (
    b"POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


class Shape(msgspec.Struct, frozen=True):
    """How many events a request holds and how many connections send such requests at once."""

    batch: int
    connections: int

    def __str__(self) -> str:
        return f"{self.batch} × {self.connections}"

    @property
    def round_events(self) -> int:
        """The events under way when every connection has sent one request."""
        return self.batch * self.connections


SHAPES: Final = (Shape(1, 64), Shape(100, 16), Shape(1000, 8))


class Workload(msgspec.Struct, frozen=True):
    """So many events from number `first` on. With `overlap` each key is sent twice.

    `padding` makes every event larger by that many bytes of `meta`.
    """

    shape: Shape
    events: int
    first: int = 0
    overlap: bool = False
    padding: int = 0

    @property
    def keys(self) -> int:
        """How many events the ledger must have accepted in the end."""
        return self.events // 2 if self.overlap else self.events


def whole_rounds(shape: Shape, events: int) -> int:
    """About so many events, and at least one round."""
    return max(1, round(events / shape.round_events)) * shape.round_events


def requests(workload: Workload) -> list[bytes]:
    """The requests as they go onto the wire, in the order in which they are to be sent."""
    batches = _overlapping(workload) if workload.overlap else _apart(workload)
    return [_request(batch) for batch in batches]


def body(first: int, count: int) -> bytes:
    """The body of one request."""
    return _body(list(events(first, count)))


def events(first: int, count: int, padding: int = 0) -> Iterator[bytes]:
    """Usage events without a key of their own, each another one by its time.

    Every second names a resource, every fourth carries `meta`, every tenth a causality key.
    """
    second = -1
    prefix = ""
    filler = f',"filler":"{"x" * padding}"' if padding else ""
    for number in range(first, first + count):
        at_second, micros = divmod(number * STEP_US, MICROS_PER_SECOND)
        if at_second != second:
            second = at_second
            prefix = (EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")
        customer = number * _STRIDE % CUSTOMERS
        optional = f'"resourceId":"server-{customer % 97}",' if number % 2 else ""
        if filler or number % 4 == 0:
            optional += f'"meta":{{"region":"eu-west-{number % 3}","tier":"gold"{filler}}},'
        if number % 10 == 0:
            optional += f'"causalityKey":"run-{number // 1000}",'
        yield (
            f'{{"tenantId":"tenant-{number % TENANTS}","metric":"{METRICS[number % 3]}",'
            f'"customerRef":"customer-{customer:05d}",{optional}'
            f'"ts":"{prefix}.{micros:06d}Z","quantity":"{number % 1000}.{number % 10}"}}'
        ).encode()


def _apart(workload: Workload) -> Iterator[list[bytes]]:
    batch = workload.shape.batch
    for start in range(workload.first, workload.first + workload.events, batch):
        yield list(events(start, batch, workload.padding))


def _overlapping(workload: Workload) -> Iterator[list[bytes]]:
    """Rounds in which half of the connections send what the other half sends, all shuffled.

    The two copies of a key are always in two requests, and these are under way at about the same
    time; no request repeats a key.
    """
    shape = workload.shape
    rng = random.Random(workload.first)
    window = shape.round_events // 2
    for start in range(workload.first, workload.first + workload.keys, window):
        once = list(events(start, window, workload.padding))
        again = once.copy()
        rng.shuffle(once)
        rng.shuffle(again)
        batches = [
            copy[at : at + shape.batch]
            for copy in (once, again)
            for at in range(0, window, shape.batch)
        ]
        rng.shuffle(batches)
        yield from batches


def _body(batch: list[bytes]) -> bytes:
    return b'{"events":[%b]}' % b",".join(batch)


def _request(batch: list[bytes]) -> bytes:
    content = _body(batch)
    return _HEAD % len(content) + content
