"""Events spelt out are what the API shows of them, byte by byte, from either store."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from tests.contract.events import START, draft
from tests.contract.stores import LedgerHome, all_events, append
from tidemark.errors import LedgerDamaged
from tidemark.ingress.drafts import Draft
from tidemark.ledger import postgres, reading, sqlite
from tidemark.ledger.event_json import event_view
from tidemark.ledger.port import LedgerStore, TextTooLarge
from tidemark.ledger.sortable import from_sortable
from tidemark.ledger.spelling import SpeltEvents, spelt

TEXTS = (
    *("a", "", "ä €", "\U0001f600", 'say "x"', "back\\slash", "tab\tline\nfeed\rback\bform\f"),
    *("\x01\x1f\x7f", "\u2028", "</script>", "x" * 300),
)
QUANTITIES = ("0", "1", "-1", "10", "100", "0.5", "-0.000000001", "9999999999999999999.999999999")
QUANTITIES += ("3.5", "120.050", "-12.5")
CONTENTS = ("{}", '{"a":1.10,"b":"\\u0001"}', '{"ä":["}","{"]}', '"text"', "[1]", "null", "5")
CONTENTS += ("nonsense", "", '{"a":', "{x")


def random_draft(source: random.Random, name: str) -> Draft:
    def maybe(values: Any) -> Any:
        return source.choice([None, source.choice(values)])

    is_usage = source.random() < 0.5
    return draft(
        name + source.choice(TEXTS).replace("\0", ""),
        tenant=source.choice(TEXTS[:-1]) or "t",
        stream=source.choice(["usage", "com.acme.order-placed"]),
        metric=source.choice(TEXTS) if is_usage else None,
        customer_ref=source.choice(TEXTS) if is_usage else None,
        quantity=source.choice(QUANTITIES) if is_usage else None,
        resource_id=maybe(TEXTS),
        data=maybe(CONTENTS),
        control=maybe(["void", "amend", "adjust"]),
        target_key=maybe(TEXTS),
        causality_key=maybe(TEXTS),
        source=maybe(TEXTS),
        source_id=maybe(TEXTS),
        occurred_at=source.choice(
            [0, 1, 999_999, START, START + 123_456, 9_214_646_399_999_999, 9_007_199_254_740_993]
        ),
    )


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


async def read(ledger: LedgerStore, after: int, upto: int) -> SpeltEvents:
    return spelt([await ledger.read_text(after, upto)], after, upto)


@pytest.mark.parametrize("seed", range(3))
async def test_events_are_spelt_as_the_api_shows_them(home: LedgerHome, seed: int) -> None:
    ledger = await home.open()
    source = random.Random(seed)
    await append(ledger, *(random_draft(source, f"{n}-") for n in range(150)))
    rows = await all_events(ledger)
    events = await read(ledger, 0, len(rows))
    assert events.first_sequence == 1
    assert events.streams == [row.stream for row in rows]
    assert events.causality_keys == [row.causality_key for row in rows]
    for row, value in zip(rows, events.values, strict=True):
        if row.data is None or is_json(row.data):
            assert value == msgspec.json.encode(event_view(row))
        else:
            # Nobody can send it, and the message is JSON all the same.
            assert json.loads(value)["dataText"] == row.data
    # What is around an event does not change how it is spelt.
    for sequence in range(1, len(rows) + 1):
        alone = await read(ledger, sequence - 1, sequence)
        assert alone.values == events.values[sequence - 1 : sequence]
    assert await read(ledger, 5, 7) == SpeltEvents(6, *(column[5:7] for column in events[1:]))
    assert await read(ledger, 7, 7) == SpeltEvents(8, [], [], [])


async def test_events_that_are_not_there_are_missed(home: LedgerHome) -> None:
    ledger = await home.open()
    await append(ledger, *(draft(f"{n}") for n in range(3)))
    with pytest.raises(LedgerDamaged, match="all events from 4 to 5"):
        await read(ledger, 0, 5)
    with pytest.raises(LedgerDamaged, match="all events from 2 to 5"):
        spelt([await ledger.read_text(0, 1), await ledger.read_text(2, 3)], 0, 5)


@pytest.mark.parametrize(
    ("column", "text", "why"),
    [
        ("ingress_sequence", b"three", "three"),
        ("occurred_at", b"0\xff1", "occurred_at has 2 texts for 1 events"),
        ("occurred_at", b"9214646400000000", "a time is out of range"),
        ("received_at", b"-1", "a time is out of range"),
        ("tenant_id", b"\xc3", "UTF8"),
        # What would say that there is none, where there is always one.
        ("stream", b"\xfe", "UTF8"),
        ("content_hash", b"", "content_hash has 0 texts for 1 events"),
        ("metric", b"a\xfeb", "UTF8"),
        ("quantity", b"junk", "'junk' is no quantity"),
        ("quantity", b"", "'' is no quantity"),
    ],
)
async def test_what_nobody_could_send_is_not_spelt(
    home: LedgerHome, column: str, text: bytes, why: str
) -> None:
    ledger = await home.open()
    await append(ledger, draft("a"))
    whole = await ledger.read_text(0, 1)
    altered = whole._replace(columns={**whole.columns, column: text})
    if column == "quantity":
        # As in the store that has no type for it.
        altered = altered._replace(plain_quantity=from_sortable)
    with pytest.raises(LedgerDamaged, match=f"events after 0 cannot be read: .*{why}"):
        spelt([altered], 0, 1)


async def test_a_hash_of_another_length_is_not_taken_for_parts_of_others(home: LedgerHome) -> None:
    ledger = await home.open()
    await append(ledger, *(draft(f"{n}") for n in range(3)))
    on = "events_no_update" if home.kind == "sqlite" else "events_append_only ON events"
    await home.sql(f"DROP TRIGGER {on}")
    for sequence, digits in ((1, "ab" * 31), (2, "cd" * 33)):
        odd = f"x'{digits}'" if home.kind == "sqlite" else f"'\\x{digits}'"
        where = f"ingress_sequence = {sequence}"
        await home.sql(f"UPDATE events SET content_hash = {odd} WHERE {where}")
    with pytest.raises(LedgerDamaged, match="content_hash has 1 texts for 3 events"):
        await read(ledger, 0, 3)


@pytest.mark.parametrize("columns", [["data"], ["resource_id", "source", "source_id"]])
async def test_more_than_is_written_down_at_once_is_refused(
    home: LedgerHome, monkeypatch: pytest.MonkeyPatch, columns: list[str]
) -> None:
    ledger = await home.open()
    contents = [f'{{"a":"{str(n) * (30_000 // len(columns))}"}}' for n in range(9)]
    await append(
        ledger,
        *(draft(f"{n}", **dict.fromkeys(columns, text)) for n, text in enumerate(contents)),
    )
    events = await read(ledger, 0, 9)
    monkeypatch.setattr(reading, "MOST_TEXT_BYTES", 100_000)
    for _ in range(3):
        with pytest.raises(TextTooLarge):
            await ledger.read_text(0, 9)
    # What is asked next is answered.
    assert await read(ledger, 4, 6) == SpeltEvents(5, *(column[4:6] for column in events[1:]))
    assert len(await all_events(ledger)) == 9


async def test_texts_of_the_same_events_in_two_orders_are_not_put_together(
    home: LedgerHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await home.open()
    await append(ledger, *(draft(f"{n}", causality_key=f"run {n}") for n in range(3)))
    module = sqlite if home.kind == "sqlite" else postgres
    by_sequence = module._RARE_TEXTS
    if home.kind == "sqlite":
        backwards = by_sequence.replace(
            "CROSS JOIN events", "CROSS JOIN (SELECT * FROM events ORDER BY 1 DESC)"
        )
    else:
        backwards = by_sequence.replace("BY ingress_sequence)", "BY ingress_sequence DESC)")
    assert backwards != by_sequence
    monkeypatch.setattr(module, "_RARE_TEXTS", backwards)
    with pytest.raises(LedgerDamaged, match="in two orders"):
        await ledger.read_text(0, 3)


async def test_postgresql_sorts_no_page_also_before_it_has_statistics(postgres_url: str) -> None:
    """What is sorted is written to the disk first, where it is more than PostgreSQL keeps."""
    home = LedgerHome(postgres_url)
    try:
        ledger = await home.open()
        await append(ledger, *(draft(f"{n}", data='{"a":1}') for n in range(3_000)))
        assert isinstance(ledger, postgres.PostgresLedger)
        page = (1_000, 2_000)
        for query, values in (
            (postgres._COMMON_TEXTS, (*page, *page, reading.MOST_TEXT_BYTES)),
            (postgres._RARE_TEXTS, page),
        ):
            plan = [line for (line,) in await ledger._fetch(f"EXPLAIN {query}", *values)]
            assert any("Index Scan using events_pkey" in line for line in plan)
            assert not any("Sort" in line or "Seq Scan" in line for line in plan), plan
    finally:
        await home.close()


async def test_pandas_is_not_loaded_for_it(home: LedgerHome) -> None:
    """It takes half a second and 40 MiB, and Arrow does so for many ways to give it a value."""
    ledger = await home.open()
    await append(ledger, *(random_draft(random.Random(n), f"{n}-") for n in range(20)))
    text = (await ledger.read_text(0, 20))._replace(plain_quantity=None)
    done = await asyncio.to_thread(
        subprocess.run,
        [
            sys.executable,
            "-c",
            "import sys\n"
            "from tidemark.ledger.port import EventText\n"
            "from tidemark.ledger.spelling import spelt\n"
            f"assert len(spelt([EventText({text.event_count}, {text.columns!r}, None)], 0, 20)"
            ".values) == 20\n"
            "print('pandas' in sys.modules)",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "False\n"
