"""What can be told of an event without Spark: from adjustments, errors and the change of a row."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tidemark.config.model import StreamConfig
from tidemark.ingress.identity import Identity
from tidemark.ledger.port import EventRow
from tidemark.ops.explaining.contents import content_of
from tidemark.ops.explaining.corrections import deciding, overruled_by, sides_of
from tidemark.ops.explaining.origins import key_origin
from tidemark.ops.explaining.places import meter_place, table_row_key
from tidemark.ops.explaining.rows import Neighbours, RowHistory, moved, row_members
from tidemark.ops.explaining.table_verdicts import TableEvidence, table_verdict_of
from tidemark.ops.explaining.verdicts import Evidence, Verdict, judge, verdict_of
from tidemark.pipeline.definitions import MeterDefinition, TableDefinition, meter_schema
from tidemark.pipeline.output.batch import Adjustment, ErrorRow
from tidemark.pipeline.output.encoding import row_key
from tidemark.pipeline.output.schema import Column
from tidemark.timestamps import format_timestamp, parse_timestamp
from tidemark.views.port import ChangeRow

NOON = parse_timestamp("2025-01-31T12:00:00Z")
HOUR_US = 3_600_000_000
PLAIN = MeterDefinition(
    name="bytes",
    metric="bytes",
    aggregate="sum",
    period="day",
    timezone="UTC",
    lateness_us=HOUR_US,
    close_after_us=None,
    group_by=(),
    where=None,
    value="quantity",
)
CHOOSY = msgspec.structs.replace(PLAIN, name="choosy", where="quantity > 1")
TABLE = TableDefinition(
    name="positions",
    stream="trades",
    key=("account", "number"),
    fields=(Column("account", "string"), Column("number", "decimal")),
    calculated=(),
    delete_when=None,
)


def event(sequence: int = 5, **fields: Any) -> EventRow:
    values: dict[str, Any] = {
        **dict.fromkeys(EventRow.__struct_fields__),
        "ingress_sequence": sequence,
        "received_at": sequence * 1000,
        "occurred_at": NOON,
        "content_hash": b"\1" * 32,
        "tenant_id": "acme",
        "stream": "usage",
        "idempotency_key": f"key-{sequence}",
        "metric": "bytes",
        "customer_ref": "c",
        "quantity": "2",
    }
    return EventRow(**{**values, **fields})


def row(count: int, watermark: int | None = NOON) -> str:
    shown = None if watermark is None else format_timestamp(watermark)
    return json.dumps({"agg_count": str(count), "agg_sum": str(count), "watermark_ts": shown})


def change(before: int | None, after: int, at: int = 5000) -> ChangeRow:
    old = None if before is None else row(before)
    return ChangeRow(at, "key", "insert" if old is None else "update", old, row(after), ("x",))


def history(changed: ChangeRow | None = None, **fields: Any) -> RowHistory:
    before = None if changed is None else row_members(changed.old_row)
    return RowHistory("key", **{"before": before, "change": changed, **fields})


def verdict(meter: MeterDefinition, of_row: RowHistory, **fields: Any) -> Verdict:
    its_event: EventRow = fields.pop("event", event())
    content = content_of(its_event)
    judged = []
    if content is not None:
        place = meter_place(meter, content)
        assert place is not None
        judged = [judge(meter, place, of_row, None)]
    values: dict[str, Any] = {"judged": judged, "adjustments": (), "errors": ()}
    return verdict_of(Evidence(its_event, meter, **{**values, **fields}))


def adjustment(reason: str = "late") -> Adjustment:
    return Adjustment(
        5, "bytes", 0, 5000, "acme", "bytes", "c", "{}", 0, Decimal(2), reason, "key-5"
    )


def test_an_event_of_another_metric_is_not_counted() -> None:
    found = verdict(PLAIN, history(change(1, 2)), event=event(metric="seats"))
    assert found == Verdict("not_counted", "it counts the metric bytes")


def test_an_adjustment_or_an_error_that_names_an_event_decides() -> None:
    found = verdict(CHOOSY, history(unknown="forgotten"), adjustments=[adjustment()])
    assert found.outcome == "adjusted"
    assert "lateness" in found.reason
    closed = verdict(PLAIN, history(), adjustments=[adjustment("closed")])
    assert "closed" in closed.reason
    error = ErrorRow(5, "meter bytes", 5000, "overflow", "too large", "acme", "usage", "key-5")
    assert verdict(PLAIN, history(), errors=[error]) == Verdict(
        "not_counted", "overflow: too large"
    )


def test_a_meter_that_takes_all_has_counted_what_it_did_not_adjust() -> None:
    assert verdict(PLAIN, history(change(1, 2))).outcome == "counted"
    assert verdict(PLAIN, history(unknown="forgotten")).outcome == "counted"


def test_a_row_that_did_not_change_has_not_counted_it() -> None:
    assert verdict(PLAIN, history()).outcome == "not_counted"
    both = history(neighbours=Neighbours(corrections=1))
    assert verdict(PLAIN, both).outcome == "counted"


@pytest.mark.parametrize(
    ("changed", "neighbours", "outcome"),
    [
        (change(1, 2), Neighbours(), "counted"),
        (change(None, 1), Neighbours(), "counted"),
        (None, Neighbours(), "not_counted"),
        (change(1, 4), Neighbours(events=2), "counted"),
        (change(1, 3), Neighbours(events=2), "unknown"),
        (None, Neighbours(events=2), "not_counted"),
        (change(1, 1), Neighbours(adjustments=1), "not_counted"),
        (change(1, 2), Neighbours(corrections=1), "unknown"),
        (None, Neighbours(corrections=1), "unknown"),
        (change(1, 2), Neighbours(complete=False), "unknown"),
    ],
)
def test_a_condition_is_told_from_how_many_a_row_counts_more(
    changed: ChangeRow | None, neighbours: Neighbours, outcome: str
) -> None:
    found = verdict(CHOOSY, history(changed, neighbours=neighbours))
    assert found.outcome == outcome
    if outcome == "not_counted":
        assert found.reason == "its condition was not true or its value null"


def test_nothing_is_guessed_where_the_log_is_gone() -> None:
    assert verdict(CHOOSY, history(unknown="forgotten")) == Verdict("unknown", "forgotten")


def test_lateness_is_judged_by_the_row_before_the_commit() -> None:
    content = content_of(event(occurred_at=NOON - HOUR_US - 1))
    assert content is not None
    place = meter_place(PLAIN, content)
    assert place is not None
    late = judge(PLAIN, place, history(change(1, 2)), None)
    assert (late.late, late.history.watermark) == ("late", NOON)
    content = content_of(event(occurred_at=NOON - HOUR_US))
    assert content is not None
    place = meter_place(PLAIN, content)
    assert place is not None
    assert judge(PLAIN, place, history(change(1, 2)), None).late is None
    closing = msgspec.structs.replace(PLAIN, close_after_us=0)
    closed = judge(closing, place, history(), place.period_end + 1)
    assert closed.late == "closed"
    assert judge(PLAIN, place, history(unknown="?"), None).late is None


def test_a_correction_is_corrected_adjusted_or_without_effect() -> None:
    void = event(7, control="void", target_key="key-5", quantity=None)
    judged = {"judged": [judge(PLAIN, _place(event()), history(change(2, 1)), None)]}
    assert verdict(PLAIN, history(), event=void, **judged).outcome == "corrected"
    unmoved = {"judged": [judge(PLAIN, _place(event()), history(), None)]}
    assert verdict(PLAIN, history(), event=void, **unmoved).outcome == "no_effect"
    assert verdict(PLAIN, history(), event=void, adjustments=[adjustment()]).outcome == "adjusted"
    found = verdict(PLAIN, history(), event=void, overruled_by=event(6, control="void"))
    assert found == Verdict("no_effect", "6 had voided the original")
    gone = {"judged": [judge(CHOOSY, _place(event()), history(unknown="gone"), None)]}
    assert verdict(CHOOSY, history(), event=void, **gone) == Verdict("unknown", "gone")
    assert verdict(PLAIN, history(), event=void, **gone).outcome == "corrected"


def _place(of: EventRow) -> Any:
    content = content_of(of)
    assert content is not None
    return meter_place(PLAIN, content)


def test_a_void_is_final_and_else_the_last_amend_decides() -> None:
    amend, void, last = (
        event(6, control="amend", data='{"event":{"quantity":"3"}}'),
        event(7, control="void"),
        event(8, control="amend", data='{"event":{"quantity":"4"}}'),
    )
    assert deciding([]) is None
    assert deciding([amend, last]) is last
    assert deciding([amend, void, last]) is void
    assert overruled_by(last, [amend, void, last]) is void
    assert overruled_by(amend, [amend, void, last]) is None
    sides = [content.event for content in sides_of(void, event(), [amend, void, last])]
    assert sides == [amend]
    sides = [content.event for content in sides_of(amend, event(), [amend, void, last])]
    assert sides == [event(), amend]
    assert [it.event for it in sides_of(last, event(), [amend, void, last])] == [last]


def test_the_place_of_an_event_is_that_of_its_row() -> None:
    grouped = msgspec.structs.replace(PLAIN, group_by=("region", "level"))
    content = content_of(event(data='{"level":3,"region":"eu"}'))
    assert content is not None
    place = meter_place(grouped, content)
    assert place is not None
    start = parse_timestamp("2025-01-31T00:00:00Z")
    assert place.groups == ("eu", "3")
    assert place.row_key == row_key(meter_schema(grouped), ["acme", "bytes", "c", "eu", "3", start])
    without = content_of(event())
    assert without is not None
    assert meter_place(grouped, without).groups == (None, None)  # type: ignore[union-attr]


def test_the_row_of_a_table_is_found_by_the_values_of_the_data() -> None:
    content = content_of(
        event(metric=None, stream="trades", data='{"account":"ä\\"","number":"1.5"}')
    )
    assert content is not None
    assert table_row_key(TABLE, content) == '["acme","ä\\"","1.5"]'
    lacking = content_of(event(metric=None, stream="trades", data='{"account":"a"}'))
    assert lacking is not None
    assert table_row_key(TABLE, lacking) == '["acme","a",null]'


def test_data_that_cannot_be_read_is_explained_all_the_same() -> None:
    for data in ("[]", "{", '"x"'):
        content = content_of(event(data=data))
        assert content is not None
        assert content.members == {}


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"shown_sequence": 5}, "written"),
        ({"changed": change(None, 1)}, "written"),
        ({}, "unchanged"),
        ({"unknown": "forgotten"}, "unknown"),
        ({"changed": change(1, 2), "neighbours": Neighbours(events=1)}, "unknown"),
        ({"changed": ChangeRow(5000, "key", "delete", row(1), None, ("x",))}, "deleted"),
    ],
)
def test_a_table_says_what_it_made_of_an_event(fields: dict[str, Any], outcome: str) -> None:
    changed = fields.pop("changed", None)
    evidence = TableEvidence(event(metric=None), TABLE, [history(changed, **fields)], [])
    assert table_verdict_of(evidence).outcome == outcome


def test_only_what_has_changed_is_told() -> None:
    old, new = '{"a":"1","b":null,"k":"x"}', '{"a":"2","b":null,"k":"x"}'
    update = moved(ChangeRow(1, "key", "update", old, new, ("a",)), ("k",))
    assert {name: (bytes(a), bytes(b)) for name, (a, b) in update.changed.items()} == {
        "a": (b'"1"', b'"2"')
    }
    assert {name: bytes(it) for name, it in update.row.items()} == {"k": b'"x"'}
    insert = moved(ChangeRow(1, "key", "insert", None, new, ("a", "b", "k")), ("k",))
    assert list(insert.changed) == ["a"]


SALT = Identity("salt")


def origin(of: EventRow, **streams: StreamConfig) -> list[str] | None:
    found = key_origin(of, SALT, streams).derived_from
    return None if found is None else [name for name, _ in found]


def test_a_key_is_derived_if_a_tuple_of_the_event_comes_to_it() -> None:
    ts = format_timestamp(NOON)
    key = SALT.usage_key("acme", "bytes", "c", None, ts)
    assert origin(event(idempotency_key=key)) == [
        *("tenantId", "metric", "customerRef", "resourceId", "ts")
    ]
    assert origin(event(idempotency_key=key, resource_id="r")) is None
    assert origin(event()) is None
    void = event(control="void", target_key="t")
    key = SALT.control_key("acme", "void", ["t"], void.content_hash)
    assert origin(msgspec.structs.replace(void, idempotency_key=key)) == [
        *("tenantId", "control", "target", "contentHash")
    ]
    cloud = event(metric=None, stream="letters", source="/s", source_id="1")
    key = SALT.cloudevent_key("acme", "/s", "1")
    assert origin(msgspec.structs.replace(cloud, idempotency_key=key)) == [
        *("tenantId", "source", "id")
    ]
    trades = StreamConfig.model_validate({"identity": ["id"], "fields": {"id": "bigint"}})
    trade = event(metric=None, stream="trades", data='{"id":"7"}')
    key = SALT.stream_key("acme", "trades", ["7"])
    named = origin(msgspec.structs.replace(trade, idempotency_key=key), trades=trades)
    assert named == ["tenantId", "stream", "data.id"]
