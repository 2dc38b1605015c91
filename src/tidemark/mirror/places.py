"""Where events are in Kafka: a partition and an offset each, kept as two columns of numbers."""

from __future__ import annotations

import sys
from array import array
from typing import Final, NamedTuple

from tidemark.ledger.port import PlacedEvents

_PARTITION_BYTES: Final = 4
_OFFSET_BYTES: Final = 8


class Place(NamedTuple):
    partition: int
    offset: int


UNKNOWN: Final = Place(-1, -1)
"""Of an event that its topic had forgotten before its place was written down."""


class PlaceColumns(NamedTuple):
    """The places of events that follow one another."""

    partitions: array[int]
    offsets: array[int]

    @classmethod
    def unknown(cls, count: int) -> PlaceColumns:
        return cls(array("i", [UNKNOWN.partition]) * count, array("q", [UNKNOWN.offset]) * count)

    def put(self, index: int, place: Place) -> None:
        self.partitions[index], self.offsets[index] = place

    def packed(self) -> bytes:
        """Partitions and then offsets, the lowest byte first."""
        return _little(self.partitions) + _little(self.offsets)


def unpacked(places: bytes) -> PlaceColumns:
    count = len(places) // (_PARTITION_BYTES + _OFFSET_BYTES)
    columns = PlaceColumns(array("i"), array("q"))
    for column, content in zip(
        columns,
        (places[: count * _PARTITION_BYTES], places[count * _PARTITION_BYTES :]),
        strict=True,
    ):
        column.frombytes(content)
        if sys.byteorder == "big":
            column.byteswap()
    return columns


def place_in(placed: PlacedEvents, sequence: int) -> Place:
    """The place of one of these events."""
    index = sequence - placed.first_sequence
    columns = unpacked(placed.places)
    return Place(columns.partitions[index], columns.offsets[index])


def _little(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()
