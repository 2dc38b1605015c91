"""A process that imports a history, to be killed: `python -m … URL FILE WORK_DIR`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from tests.contract.histories import SALT, run_import
from tests.contract.stores import LedgerHome
from tidemark.event_files import form_of, open_events, read_events

# So few that a short history takes several transactions.
EVENTS_TOGETHER: Final = 8


async def main(url: str, file: str, work_dir: str) -> None:
    home = LedgerHome(url)
    ledger = await home.open(salt=SALT)
    with open_events(file) as stream:
        lines = read_events(stream, form_of(file), file=file, history=True)
        await run_import(ledger, lines, Path(work_dir), events_together=EVENTS_TOGETHER)
    await home.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
