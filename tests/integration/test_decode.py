"""Decoding on real Spark: the facts of generated ledgers are those that plain Python finds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from tests.folding import facts as meter_facts
from tests.folding import tables as table_facts
from tests.folding.ledgers import as_draft
from tests.folding.streams import (
    source_rows,
    stream_draft,
    stream_settings,
    written_config,
)
from tests.generated.ledgers import LAST_INSTANT, Shape, random_ledger
from tests.generated.meters import OF_R1, QUANTITY, random_meter
from tests.generated.streams import STREAM, TABLES, StreamShape, random_stream
from tests.reference.instants import parse_instant
from tests.reference.periods import PeriodName, period_of
from tests.reference.tables import StreamCommit, StreamEvent, Table
from tests.services.spark import shared_session
from tidemark.config import Config
from tidemark.ingress.drafts import Draft
from tidemark.pipeline.calendar import period_columns
from tidemark.pipeline.decode.stage import Decoder
from tidemark.pipeline.definitions import Definitions, TableDefinition
from tidemark.pipeline.output.schema import Column
from tidemark.pipeline.time.registry import EventtimeTypeRegistry

SETTINGS: Mapping[str, Any] = {
    "streams": {"usage": {"kind": "usage"}, STREAM: stream_settings(TABLES[0])}
}
PERIODS: tuple[PeriodName, ...] = ("hour", "day", "week", "month")
NESTED = '{"a":10000000.5,"ü":["\\u001f💧",1.5,"2.5"]}'


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return shared_session()


def decoder_of(spark: SparkSession, directory: Path, definitions: Definitions) -> Decoder:
    config = written_config(directory, SETTINGS)
    return Decoder(spark, config, definitions, EventtimeTypeRegistry())


def decoded(
    spark: SparkSession, decoder: Decoder, commits: Sequence[Any], draft: Any, **options: Any
) -> list[dict[str, Any]]:
    facts = decoder.facts(source_rows(spark, commits, draft), **options)
    return sorted(
        facts.toArrow().to_pylist(), key=lambda fact: (fact["view"], fact["ingress_sequence"] or 0)
    )


def test_streams_become_the_rows_of_tables(spark: SparkSession, tmp_path: Path) -> None:
    tables = tuple(table_facts.definition_of(table) for table in TABLES)
    decoder = decoder_of(spark, tmp_path, Definitions((), tables))
    commits = random_stream(1, StreamShape(max_commits=60, max_entries=40))
    found = decoded(spark, decoder, commits, stream_draft)
    for number, table in enumerate(TABLES):
        own = [fact for fact in found if fact["view"] == number]
        compare_table(own, commits, table, number)


def compare_table(
    found: Sequence[Mapping[str, Any]], commits: Sequence[StreamCommit], table: Table, number: int
) -> None:
    expected = table_facts.facts_of(commits, table).to_pylist()
    assert len(found) == len(expected)
    slots: dict[Any, Any] = {}
    for fact, wanted in zip(found, expected, strict=True):
        row = wanted.pop("row_0")
        slot = wanted.pop("slot")
        assert {name: fact[name] for name in wanted} == wanted, (table.name, row)
        assert fact[f"row_{number}"] == row, table.name
        assert (fact["error_message"] is None) == (wanted["error_code"] is None)
        if row is not None:
            key = tuple(row[name] for name in ("tenant_id", *table.key))
            assert slots.setdefault(key, fact["slot"]) == fact["slot"], slot
    assert len(set(slots.values())) == len(slots)


def test_usage_becomes_the_facts_of_meters(spark: SparkSession, tmp_path: Path) -> None:
    meters = [random_meter(seed) for seed in range(6)]
    meters += [replace(random_meter(9), name="grouped", group_by=("region", "plan"), where=OF_R1)]
    decoder = decoder_of(
        spark, tmp_path, Definitions(tuple(map(meter_facts.definition_of, meters)), ())
    )
    commits = random_ledger(3, Shape(max_commits=50, max_entries=20))
    for whole in (False, True):
        found = decoded(spark, decoder, commits, as_draft, whole=whole)
        for number, meter in enumerate(meters):
            own = [fact for fact in found if fact["view"] == number]
            expected = meter_facts.facts_of(commits, meter, whole=whole).to_pylist()
            shown = [{name: fact[name] for name in meter_facts.FACTS.names} for fact in own]
            assert shown == expected, meter
            slots = {(f["tenant_id"], f["customer_ref"], f["slot"]) for f in own}
            assert len({slot for *_, slot in slots}) == len(slots)
        commit_facts = [fact for fact in found if fact["kind"] == "commit"]
        assert {fact["received_at"] for fact in commit_facts} == {at for at, _ in commits}


def test_groups_are_strings_as_they_are_and_anything_else_as_its_json(
    spark: SparkSession, tmp_path: Path
) -> None:
    values = {
        '"12345678.9"': "12345678.9",
        "12345678.9": "12345678.9",
        "-0.12345678901234567890123456789": "-0.12345678901234567890123456789",
        "9" * 60: "9" * 60,
        "true": "true",
        "null": None,
        '"{\\"a\\":1.5}"': '{"a":1.5}',
        NESTED: NESTED,
        "[1.25]": "[1.25]",
        '"\\u001f💧\\"\\\\"': '\x1f💧"\\',
        '""': "",
    }
    meter = replace(random_meter(1, where=None, value=QUANTITY), group_by=("region", "plan"))
    decoder = decoder_of(spark, tmp_path, Definitions((meter_facts.definition_of(meter),), ()))
    # Some members look like the one that is looked for, and numbers stand before and after it.
    around = '{{"a":{{"region":1.5}},"b":"\\"region\\":1","m":7.25,"region":{},"z":-0.5}}'
    events = [{"seq": seq, "meta": around.format(text)} for seq, text in enumerate(values, start=1)]
    found = decoded(spark, decoder, [(1, events)], usage_draft)
    facts = [fact for fact in found if fact["kind"] == "fact"]
    assert [fact["groups"] for fact in facts] == [[value, None] for value in values.values()]


def usage_draft(event: Any) -> Draft:
    return Draft(
        tenant_id="t1",
        stream="usage",
        idempotency_key=f"k{event['seq']}",
        content_hash=bytes(32),
        occurred_at=1,
        metric="api_calls",
        customer_ref="c1",
        resource_id=event.get("resource_id"),
        quantity=event.get("quantity", "1"),
        data=event.get("meta"),
    )


def test_usage_on_which_an_expression_fails_becomes_an_error_and_its_neighbours_do_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    plain = meter_facts.definition_of(random_meter(1, where=None, value=QUANTITY, group_by=()))
    meters = (
        msgspec.structs.replace(plain, name="ratio", value="quantity / (quantity - 1)"),
        msgspec.structs.replace(plain, name="cast", where="cast(resource_id as int) > 0"),
        msgspec.structs.replace(plain, name="tenfold", value="quantity * 10"),
    )
    decoder = decoder_of(spark, tmp_path, Definitions(meters, ()))
    events = [
        {"seq": 1, "quantity": "2", "resource_id": "7"},
        {"seq": 2, "quantity": "1", "resource_id": "x"},
        {"seq": 3, "quantity": "9999999999999999999.999999999", "resource_id": "99999999999"},
        {"seq": 4, "quantity": "-3", "resource_id": "1"},
    ]
    found = decoded(spark, decoder, [(1, events)], usage_draft)
    seen = {
        meter.name: [fact["error_code"] or fact["value"] for fact in found if fact["view"] == place]
        for place, meter in enumerate(meters)
    }
    assert seen == {
        "ratio": [2, "expression_failed", 1, Decimal("0.75")],
        "cast": [2, "expression_failed", "expression_failed", -3],
        "tenfold": [20, 10, "value_out_of_range", -30],
    }


def test_events_that_a_table_cannot_hold_become_errors_and_their_neighbours_do_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    years, digits = "at + make_interval(n)", "cast(repeat('9', n) as decimal(38, 0))"
    table = TableDefinition(
        name="poisoned",
        stream=STREAM,
        key=("id",),
        fields=(
            Column("id", "string"),
            Column("at", "timestamp"),
            Column("n", "int"),
            Column("place", "enum", ("here",)),
        ),
        calculated=(
            ("quotient", "100 div n"),
            ("later", years),
            ("digits", digits),
            ("bytes", "cast(unhex(substr(id, 2)) as string)"),
        ),
        delete_when="cast(id as string) = 'gone'",
        time_column="at",
        time_type="iso8601",
    )
    decoder = decoder_of(spark, tmp_path, Definitions((), (table,)))
    good = {"id": "x41", "at": "2025-11-10T00:00:00.000000Z", "n": 7, "place": "here"}
    events = {
        json.dumps(good): None,
        json.dumps(good | {"n": 0}): "expression_failed",
        json.dumps(good | {"n": 8000, "id": "y"}): "expression_failed",
        json.dumps(good | {"n": 31}): "value_out_of_range",
        json.dumps(good | {"id": "x4100"}): "value_out_of_range",
        json.dumps(good | {"id": "xff"}): "value_out_of_range",
        json.dumps(good | {"place": "there"}): "invalid_field",
        json.dumps(good | {"at": "yesterday"}): "invalid_field",
        json.dumps(good | {"id": None}): "missing_field",
        json.dumps({**good, "at": None}): "missing_field",
        '{"id":"x41"': "undecodable",
        "[]": "undecodable",
        json.dumps(good | {"id": "x42"}): None,
    }
    drafts = [stream_event(seq, data) for seq, data in enumerate(events, start=1)]
    found = decoded(spark, decoder, [(1, drafts)], stream_draft)
    own = [fact for fact in found if fact["view"] == 0]
    assert [fact["error_code"] for fact in own] == list(events.values())
    first, *_, last = (fact["row_0"] for fact in own)
    assert (first["bytes"], first["digits"], first["quotient"]) == ("A", 9_999_999, 14)
    assert (last["bytes"], last["id"]) == ("B", "x42")


def test_a_stream_may_be_named_like_a_type_of_cloudevents(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = "com.example.order-placed"
    config = Config.model_validate(
        {
            "state_dir": str(tmp_path),
            "streams": {
                stream: {
                    "fields": {"id": "string", "at": "timestamp"},
                    "eventtime": {"column": "at", "type": "iso8601"},
                }
            },
            "views": {"orders": {"stream": stream, "key": ["id"]}},
            "windows": {"orders_1m": {"stream": stream, "size": "1m", "value": "1"}},
            "pipeline": {"eventtime": {"enabled": True}, "ordered": {stream: {}}},
        }
    )
    decoder = Decoder(spark, config, Definitions.of(config), EventtimeTypeRegistry())
    data = '{"at":"2025-11-10T00:00:00.000000Z","id":"a"}'
    event = {**stream_event(1, data), "stream": stream}
    found = decoded(spark, decoder, [(1, [event])], stream_draft)
    at = parse_instant("2025-11-10T00:00:00Z")
    assert [(fact["kind"], fact["ts"]) for fact in found if fact["kind"] != "commit"] == [
        ("tuple", at),
        ("fact", at),
        ("fact", at),
    ]


def test_a_time_that_no_calendar_shows_is_no_value_of_a_calculated_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = TableDefinition(
        name="far",
        stream=STREAM,
        key=("id",),
        fields=(Column("id", "string"), Column("ts", "bigint")),
        calculated=(("later", "timestamp_seconds(ts)"),),
        delete_when=None,
    )
    decoder = decoder_of(spark, tmp_path, Definitions((), (table,)))
    seconds = {253_402_300_799: None, 253_402_300_800: "value_out_of_range"}
    seconds |= {-62_135_596_800: None, -62_135_596_801: "value_out_of_range"}
    events = [
        stream_event(seq, json.dumps({"id": "a", "ts": str(second)}))
        for seq, second in enumerate(seconds, start=1)
    ]
    found = decoded(spark, decoder, [(1, events)], stream_draft)
    assert [fact["error_code"] for fact in found if fact["view"] == 0] == list(seconds.values())


def stream_event(seq: int, data: str) -> StreamEvent:
    return StreamEvent(
        seq=seq,
        key=f"k{seq}",
        tenant_id="t1",
        stream=STREAM,
        control=None,
        target=None,
        event=None,
        ts=1,
        data=data,
    )


# Where clocks were changed at, around, or across midnight, by half an hour, or by a whole day.
ZONES = {
    "UTC": "2025-11-10T00:00:00Z",
    "Europe/Berlin": "2025-10-26T01:00:00Z",
    "America/New_York": "2025-03-09T07:00:00Z",
    "America/Sao_Paulo": "2018-11-04T03:00:00Z",
    "Africa/Cairo": "2024-04-25T22:00:00Z",
    "America/St_Johns": "2010-11-07T02:31:00Z",
    "Australia/Lord_Howe": "2025-04-05T15:00:00Z",
    "Asia/Kathmandu": "1985-12-31T18:30:00Z",
    "Pacific/Apia": "2011-12-30T10:00:00Z",
    "Africa/Monrovia": "1972-01-07T00:44:30Z",
    "America/Havana": "2025-11-02T05:00:00Z",
}


def test_periods_are_those_of_the_local_calendar(spark: SparkSession) -> None:
    around = [hours * 1_800_000_000 + nudge for hours in range(-100, 101) for nudge in (-1, 0)]
    edges = [0, 1, LAST_INSTANT, parse_instant("2024-02-29T23:59:59.999999Z")]
    for zone, change in ZONES.items():
        instants = [max(parse_instant(change) + shift, 0) for shift in around] + edges
        frame = spark.createDataFrame([(instant,) for instant in instants], "ts bigint")
        columns = [
            fn.array(*period_columns(fn.col("ts"), period, zone)).alias(period)
            for period in PERIODS
        ]
        found = frame.select("ts", *columns).toArrow().to_pylist()
        for row in found:
            expected = {period: list(period_of(row["ts"], period, zone)) for period in PERIODS}
            assert {period: row[period] for period in PERIODS} == expected, (zone, row["ts"])
