"""Events spelt out are what the API shows of them, byte by byte, from either store."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from tests.contract.events import START, draft
from tests.contract.stores import LedgerHome, all_events, append
from tidemark.ingress.drafts import Draft
from tidemark.ledger.event_json import event_view

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


@pytest.mark.parametrize("seed", range(3))
async def test_events_are_spelt_as_the_api_shows_them(home: LedgerHome, seed: int) -> None:
    ledger = await home.open()
    source = random.Random(seed)
    await append(ledger, *(random_draft(source, f"{n}-") for n in range(150)))
    rows = await all_events(ledger)
    spelt = (await ledger.read_unspelt(0, len(rows))).spelt()
    assert [event.ingress_sequence for event in spelt] == list(range(1, len(rows) + 1))
    for row, event in zip(rows, spelt, strict=True):
        assert (event.received_at, event.stream) == (row.received_at, row.stream)
        assert event.causality_key == row.causality_key
        if row.data is None or is_json(row.data):
            assert event.value == msgspec.json.encode(event_view(row))
        else:
            # Nobody can send it, and the message is JSON all the same.
            assert json.loads(event.value)["dataText"] == row.data
    assert (await ledger.read_unspelt(5, 7)).spelt() == spelt[5:7]
    assert (await ledger.read_unspelt(len(rows), len(rows) + 5)).spelt() == []
