"""What is told of triggers where no delivery is kept, over a real store of triggers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from tidemark.live.filters import Filter, parse_filter
from tidemark.live.triggers.definition import NewTrigger, Trigger, where_text
from tidemark.live.triggers.event_ids import event_id
from tidemark.live.triggers.port import Advance, TriggerStore
from tidemark.live.triggers.sqlite import SqliteTriggers
from tidemark.ops.explaining.triggering import (
    MovedRow,
    Telling,
    TriggerFinding,
    look_into_triggers,
)
from tidemark.pipeline.output.encoding import encode_row
from tidemark.pipeline.output.schema import Column, ViewSchema
from tidemark.views.port import ChangeRow

SCHEMA = ViewSchema(
    "positions", (Column("account", "string"), Column("quantity", "decimal")), ("account",), "hash"
)
AT = 2_000
ABOVE_TEN = {"quantity": {"_gt": "10"}}
BELOW_FIVE = {"quantity": {"_lt": "5"}}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[TriggerStore]:
    opened = await SqliteTriggers.open(tmp_path / "triggers.db")
    yield opened
    await opened.close()


async def add(
    store: TriggerStore, name: str = "t", *, unmatch: object = None, match: object = None
) -> Trigger:
    texts = [None if it is None else where_text(it) for it in (match or ABOVE_TEN, unmatch)]
    assert texts[0] is not None
    new = NewTrigger(name, "positions", "https://example.org", texts[0], texts[1])
    return await store.add(new, 1_000, 0)


async def pass_over(store: TriggerStore, trigger: Trigger) -> None:
    """The trigger has seen the change, and nothing is kept of it."""
    await store.advance([Advance(trigger.id, trigger.position, 5_000)])


def moved(before: str | None, after: str | None) -> MovedRow:
    texts = [
        None if it is None else encode_row(SCHEMA, {"account": "a", "quantity": Decimal(it)})
        for it in (before, after)
    ]
    operation = "insert" if before is None else "delete" if after is None else "update"
    changed = ("quantity",) if operation == "update" else ()
    return MovedRow(SCHEMA, ChangeRow(AT, '["a"]', operation, texts[0], texts[1], changed))


def everything(trigger: object) -> Filter:
    return parse_filter(SCHEMA, {})


async def told(store: TriggerStore, row: MovedRow, *, kept_since: int = 0) -> list[TriggerFinding]:
    telling = Telling(lambda trigger: True, everything, "", kept_since)
    return await look_into_triggers(store, [row], telling)


async def test_what_must_have_fired_is_told_though_its_delivery_is_forgotten(
    store: TriggerStore,
) -> None:
    await pass_over(store, await add(store))
    [finding] = await told(store, moved("1", "20"), kept_since=10_000)
    assert (finding.outcome, finding.event_type, finding.delivery) == ("fired", "MATCH", None)
    assert finding.event_id == event_id("t", ["a"], AT)
    assert "forgotten" in finding.reason


async def test_what_the_past_decides_is_unknown_when_nothing_is_kept_of_it(
    store: TriggerStore,
) -> None:
    await pass_over(store, await add(store, unmatch=BELOW_FIVE))
    row = moved("7", "1")
    [finding] = await told(store, row, kept_since=10_000)
    assert finding.outcome == "unknown"
    [finding] = await told(store, row)
    assert (finding.outcome, finding.reason) == ("not_fired", "the row was on the same side before")


async def test_a_condition_that_its_view_does_not_have_any_more_is_unknown(
    store: TriggerStore,
) -> None:
    await pass_over(store, await add(store, match={"price": {"_gt": "1"}}))
    [finding] = await told(store, moved("1", "20"))
    assert finding.outcome == "unknown"
    assert "price" in finding.reason


async def test_a_trigger_that_lags_or_is_disabled_has_not_come_to_it(store: TriggerStore) -> None:
    await add(store)
    [finding] = await told(store, moved("1", "20"))
    assert (finding.outcome, finding.reason) == ("not_yet", "it has not come to this change yet")
    await store.set_enabled("t", False)
    [finding] = await told(store, moved("1", "20"))
    assert (finding.outcome, finding.reason) == ("not_yet", "it is disabled")
    await store.set_enabled("t", False, "the receiver answered 410")
    [finding] = await told(store, moved("1", "20"))
    assert finding.reason == "it is disabled: the receiver answered 410"


async def test_only_triggers_that_lived_at_that_time_are_told(store: TriggerStore) -> None:
    await pass_over(store, await add(store, "ended"))
    await store.remove("ended")
    await store.add(NewTrigger("young", "positions", "https://e.org", where_text({})), AT, 0)
    found = await told(store, moved("1", "2"))
    assert [it.trigger.name for it in found] == ["ended"]
    assert found[0].reason == "the row matched neither before nor after"


async def test_a_change_that_a_condition_does_not_look_at_is_told_so(store: TriggerStore) -> None:
    await pass_over(store, await add(store, match={"account": {"_eq": "a"}}))
    [finding] = await told(store, moved("1", "2"))
    assert finding.reason == "nothing that its condition looks at has changed"
