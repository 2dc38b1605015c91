"""How many documents each caller may send: a bucket of tokens for every name."""

from __future__ import annotations

from collections import OrderedDict
from math import ceil
from typing import Final

import msgspec

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.live.graphql.problems import DocumentRefused, refusal

# A bucket that was not used for long is full, and a full one need not be kept.
MAX_BUCKETS: Final = 10_000


class RateLimits(msgspec.Struct, frozen=True):
    """So many documents a second in the long run, and `burst` at once."""

    documents_per_second: float = 50.0
    burst: int = 200


class DocumentRate:
    """Takes a token for each document."""

    def __init__(self, limits: RateLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def take(self, name: str) -> None:
        """Raises `DocumentRefused` with status 429 when the caller's bucket is empty."""
        now = self._clock.elapsed_us()
        burst = float(self._limits.burst)
        tokens, then = self._buckets.pop(name, (burst, now))
        tokens = min(
            burst, tokens + (now - then) * self._limits.documents_per_second / MICROS_PER_SECOND
        )
        if tokens < 1:
            self._buckets[name] = (tokens, now)
            raise self._refused(tokens)
        self._buckets[name] = (tokens - 1, now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)

    def _refused(self, tokens: float) -> DocumentRefused:
        limits = self._limits
        wait_s = ceil((1 - tokens) / limits.documents_per_second)
        error = refusal(
            f"more than {limits.documents_per_second:g} documents a second",
            code="rate_limited",
            hint=f"Wait {wait_s} s, or ask for more in one document.",
            status=429,
        )
        error.retry_after_s = wait_s
        return error
