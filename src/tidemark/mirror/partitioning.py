"""Which partition a message goes to: all of a run to one, the others in turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import count
from typing import Final, TypeVar

T = TypeVar("T")

_RUNS_KEPT: Final = 100_000
_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_BITS_32: Final = 0xFFFFFFFF


def chosen(
    first_sequence: int, causality_keys: Iterable[str | None], partitions: Iterable[Sequence[T]]
) -> list[T]:
    """For events that follow one another, each one's own of the partitions there are for it."""
    return [
        of_stream[(sequence if key is None else _hash_of(key)) % len(of_stream)]
        for sequence, key, of_stream in zip(
            count(first_sequence), causality_keys, partitions, strict=False
        )
    ]


def in_turn(first_sequence: int, count: int, partitions: Sequence[T]) -> list[T]:
    """The same for so many events of one stream that belong to no run, in no time."""
    begin = first_sequence % len(partitions)
    turn = [*partitions[begin:], *partitions[:begin]]
    return (turn * (count // len(turn) + 1))[:count]


@lru_cache(maxsize=_RUNS_KEPT)
def _hash_of(key: str) -> int:
    """What Java's clients divide by the number of partitions."""
    return murmur2(key.encode()) & 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """The hash of Kafka's clients, as 32 bits without a sign."""
    length = len(data)
    found = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        part = int.from_bytes(data[start : start + 4], "little") * _FACTOR & _BITS_32
        part ^= part >> 24
        found = (found * _FACTOR & _BITS_32) ^ (part * _FACTOR & _BITS_32)
    rest = data[whole:]
    if rest:
        found = (found ^ int.from_bytes(rest, "little")) * _FACTOR & _BITS_32
    found = (found ^ (found >> 13)) * _FACTOR & _BITS_32
    return found ^ (found >> 15)
