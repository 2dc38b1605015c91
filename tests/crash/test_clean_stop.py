"""SIGTERM under load: what was taken is finished and answered, the rest is for the next process."""

from __future__ import annotations

import asyncio
import random
import signal

from tests.crash.audit import assert_complete, assert_sound
from tests.crash.conftest import MakeServer
from tests.crash.senders import Publishers, traffic


async def test_a_process_told_to_stop_under_load_answers_everything_that_it_stores(
    ledger_url: str, server_on: MakeServer
) -> None:
    server = server_on(ledger_url).start()
    planned = traffic(random.Random(5), senders=12, requests=25, largest=60)
    async with Publishers(planned, [server.base_url]) as publishers:
        await publishers.answers(60)
        code = await asyncio.to_thread(server.stop)
        # The signal is passed on when all is done; the command line makes an exit code of 0 of it.
        assert code in (0, -signal.SIGTERM), server.log_tail()
        await asyncio.sleep(0.1)  # for the last answers to be read
        history = await assert_sound(ledger_url, publishers)
        acknowledged = {said.mark for said in publishers.acknowledgements}
        unanswered = {event.mark for event in history.events} - acknowledged
        assert unanswered == set(), "stored, and its sender was not told"
        await asyncio.to_thread(server.start)
        await publishers.finished()
        await assert_complete(ledger_url, publishers)
    # While nobody was there; no connection broke with a request on it.
    assert set(publishers.disconnections) == {"ClientConnectorError"}
    assert "Traceback" not in server.log_text()
