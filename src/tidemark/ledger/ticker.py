"""Writes "time passed" into the ledger while it is silent and some stream needs the clock."""

from __future__ import annotations

import asyncio
import logging

from tidemark.clock import MICROS_PER_SECOND
from tidemark.errors import TidemarkError
from tidemark.ledger.port import LedgerStore

log = logging.getLogger(__name__)


async def run_ticker(store: LedgerStore, tick_us: int) -> None:
    """Until cancelled. Several processes may tick: the store writes only after real silence."""
    while True:
        await asyncio.sleep(tick_us / MICROS_PER_SECOND)
        try:
            await store.tick(tick_us)
        except TidemarkError as error:
            log.warning("no tick was written: %s", error)
