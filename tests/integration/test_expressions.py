"""Which Spark SQL a user may write: what follows from one event alone, and nothing else."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.folding.facts import definition_of
from tests.folding.streams import stream_settings, written_config
from tests.folding.tables import definition_of as table_definition
from tests.folding.windows import definition_of as window_definition
from tests.generated.meters import random_meter
from tests.generated.streams import STREAM, TABLES
from tests.generated.windows import windows_of
from tests.services.spark import shared_session
from tidemark.errors import ConfigError
from tidemark.pipeline.decode.shape import struct_of
from tidemark.pipeline.decode.stage import Decoder
from tidemark.pipeline.definitions import Definitions
from tidemark.pipeline.expressions import checked_type, require_type, view_type
from tidemark.pipeline.time.registry import EventtimeTypeRegistry

COLUMNS = "tenant_id string, quantity decimal(28,9), ts timestamp, meta map<string,string>"
FIELD = "meters.calls.value"

NOT_THE_SAME_TWICE = (
    *("rand()", "rand(1)", "randn()", "uuid()", "shuffle(array(1, 2))", "random()", "randstr(3)"),
    *("current_timestamp()", "current_timestamp", "now()", "current_date()", "curdate()"),
    *("localtimestamp()", "current_timezone()", "current_time()", "unix_timestamp()"),
    *("current_user()", "user()", "session_user()", "current_database()", "current_catalog()"),
    *("input_file_name()", "input_file_block_start()", "monotonically_increasing_id()"),
    *("spark_partition_id()", "version()", "reflect('java.util.UUID', 'randomUUID')"),
    *("java_method('java.lang.System', 'nanoTime')", "to_timestamp(now())"),
    *("quantity + cast(rand() as decimal(28,9))", "transform(array(1), x -> x + rand())"),
    *("case when quantity > 0 then rand() end", "uniform(1, 10)", "to_date('now')"),
    *("timestamp'now'", "date 'tomorrow'", "cast('12:00' as timestamp)", "ts > 'T12:00:00'"),
    *("to_timestamp(tenant_id)", "try_cast(meta['at'] as timestamp)", "date('today')"),
)
BEYOND_ONE_EVENT = (
    *("sum(quantity)", "count(*)", "max(ts)", "row_number() over (order by ts)"),
    *("sum(quantity) over ()", "lag(quantity) over (order by ts)", "explode(array(1, 2))"),
    *("posexplode(array(1))", "(select 1)", "(select max(id) from range(3))", "inline(array())"),
    *("exists (select 1)", "quantity in (select 1)", "stack(2, 1, 2)", "grouping(quantity)"),
    *(
        "json_tuple(tenant_id, 'a')",
        "first_value(quantity)",
        "any_value(ts)",
        "window(ts, '1 day')",
    ),
)


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return shared_session()


def refusal(spark: SparkSession, expression: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        checked_type(spark, expression, struct_of(COLUMNS), FIELD)
    assert caught.value.field == FIELD
    assert f"`{expression}`" in str(caught.value)
    return caught.value


@pytest.mark.parametrize("expression", NOT_THE_SAME_TWICE)
def test_what_is_not_the_same_twice_is_refused(spark: SparkSession, expression: str) -> None:
    assert "follows from the event itself" in refusal(spark, expression).hint


@pytest.mark.parametrize("expression", BEYOND_ONE_EVENT)
def test_what_looks_at_other_events_is_refused(spark: SparkSession, expression: str) -> None:
    assert "one event" in refusal(spark, expression).hint


def test_an_unknown_column_is_refused_with_those_there_are(spark: SparkSession) -> None:
    error = refusal(spark, "quantty + 1")
    assert "tenant_id, quantity, ts, meta" in error.hint
    assert "quantty" in str(error)


@pytest.mark.parametrize(
    "expression",
    [
        "quantity +",
        "",
        "(",
        "quantity; drop table x",
        "select 1",
        "1, 'w', 2",
        "quantity)",
        "'",
        "*",
    ],
)
def test_what_is_not_one_expression_is_refused(spark: SparkSession, expression: str) -> None:
    assert "one Spark SQL expression" in refusal(spark, expression).hint


def test_an_unknown_function_is_refused(spark: SparkSession) -> None:
    assert "no_such_function" in str(refusal(spark, "no_such_function(quantity)"))


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("quantity", "decimal(28,9)"),
        ("quantity * 2 -- twice", "decimal(30,9)"),
        ("meta['plan'] = 'pro'", "boolean"),
        ("coalesce(meta['seats'], '0')", "string"),
        ("cast(meta['seats'] as int)", "int"),
        ("date_trunc('hour', ts)", "timestamp"),
        ("unix_micros(ts)", "bigint"),
        ("hash(tenant_id)", "int"),
        ("aggregate(array(1, 2), 0, (a, x) -> a + x)", "int"),
        ("element_at(split(tenant_id, '-'), 1)", "string"),
        ("to_timestamp('2025-01-01T00:00:00Z')", "timestamp"),
        ("ts >= '2025-01-01' and to_date(ts) < '2026-01-01'", "boolean"),
        ("to_timestamp(tenant_id, \"yyyy-MM-dd'T'HH:mm:ssX\")", "timestamp"),
        ("exists(array(1), x -> x > 0)", "boolean"),
        ("meta['day'] = 'today'", "boolean"),
    ],
)
def test_what_follows_from_one_event_has_its_type(
    spark: SparkSession, expression: str, kind: str
) -> None:
    assert checked_type(spark, expression, struct_of(COLUMNS), FIELD).simpleString() == kind


@pytest.mark.parametrize("expression", ["cast(quantity as double)", "sqrt(2)", "float(1)"])
def test_floating_point_is_refused_with_the_cast_that_helps(
    spark: SparkSession, expression: str
) -> None:
    kind = checked_type(spark, expression, struct_of(COLUMNS), FIELD)
    for refuse in (
        lambda: require_type(kind, ("int", "decimal"), expression, FIELD),
        lambda: view_type(kind, expression, FIELD),
    ):
        with pytest.raises(ConfigError) as caught:
            refuse()
        assert "cast(… as decimal(28, 9))" in caught.value.hint
        assert caught.value.field == FIELD


@pytest.mark.parametrize("expression", ["array(1)", "meta", "date'2025-01-01'", "x'00'", "null"])
def test_a_type_that_no_view_holds_is_refused_with_those_that_it_does(
    spark: SparkSession, expression: str
) -> None:
    kind = checked_type(spark, expression, struct_of(COLUMNS), FIELD)
    with pytest.raises(ConfigError) as caught:
        view_type(kind, expression, FIELD)
    assert "Cast it to string, boolean, int, bigint, decimal or timestamp" in caught.value.hint


def test_each_expression_of_a_configuration_is_checked_under_its_own_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    meter = msgspec.structs.replace(
        definition_of(random_meter(1)), name="calls", where="quantity > 0", value="quantity"
    )
    table = msgspec.structs.replace(
        table_definition(TABLES[0]), calculated=(("plus", "count + 1"),), delete_when="count > 1"
    )
    streams = {"usage": {"kind": "usage"}, STREAM: stream_settings(TABLES[0])}
    config = written_config(tmp_path, {"streams": streams})

    def field_and_hint(meters: tuple, tables: tuple, windows: tuple = ()) -> tuple[str | None, str]:
        definitions = Definitions(meters, tables, windows)
        with pytest.raises(ConfigError) as caught:
            Decoder(spark, config, definitions, EventtimeTypeRegistry())
        return caught.value.field, caught.value.hint

    replace = msgspec.structs.replace
    boolean = "It must be boolean."
    number = "It must be tinyint or smallint or int or bigint or decimal."
    assert field_and_hint((replace(meter, where="quantity"),), ()) == (
        "meters.calls.where",
        boolean,
    )
    assert field_and_hint((replace(meter, value="metric"),), ()) == ("meters.calls.value", number)
    assert field_and_hint((), (replace(table, delete_when="id"),)) == (
        "views.by_id.deleteWhen",
        boolean,
    )
    field, hint = field_and_hint((), (replace(table, calculated=(("plus", "nothing"),)),))
    assert field == "views.by_id.calculated.plus"
    assert "id, place, at, count, ts, text" in hint
    window = msgspec.structs.replace(window_definition(windows_of(None)[0]), name="volume")
    assert field_and_hint((), (), (replace(window, value="text"),)) == (
        "windows.volume.value",
        number,
    )
    assert field_and_hint((), (), (replace(window, where="count"),)) == (
        "windows.volume.where",
        boolean,
    )
    field, _ = field_and_hint((), (), (replace(window, value="rand()"),))
    assert field == "windows.volume.value"
    decoder = Decoder(spark, config, Definitions((meter,), (table,)), EventtimeTypeRegistry())
    assert [(c.name, c.type) for c in decoder.calculated[0]] == [("plus", "int")]
