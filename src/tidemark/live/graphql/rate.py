"""How many documents each caller may send: a bucket of tokens for every name.

A document that is known costs one token. To read one that is not takes time in proportion to its
length, so it costs more.
"""

from __future__ import annotations

from collections import OrderedDict
from math import ceil
from typing import Final

import msgspec

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.live.graphql.problems import DocumentRefused, refusal

# A bucket that was not used for long is full, and a full one need not be kept.
MAX_BUCKETS: Final = 10_000
BYTES_PER_TOKEN: Final = 4_096


class RateLimits(msgspec.Struct, frozen=True):
    """So many documents a second in the long run, and `burst` at once."""

    documents_per_second: float = 50.0
    burst: int = 200


def price_of_reading(size: int) -> int:
    """The tokens for a document of so many bytes that has to be parsed and validated."""
    return 1 + size // BYTES_PER_TOKEN


class DocumentRate:
    """Takes tokens for documents."""

    def __init__(self, limits: RateLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def take(self, name: str, price: int = 1) -> None:
        """Raises `DocumentRefused` with status 429 when there is too little in the bucket.

        No price is higher than a bucket that is full.
        """
        now = self._clock.elapsed_us()
        burst = float(self._limits.burst)
        tokens, then = self._buckets.pop(name, (burst, now))
        tokens = min(
            burst, tokens + (now - then) * self._limits.documents_per_second / MICROS_PER_SECOND
        )
        wanted = min(float(price), burst)
        if tokens < wanted:
            self._buckets[name] = (tokens, now)
            raise self._refused(wanted - tokens)
        self._buckets[name] = (tokens - wanted, now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)

    def _refused(self, missing: float) -> DocumentRefused:
        limits = self._limits
        wait_s = ceil(missing / limits.documents_per_second)
        error = refusal(
            f"more than {limits.documents_per_second:g} documents a second",
            code="rate_limited",
            hint=f"Wait {wait_s} s. Ask for more in one document, and pass values as variables: a"
            " document that was sent before costs less.",
            status=429,
        )
        error.retry_after_s = wait_s
        return error
