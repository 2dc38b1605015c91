"""Holds what publishers were told against what the ledger has."""

from __future__ import annotations

from tests.crash.history import History, violations
from tests.crash.reading import read_history
from tests.crash.senders import Publishers


async def faults(
    ledger_url: str, publishers: Publishers, *, all_answered: bool = False
) -> tuple[list[str], History]:
    """Every broken rule, and the history that was judged. Senders may be at work meanwhile."""
    # In this order: what was acknowledged before the reading must be in it, and what is in it must
    # have been sent before the comparison.
    acknowledged = list(publishers.acknowledgements)
    history = await read_history(ledger_url)
    found = violations(history, acknowledged, sent=publishers.sent, all_answered=all_answered)
    return found, history


async def assert_sound(ledger_url: str, publishers: Publishers) -> History:
    """Everything that was acknowledged so far is there, in its place."""
    found, history = await faults(ledger_url, publishers)
    assert found == []
    return history


async def assert_complete(ledger_url: str, publishers: Publishers) -> History:
    """All was answered, all is there once, and who asks again is told the same."""
    found, history = await faults(ledger_url, publishers, all_answered=True)
    assert found == []
    await publishers.ask_again()
    found, again = await faults(ledger_url, publishers, all_answered=True)
    assert found == []
    assert again == history, "asking again must change nothing"
    return history
