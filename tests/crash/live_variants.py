"""What is live, tampered with, to show that the torture would notice."""

from __future__ import annotations

from typing import Final

# Writes down that an event was delivered when it is about to be sent, and not when it was taken.
SENDS_AT_MOST_ONCE: Final = """
from tidemark.live.triggers import outbox_programs
from tidemark.live.triggers.programs import for_each

honest_claim = outbox_programs.claim

def claim(*arguments):
    claimed = yield from honest_claim(*arguments)
    yield for_each(
        "UPDATE outbox SET status = 'delivered', due_at = NULL WHERE id = ?",
        [(delivery.outbox_id,) for delivery in claimed],
    )
    return claimed

outbox_programs.claim = claim
"""

# Follows from where it is and not from where the subscriber was.
RESUMES_TOO_LATE: Final = """
from tidemark.live.hub import Hub

async def catch_up(self, store, followed, wanted, watcher, reached):
    watcher.since = max(reached, followed.position)

Hub._catch_up = catch_up
"""
