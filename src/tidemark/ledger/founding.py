"""What is decided once, when a ledger is made, and never again."""

from __future__ import annotations

import secrets

import msgspec

from tidemark.errors import SaltMismatch
from tidemark.ledger.sequencer import GENESIS_CHAIN


class Founding(msgspec.Struct, frozen=True):
    """The ledger's name, the salt of its keys, and the chain before its first commit."""

    ledger_id: str
    salt: str
    chain: bytes


def found_ledger(salt: str | None) -> Founding:
    """A new ledger. Without a configured salt it gets a random one, kept in the ledger itself."""
    return Founding(
        ledger_id=f"ledger-{secrets.token_hex(8)}",
        salt=salt if salt is not None else secrets.token_urlsafe(32),
        chain=GENESIS_CHAIN,
    )


def check_salt(configured: str | None, stored: str) -> None:
    """Another salt would give the same event another key, so starting with one is refused."""
    if configured is not None and configured != stored:
        raise SaltMismatch(
            "the configured ledger.salt is not the salt this ledger was made with",
            hint="Remove ledger.salt from the configuration, or set it back: it never changes.",
            field="ledger.salt",
        )
