"""What a ledger is told of its copies: both stores keep it, and give it back."""

from __future__ import annotations

from tests.contract.stores import LedgerHome
from tidemark.errors import TidemarkError
from tidemark.ledger.port import CopyState, PlacedEvents


async def test_what_was_said_last_of_each_copy_is_known(home: LedgerHome) -> None:
    ledger = await home.open()
    assert await ledger.copies() == {}
    error = TidemarkError("it is away", hint="look", code="mirror_unavailable")
    await ledger.tell_copy(CopyState("mirror", 7, 70, 700, error))
    await ledger.tell_copy(CopyState("landing.parquet", 5, 50, 500))
    found = (await (await home.open()).copies())["mirror"]
    assert (found.last_sequence, found.received_at, found.told_at) == (7, 70, 700)
    assert found.error is not None
    assert found.error.as_dict() == error.as_dict()
    await ledger.tell_copy(CopyState("mirror", 8, 80, 800))
    assert await ledger.copies() == {
        "landing.parquet": CopyState("landing.parquet", 5, 50, 500),
        "mirror": CopyState("mirror", 8, 80, 800),
    }


async def test_events_are_found_among_those_that_were_placed_with_them(home: LedgerHome) -> None:
    ledger = await home.open()
    assert await ledger.placed_upto() == 0
    pages = [PlacedEvents(1, 3, b"abc"), PlacedEvents(4, 4, b"d"), PlacedEvents(5, 9, b"\x00\xff")]
    for page in pages:
        await ledger.place_events(page)
    assert await ledger.placed_upto() == 9
    assert [await ledger.places_of(n) for n in (1, 3, 4, 5, 9)] == [
        pages[0], pages[0], pages[1], pages[2], pages[2],
    ]  # fmt: skip
    assert await ledger.places_of(0) is None
    assert await ledger.places_of(10) is None
    # One that comes late must not hide what is known since.
    await ledger.place_events(PlacedEvents(5, 6, b"late"))
    assert await ledger.places_of(7) == pages[2]
    assert await ledger.placed_upto() == 9
    pages[2] = PlacedEvents(5, 10, b"again")
    await ledger.place_events(pages[2])
    assert await ledger.places_of(10) == pages[2]
    await ledger.forget_places(4)
    assert await ledger.places_of(5) is None
    assert await ledger.places_of(4) == pages[1]
    assert await ledger.placed_upto() == 4
