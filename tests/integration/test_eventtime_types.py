"""Times as Spark reads them: every type, from every kind of column, and never an exception."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as fn

from tests.services.spark import shared_session
from tidemark.pipeline.time.messages import record_time_columns
from tidemark.pipeline.time.plans import StreamTime
from tidemark.pipeline.time.registry import EventtimeTypeRegistry
from tidemark.timestamps import MAX_TIMESTAMP_US, format_timestamp, parse_timestamp

MOMENT = "2025-11-15T09:46:40.123456Z"
MOMENT_US = parse_timestamp(MOMENT)
FULL_SECOND_US = parse_timestamp("2025-11-15T09:46:40Z")


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return shared_session()


def parsed(
    spark: SparkSession, name: str, values: Sequence[Any], column_type: str = "string"
) -> list[int | None]:
    """Microseconds of each value."""
    frame = spark.createDataFrame([(value,) for value in values], f"value {column_type}")
    parser = EventtimeTypeRegistry().resolve(name)
    times = frame.select(parser(fn.col("value")).alias("ts"))
    assert times.schema["ts"].dataType.typeName() == "timestamp"
    return [row["us"] for row in times.select(fn.unix_micros("ts").alias("us")).collect()]


@pytest.mark.parametrize(
    ("name", "column_type", "value", "expected"),
    [
        ("unixtimestamp_s", "int", 1763200000, FULL_SECOND_US),
        ("unixtimestamp_s", "bigint", 1763200000, FULL_SECOND_US),
        ("unixtimestamp_s", "decimal(28,9)", Decimal("1763200000.123456789"), MOMENT_US),
        ("unixtimestamp_s", "string", "1763200000.123456", MOMENT_US),
        ("unixtimestamp_ms", "bigint", 1763200000123, FULL_SECOND_US + 123_000),
        ("unixtimestamp_ms", "decimal(28,9)", Decimal("1763200000123.456"), MOMENT_US),
        ("unixtimestamp_us", "bigint", MOMENT_US, MOMENT_US),
        ("unixtimestamp_us", "string", str(MOMENT_US), MOMENT_US),
        ("unixtimestamp_ns", "bigint", MOMENT_US * 1000 + 999, MOMENT_US),
        ("unixtimestamp_ns", "string", str(MOMENT_US * 1000 + 999), MOMENT_US),
        ("unixtimestamp_ns", "decimal(28,9)", Decimal(MOMENT_US * 1000), MOMENT_US),
        ("iso8601", "string", MOMENT, MOMENT_US),
    ],
)
def test_a_time_is_read_from_a_column_of_its_type(
    spark: SparkSession, name: str, column_type: str, value: Any, expected: int
) -> None:
    assert parsed(spark, name, [value, None], column_type) == [expected, None]


def test_a_column_of_timestamps_is_read_as_it_is(spark: SparkSession) -> None:
    frame = spark.sql(f"SELECT timestamp_micros({MOMENT_US}) AS value")
    parser = EventtimeTypeRegistry().resolve("iso8601")
    (row,) = frame.select(fn.unix_micros(parser(fn.col("value"))).alias("us")).collect()
    assert row["us"] == MOMENT_US


def test_seconds_are_cut_and_not_rounded(spark: SparkSession) -> None:
    texts = ["0", "-0", "0.0000019", "0.9999999999999999999999", "1.5e0", "17632e5", "1E-6", "1e-7"]
    expected = [0, 0, 1, 999_999, 1_500_000, FULL_SECOND_US, 1, 0]
    assert parsed(spark, "unixtimestamp_s", texts) == expected


def test_the_last_instant_is_read_in_every_unit_and_no_later_one(spark: SparkSession) -> None:
    last = MAX_TIMESTAMP_US
    for name, text, after in (
        ("unixtimestamp_s", f"{last // 10**6}.{last % 10**6:06d}", str(last // 10**6 + 1)),
        ("unixtimestamp_ms", f"{last // 1000}.{last % 1000:03d}", str(last // 1000 + 1)),
        ("unixtimestamp_us", str(last), str(last + 1)),
        ("unixtimestamp_ns", str(last * 1000 + 999), str((last + 1) * 1000)),
        ("iso8601", format_timestamp(last), "2262-01-01T00:00:00Z"),
    ):
        assert parsed(spark, name, [text, after]) == [last, None], name


@pytest.mark.parametrize("name", ["unixtimestamp_s", "unixtimestamp_ms", "unixtimestamp_us"])
def test_what_is_no_number_or_no_known_time_is_null(spark: SparkSession, name: str) -> None:
    texts = [
        *("", " ", "abc", "1 2", " 1", "1_000", "0x10", "NaN", "Infinity", "-1", "-0.0000001"),
        *("1e99", "9" * 30, "9" * 60, "1.", ".5", "1e", "--1", "١٢٣", "true", "null", '"1"', "[1]"),
        *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e400"),
    ]
    assert parsed(spark, name, texts) == [None] * len(texts)


def test_nanoseconds_before_1970_are_null(spark: SparkSession) -> None:
    assert parsed(spark, "unixtimestamp_ns", ["-1", "-999", "-1000", "999", "1000"]) == [
        *(None, None, None, 0, 1)
    ]


def test_iso_times_are_read_as_everywhere_else(spark: SparkSession) -> None:
    texts = [
        *(MOMENT, "2025-11-15t09:46:40z", "2025-11-15T10:46:40+01:00", "2025-11-15T09:46:40.1Z"),
        *("2025-11-14T09:47:40-23:59", "2025-11-16T09:45:40+23:59", "1970-01-01T00:00:00Z"),
        *("1969-12-31T23:00:00-01:00", "2024-02-29T12:00:00Z", "2025-11-15T09:46:40.12345678Z"),
        "2261-12-31T23:59:59.999999Z",
    ]
    expected = [parse_timestamp(text, truncate=True) for text in texts]
    assert parsed(spark, "iso8601", texts) == expected


def test_what_is_no_iso_time_is_null(spark: SparkSession) -> None:
    texts = [
        *("2025-11-15T09:46:40", "2025-11-15", "2025-11-15 09:46:40Z", "2025-11-15T09:46Z"),
        *("2025-02-30T00:00:00Z", "2025-13-01T00:00:00Z", "2025-11-15T24:00:00Z", "now", ""),
        *("2025-11-15T09:46:60Z", "2025-11-15T09:46:400Z", "2025-11-15T09:46:40+0100"),
        *("2025-11-15T09:46:40+24:00", "1969-12-31T23:59:59Z", "2262-01-01T00:00:00Z"),
        *("1970-01-01T00:00:00+01:00", "0000-01-01T00:00:00Z", "1763200000", "+2025-11-15T00Z"),
    ]
    assert parsed(spark, "iso8601", texts) == [None] * len(texts)


def test_a_type_of_ones_own_is_held_to_the_known_years(spark: SparkSession) -> None:
    registry = EventtimeTypeRegistry()

    def day_number(column: Column) -> Column:
        return fn.timestamp_seconds(column.cast("bigint") * 86_400)

    registry.register("days", day_number)
    frame = spark.createDataFrame([(1,), (-1,), (200_000,), (None,)], "value int")
    times = frame.select(fn.unix_micros(registry.resolve("days")(fn.col("value"))).alias("us"))
    assert [row["us"] for row in times.collect()] == [86_400_000_000, None, None, None]


DECLARED = {
    "trades": StreamTime("executed_at", "iso8601"),
    "clicks": StreamTime("at", "unixtimestamp_ms"),
}
RECORDS: list[tuple[Any, tuple[str | None, int | None]]] = [
    ([], (None, None)),
    ([{"stream": "notes", "data": {"at": 1}}], (None, None)),
    ([{"stream": "trades", "data": {"executed_at": MOMENT}}], ("trades", MOMENT_US)),
    (
        [
            {"stream": "notes", "data": {"executed_at": "2001-01-01T00:00:00Z"}},
            {"stream": "clicks", "data": {"at": 1763200000123, "x": {"at": 1}}},
            {"stream": "trades", "data": {"executed_at": MOMENT}},
        ],
        ("clicks", FULL_SECOND_US + 123_000),
    ),
    # The first one counts, also where its time cannot be read.
    (
        [
            {"stream": "trades", "data": {"executed_at": "yesterday"}},
            {"stream": "clicks", "data": {"at": 1763200000123}},
        ],
        ("trades", None),
    ),
    ([{"stream": "trades", "data": {}}], ("trades", None)),
    ([{"stream": "trades", "data": {"Executed_At": MOMENT}}], ("trades", None)),
    ([{"stream": "trades"}], ("trades", None)),
    ([{"stream": "trades", "data": "text"}], ("trades", None)),
    ([{"stream": None}, {}, {"stream": 1}], (None, None)),
]


def test_the_time_of_a_record_is_that_of_its_first_timed_message(spark: SparkSession) -> None:
    texts = [json.dumps(messages) for messages, _ in RECORDS]
    no_lists = [None, "", "{", "1", '"text"', "[1]", "[[]]", "[null]", '{"stream":"x"}']
    frame = spark.createDataFrame([(text,) for text in [*texts, *no_lists]], "messages string")
    columns = record_time_columns(fn.col("messages"), DECLARED, EventtimeTypeRegistry())
    rows = frame.select(columns.stream.alias("s"), fn.unix_micros(columns.ts).alias("ts")).collect()
    found = [(row["s"], row["ts"]) for row in rows]
    assert found == [*(expected for _, expected in RECORDS), *[(None, None)] * len(no_lists)]
