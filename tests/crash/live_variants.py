"""What is live, tampered with, to show that the torture would notice."""

from __future__ import annotations

from typing import Final

# Takes what a dead process was sending for sent.
SENDS_AT_MOST_ONCE: Final = """
from tidemark.live.triggers import outbox_programs
from tidemark.live.triggers.programs import ask

def release_all():
    yield ask(
        "UPDATE outbox SET status = 'delivered', due_at = NULL WHERE status = 'delivering'"
    )

outbox_programs.release_all = release_all
"""

# Follows from where it is and not from where the subscriber was.
RESUMES_TOO_LATE: Final = """
from tidemark.live.hub import Hub

async def catch_up(self, store, followed, wanted, watcher, reached):
    watcher.since = max(reached, followed.position)

Hub._catch_up = catch_up
"""
