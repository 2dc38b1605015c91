"""What the mirror reads of a ledger at once: whole commits, and no more than fits."""

from __future__ import annotations

import json
import random

import pytest

from tests.contract.events import draft
from tests.contract.stores import LedgerHome, all_events, append
from tidemark.errors import LedgerUnavailable
from tidemark.ledger import reading as ledger_reading
from tidemark.ledger.port import CommitRow
from tidemark.mirror import following
from tidemark.mirror.following import CommitReader


@pytest.mark.parametrize(
    ("most_events", "most_bytes", "most_text_bytes"),
    [(10, 1 << 20, 1 << 20), (1_000, 3_000, 1 << 20), (5, 100, 1 << 20), (1_000, 6_000, 5_000)],
)
async def test_commits_are_read_whole_and_no_more_at_once_than_is_wanted(
    most_events: int,
    most_bytes: int,
    most_text_bytes: int,
    home: LedgerHome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "MOST_EVENTS", most_events)
    monkeypatch.setattr(following, "MOST_BYTES", most_bytes)
    monkeypatch.setattr(following, "PAGE_BYTES", most_bytes // 2)
    monkeypatch.setattr(following, "FIRST_PAGE_EVENTS", 2)
    monkeypatch.setattr(following, "FIRST_COMMITS", 2)
    monkeypatch.setattr(ledger_reading, "MOST_TEXT_BYTES", most_text_bytes)
    ledger = await home.open()
    source = random.Random(most_bytes)
    for number in range(30):
        # Long ones and short ones, in commits of any size; ticks between.
        lengths = [source.choice([1, 1, 2_000]) for _ in range(source.choice([1, 2, 13]))]
        contents = [f'{{"a":"{"x" * length}"}}' for length in lengths]
        await append(
            ledger, *(draft(f"{number}-{n}", data=text) for n, text in enumerate(contents))
        )
        if source.random() < 0.2:
            await ledger.tick(0)
    commits = await ledger.read_commits(0, 1_000)
    rows = await all_events(ledger)
    reader, read, chunks = CommitReader(ledger), list[CommitRow](), 0
    while (found := await reader.after(read[-1].received_at if read else 0)).commits:
        chunk = found.chunk({})
        first, last = chunk.commits[0].first_sequence, chunk.commits[-1].last_sequence
        # The last page was read while there was room for it, or the first commit was not whole.
        before = b"\n".join(text.csv.strip() for text in found.texts[:-1])
        end_of_first = chunk.commits[0].last_sequence - first + 1
        assert len(before) < most_bytes or len(before.split(b"\n")) < end_of_first
        assert all(len(text.csv) <= most_text_bytes for text in found.texts)
        assert chunk.events.first_sequence == first
        assert [json.loads(value)["idempotencyKey"] for value in chunk.events.values] == [
            row.idempotency_key for row in rows[first - 1 : last]
        ]
        # One commit is sent at once, however large it is.
        assert len(chunk.commits) == 1 or last - first < most_events
        chunks += 1
        read += chunk.commits
    assert read == commits
    assert chunks > 5


async def test_an_event_that_cannot_be_read_is_named(
    home: LedgerHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await home.open()
    await append(ledger, draft("small"), draft("large", data=f'{{"a":"{"x" * 90_000}"}}'))
    monkeypatch.setattr(ledger_reading, "MOST_TEXT_BYTES", 80_000)
    with pytest.raises(LedgerUnavailable, match="the event 2 is too large"):
        await CommitReader(ledger).after(0)
