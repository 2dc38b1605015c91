"""A process that appends overlapping batches: `python -m tests.contract.appender URL SEED PLAN`.

The plan is JSON: how many keys there are, and how many batches of how many of them to send. Every
key has one content, so whoever sends it first, all others send the same event.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys

import msgspec

from tests.contract.events import draft, request
from tests.contract.stores import LedgerHome
from tidemark.errors import TidemarkError
from tidemark.ingress.drafts import Outcome, no_corrections
from tidemark.ledger.group_commit import GroupCommitter

SENDERS = 3


class Plan(msgspec.Struct, frozen=True):
    """What one process does."""

    keys: int
    batches: int
    batch_events: int


class Unobserved:
    def committed(self, accepted: int, last_sequence: int, seconds: float) -> None:
        return None

    def failed(self, error: TidemarkError) -> None:
        return None


async def send_batches(
    committer: GroupCommitter, plan: Plan, randomness: random.Random
) -> list[Outcome]:
    outcomes = []
    for _ in range(plan.batches):
        numbers = randomness.sample(range(plan.keys), plan.batch_events)
        entries = [draft(f"key-{number}", f"{number}") for number in numbers]
        outcomes += await committer.append(request(*entries))
    return outcomes


async def main(url: str, seed: int, plan: Plan) -> None:
    home = LedgerHome(url)
    ledger = await home.open()
    committer = GroupCommitter(
        ledger, no_corrections, Unobserved(), max_group_events=10_000, max_queued_events=20_000
    )
    committer.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    sent = await asyncio.gather(
        *(
            send_batches(committer, plan, random.Random(f"{seed}-{sender}"))
            for sender in range(SENDERS)
        )
    )
    await committer.close()
    await home.close()
    said = [
        (outcome.status, outcome.idempotency_key, outcome.ingress_sequence)
        for outcomes in sent
        for outcome in outcomes
    ]
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), msgspec.json.decode(sys.argv[3], type=Plan)))
