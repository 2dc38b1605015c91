"""A process that opens a ledger when told to, and appends one event: `python -m … URL`."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from tests.contract.events import draft
from tests.contract.stores import LedgerHome, append


async def main(url: str) -> None:
    home = LedgerHome(url)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    ledger = await home.open()
    outcomes = await append(ledger, draft(f"from-{os.getpid()}"))
    said = {
        "ledger_id": ledger.ledger_id,
        "salt": ledger.salt,
        "sequences": [outcome.ingress_sequence for outcome in outcomes],
    }
    await home.close()
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
