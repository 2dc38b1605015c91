"""A process that leads until it is killed."""

from __future__ import annotations

import asyncio
import sys

from tests.contract.triggers_home import TriggersHome


async def main(url: str) -> None:
    triggers = await TriggersHome(url).open()
    async with triggers.lead():
        sys.stdout.write("leads\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
