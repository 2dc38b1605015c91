"""Sample traffic for a first look: what a few customers of a few tenants might do.

The shape is always the same (a seed, no wall clock in it); only the times are those of the moment.
Now and then an event is sent twice, and now and then one comes late.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Collection
from typing import Any, Final

from tidemark.client import AsyncClient, ClientError, Result
from tidemark.clock import MICROS_PER_SECOND, Clock, SystemClock
from tidemark.timestamps import format_timestamp

log = logging.getLogger(__name__)

USAGE: Final = "usage"
TRADES: Final = "trades"
DEMO_METRICS: Final = frozenset({"api_calls", "bytes", "seats"})
TRADE_FIELDS: Final = frozenset(
    {"trade_id", "account", "symbol", "side", "quantity", "price", "executed_at"}
)

EVENTS_PER_SECOND: Final = 20
_BATCH_EVENTS: Final = 10
_MAX_PAUSE_S: Final = 30.0
_STOP_GRACE_S: Final = 2.0
_SEED: Final = 7

_CUSTOMERS: Final = {
    "acme": ("c-anvil", "c-rocket", "c-magnet"),
    "globex": ("c-north", "c-south"),
    "initech": ("c-1", "c-2", "c-3", "c-4"),
}
_PATHS: Final = ("/v1/orders", "/v1/orders/{id}", "/v1/search", "/v1/export")
# In cents, where the walk of each price begins.
_PRICES: Final = {"AAPL": 22_650, "MSFT": 41_480, "NVDA": 13_820, "TSLA": 33_290}

_REPEAT_SHARE: Final = 0.04
_LATE_SHARE: Final = 0.01
_TRADE_SHARE: Final = 0.25
_JITTER_US: Final = 300_000
_LATE_US: Final = (3 * 3600 * MICROS_PER_SECOND, 72 * 3600 * MICROS_PER_SECOND)
_RECENT: Final = 50

Event = dict[str, Any]


class SampleTraffic:
    """Events one after the other. `began_us` tells the trades of one run from those of another."""

    def __init__(self, streams: Collection[str], began_us: int, seed: int = _SEED) -> None:
        self._streams = frozenset(streams)
        self._began_us = began_us
        self._random = random.Random(seed)
        self._recent: deque[Event] = deque(maxlen=_RECENT)
        self._prices = dict(_PRICES)
        self._trade_count = 0

    def next_event(self, now_us: int) -> Event:
        """An event of this moment, a repeat, or one that comes late."""
        chance = self._random.random()
        if self._recent and chance < _REPEAT_SHARE:
            return self._random.choice(self._recent)
        age_us = self._random.randrange(_JITTER_US)
        if chance < _REPEAT_SHARE + _LATE_SHARE:
            age_us = self._random.randrange(*_LATE_US)
        event = self._make(now_us - age_us)
        self._recent.append(event)
        return event

    def _make(self, ts_us: int) -> Event:
        is_trade = self._random.random() < _TRADE_SHARE
        if TRADES in self._streams and (is_trade or USAGE not in self._streams):
            return self._trade(ts_us)
        return self._usage(ts_us)

    def _usage(self, ts_us: int) -> Event:
        chance = self._random
        tenant = chance.choice(list(_CUSTOMERS))
        event = {
            "tenantId": tenant,
            "customerRef": chance.choice(_CUSTOMERS[tenant]),
            "ts": format_timestamp(ts_us),
        }
        [metric] = chance.choices(("api_calls", "bytes", "seats"), (70, 27, 3))
        if metric == "api_calls":
            [status] = chance.choices((200, 404, 500), (96, 3, 1))
            meta = {"path": chance.choice(_PATHS), "status": status}
            return {**event, "metric": metric, "quantity": "1", "meta": meta}
        if metric == "bytes":
            region = chance.choice(("eu-1", "us-1"))
            size = str(chance.randrange(200, 4_000_000))
            return {**event, "metric": metric, "quantity": size, "resourceId": region}
        return {**event, "metric": metric, "quantity": str(chance.randrange(5, 60))}

    def _trade(self, ts_us: int) -> Event:
        chance = self._random
        self._trade_count += 1
        symbol = chance.choice(list(self._prices))
        cents = max(100, self._prices[symbol] + chance.randrange(-25, 26))
        self._prices[symbol] = cents
        account = f"a-{chance.randrange(1, 9)}"
        time = format_timestamp(ts_us)
        return {
            "stream": TRADES,
            "tenantId": "acme",
            "occurredAt": time,
            "causalityKey": f"order-{self._began_us}-{(self._trade_count + 2) // 3}",
            "data": {
                "trade_id": f"t-{self._began_us}-{self._trade_count}",
                "account": account,
                "symbol": symbol,
                "side": chance.choice(("buy", "sell")),
                "quantity": str(chance.randrange(1, 40) * 5),
                "price": f"{cents // 100}.{cents % 100:02d}",
                "executed_at": time,
            },
        }


async def run_demo(
    base_url: str,
    *,
    streams: Collection[str] = (USAGE, TRADES),
    api_key: str | None = None,
    clock: Clock | None = None,
) -> None:
    """Send sample traffic to a server until cancelled. What goes wrong is logged, never raised."""
    clock = clock or SystemClock()
    traffic = SampleTraffic(streams, clock.wall_us())
    usual_pause_s = _BATCH_EVENTS / EVENTS_PER_SECOND
    pause_s = usual_pause_s
    async with AsyncClient(base_url, api_key=api_key, retry_for_s=0) as client:
        while True:
            batch = [traffic.next_event(clock.wall_us()) for _ in range(_BATCH_EVENTS)]
            fault = await _send(client, batch)
            if fault is None:
                pause_s = usual_pause_s
            else:
                # A server that stops takes nothing any more, just before it ends this as well.
                await asyncio.sleep(_STOP_GRACE_S)
                pause_s = min(pause_s * 2, _MAX_PAUSE_S)
                log.warning("sample traffic pauses for %.0f s: %s", pause_s, fault)
            await asyncio.sleep(pause_s)


async def _send(client: AsyncClient, batch: list[Event]) -> str | None:
    """Send a batch, and give what is wrong if not all of it is stored."""
    try:
        results = await client.send(batch)
    except ClientError as error:
        return error.message
    return _refusals(results)


def _refusals(results: list[Result]) -> str | None:
    codes = Counter(result.error.code for result in results if result.error is not None)
    if not codes:
        return None
    listed = ", ".join(f"{code} × {count}" for code, count in codes.most_common())
    return f"{codes.total()} of {len(results)} events were refused: {listed}"
