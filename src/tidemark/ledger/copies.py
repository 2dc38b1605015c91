"""What the ledger is told of its copies: how far each is, and where the mirror has put events.

None of it is truth. It can be found out anew from the copies themselves, and is kept here because
whoever wants to know it can reach the ledger.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tidemark.errors import TidemarkError
from tidemark.ledger.port import CopyState, PlacedEvents
from tidemark.ledger.reading import Row


class LedgerCopies(ABC):
    """What both dialects do alike."""

    @abstractmethod
    async def _fetch(self, sql: str, *values: object) -> list[Row]: ...

    @abstractmethod
    async def _execute(self, sql: str, *values: object) -> None:
        """Run a statement in a transaction of its own; its placeholders are `?`."""

    async def tell_copy(self, copy: CopyState) -> None:
        error = copy.error
        texts = (None, None, None) if error is None else (error.code, error.message, error.hint)
        await self._execute(
            "INSERT INTO copies (name, last_sequence, received_at, told_at, code, message, hint)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
            " last_sequence = excluded.last_sequence, received_at = excluded.received_at,"
            " told_at = excluded.told_at, code = excluded.code, message = excluded.message,"
            " hint = excluded.hint",
            *(copy.name, copy.last_sequence, copy.received_at, copy.told_at, *texts),
        )

    async def copies(self) -> dict[str, CopyState]:
        rows = await self._fetch(
            "SELECT name, last_sequence, received_at, told_at, code, message, hint FROM copies"
            " ORDER BY name"
        )
        return {
            name: CopyState(name, last_sequence, received_at, told_at, _error(*told))
            for name, last_sequence, received_at, told_at, *told in rows
        }

    async def place_events(self, placed: PlacedEvents) -> None:
        await self._execute(
            "INSERT INTO mirrored (first_sequence, last_sequence, places) VALUES (?, ?, ?)"
            " ON CONFLICT (first_sequence) DO UPDATE SET"
            " last_sequence = excluded.last_sequence, places = excluded.places"
            # What comes late, of a mirror that another has taken over from, knows of no more.
            " WHERE excluded.last_sequence >= mirrored.last_sequence",
            *(placed.first_sequence, placed.last_sequence, placed.places),
        )

    async def places_of(self, sequence: int) -> PlacedEvents | None:
        rows = await self._fetch(
            "SELECT first_sequence, last_sequence, places FROM mirrored"
            " WHERE first_sequence <= ? ORDER BY first_sequence DESC LIMIT 1",
            sequence,
        )
        if not rows or rows[0][1] < sequence:
            return None
        return PlacedEvents(rows[0][0], rows[0][1], bytes(rows[0][2]))

    async def placed_upto(self) -> int:
        rows = await self._fetch("SELECT coalesce(max(last_sequence), 0) FROM mirrored")
        return int(rows[0][0])

    async def forget_places(self, after: int) -> None:
        await self._execute("DELETE FROM mirrored WHERE last_sequence > ?", after)


def _error(code: str | None, message: str | None, hint: str | None) -> TidemarkError | None:
    if code is None:
        return None
    return TidemarkError(message or "", hint=hint or "", code=code)
