"""A process that delivers an outbox until nothing is left, unless it is killed on the way."""

from __future__ import annotations

import asyncio
import sys

from tests.contract.triggers_home import TriggersHome
from tidemark.clock import SystemClock
from tidemark.live.webhooks.addresses import Allowance
from tidemark.live.webhooks.delivery import Deliverer
from tidemark.live.webhooks.lanes import DeliveryLimits
from tidemark.live.webhooks.schedule import RetrySchedule
from tidemark.live.webhooks.sender import Sender
from tidemark.live.webhooks.signing import Signer

SECRET = "whsec_" + "QUJD" * 8
# Small, so that a point is passed often.
LIMITS = DeliveryLimits(batch=10, held=40)
SCHEDULE = RetrySchedule(first_delay_us=5_000, max_delay_us=50_000)


async def main(url: str) -> None:
    home = TriggersHome(url)
    triggers = await home.open()
    clock = SystemClock()
    async with (
        triggers.lead(),
        Sender(Signer([SECRET]), clock, allow=Allowance(["127.0.0.0/8"]), timeout_s=5) as sender,
    ):
        deliverer = Deliverer(triggers, sender, clock, SCHEDULE, LIMITS)
        running = asyncio.create_task(deliverer.run())
        while not running.done() and await triggers.next_due() is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        deliverer.stop()
        await running
    await home.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
