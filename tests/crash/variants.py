"""Tidemark processes that were tampered with, to show what happens when one misbehaves."""

from __future__ import annotations

from typing import Any, Final

from tests.services.tidemark_server import PROGRAM, TidemarkServer

# Commits only every fifth group, as if somebody had found a way to be faster: what is acknowledged
# in between is not durable. The first is the founding.
LAZY_COMMITS: Final = """
import contextlib, itertools
from tidemark.ledger import sqlite

groups = itertools.count(1)

@contextlib.contextmanager
def transaction(connection):
    if not connection.in_transaction:
        connection.execute("BEGIN IMMEDIATE")
    yield
    number = next(groups)
    if number == 1 or number % 5 == 0:
        connection.execute("COMMIT")

sqlite.transaction = transaction
"""

# The limits are 20 s for a hung process that holds the lock and 30 s for a database that does not
# answer; a test is less patient, and that is all.
IMPATIENT: Final = """
from tidemark.ledger import postgres

postgres.HUNG_AFTER_S = 1
postgres.COMMAND_TIMEOUT_S = 2
postgres.CONNECT_TIMEOUT_S = 2
for settings in (postgres.SESSION_SETTINGS, postgres.WRITER_SETTINGS):
    settings.update(lock_timeout="1s", idle_in_transaction_session_timeout="1s")
"""

# Hangs, as under a debugger or on a frozen machine, with the lock in its hands.
_HANG: Final = """
import itertools, os, signal
from tidemark.ledger import postgres

passages = itertools.count(1)

def hang_at_the_fourth():
    if next(passages) == 4:
        os.kill(os.getpid(), signal.SIGSTOP)
"""
HANGS_BETWEEN_STATEMENTS: Final = f"""
{IMPATIENT}{_HANG}
place = postgres.place

def hanging_place(*arguments):
    hang_at_the_fourth()
    return place(*arguments)

postgres.place = hanging_place
"""
HANGS_INSIDE_A_COPY: Final = f"""
{IMPATIENT}{_HANG}
event_rows = postgres.event_rows

def hanging_rows(*arguments):
    for number, row in enumerate(event_rows(*arguments)):
        if number == 1:
            hang_at_the_fourth()
        yield row

postgres.event_rows = hanging_rows
"""


class VariantServer(TidemarkServer):
    """A Tidemark that runs the text of `variant` before it loads what it serves with."""

    def __init__(self, variant: str, **options: Any) -> None:
        super().__init__(forked=not variant, **options)
        self._variant = variant

    def _program(self) -> str:
        return self._variant + PROGRAM
