"""Meters and views: what of them does not fit, and what is seldom meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.config_files import ConfigFile
from tidemark.config import advise
from tidemark.config.pipeline_checks import METER_COLUMNS, TABLE_COLUMNS
from tidemark.pipeline.definitions import Definitions, meter_schema, table_schema
from tidemark.pipeline.output.schema import ROW_KEY, ROW_RECEIVED_AT

USAGE = "streams: {usage: {kind: usage}}\n"
TRADES = """\
streams:
  usage: {kind: usage}
  trades:
    fields:
      trade_id: string
      note: {type: string, required: false}
      extra: json
      price: decimal
"""


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path)


def meter(settings: str, name: str = "m") -> str:
    return f"{USAGE}meters: {{'{name}': {{{settings}}}}}\n"


def view(settings: str, name: str = "v") -> str:
    return f"{TRADES}views: {{'{name}': {{{settings}}}}}\n"


@pytest.mark.parametrize(
    ("settings", "path", "message", "hint"),
    [
        (
            "aggregate: median",
            "aggregate",
            "expected one of sum, max, min, count, last, avg, unique",
            "",
        ),
        ("aggregate: average", "aggregate", 'found "average"', "Did you mean `avg`?"),
        ("aggregate: distinct", "aggregate", 'found "distinct"', "Did you mean `unique`?"),
        ("period: year", "period", "expected one of hour, day, week, month", ""),
        ("period: monthly", "period", 'found "monthly"', "Did you mean `month`?"),
        ("timezone: Berlin", "timezone", "an IANA time zone", "Did you mean `Europe/Berlin`?"),
        ("timezone: europe/berlin", "timezone", "time zone", "Did you mean `Europe/Berlin`?"),
        ("timezone: Europe/Berlyn", "timezone", "time zone", "Did you mean `Europe/Berlin`"),
        ("timezone: New York", "timezone", "time zone", "`America/New_York`"),
        ("timezone: '+01:00'", "timezone", 'found "+01:00"', "Name a place, or say `UTC`."),
        ("timezone: utc", "timezone", "time zone", "Did you mean `UTC` or"),
        ("timezone: CEST", "timezone", "time zone", "Name a place, or say `UTC`."),
        ("timezone: localtime", "timezone", "time zone", ""),
        ("timezone: ../../etc/passwd", "timezone", "time zone", ""),
        ("timezone: 5", "timezone", "found 5", ""),
        ("lateness: 48", "lateness", "expected a duration", "`48s`"),
        ("close_after: 1d", "close_after", "no such setting", "Did you mean `closeAfter`?"),
        ("where: ''", "where", "expected a Spark SQL expression, found empty text", ""),
        ("where: '  '", "where", "found empty text", ""),
        ("where: true", "where", "found true", "Put it in quotes."),
        ("value: ''", "value", "found empty text", ""),
        ("value: null", "value", "found nothing", ""),
    ],
)
def test_a_faulty_setting_of_a_meter_says_what_it_takes(
    file: ConfigFile, settings: str, path: str, message: str, hint: str
) -> None:
    problem = file.problem(meter(settings))
    assert problem.path == f"meters.m.{path}"
    assert message in problem.message
    assert hint in problem.hint


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])
def test_a_meter_takes_any_zone_that_is_known(file: ConfigFile, zone: str) -> None:
    assert file.load(meter(f"timezone: {zone}")).meters["m"].timezone == zone


@pytest.mark.parametrize("streams", ["", "streams: {a: {fields: {x: int}}}\n"])
def test_meters_need_a_usage_stream(file: ConfigFile, streams: str) -> None:
    problem = file.problem(f"{streams}meters: {{a: {{}}, b: {{}}}}")
    assert (problem.path, problem.message) == (
        "meters",
        "expected a usage stream to take events from, found none",
    )
    assert "kind: usage" in problem.hint


@pytest.mark.parametrize(
    ("meters", "path"),
    [("{api_cals: {}}", "meters.api_cals"), ("{m: {metric: api_cals}}", "meters.m.metric")],
)
def test_the_metric_of_a_meter_is_one_of_those_declared(
    file: ConfigFile, meters: str, path: str
) -> None:
    streams = "streams: {u: {kind: usage, metrics: [api_calls, bytes]}}\n"
    problem = file.problem(f"{streams}meters: {meters}")
    assert problem.path == path
    assert problem.message == 'expected a metric of stream u, found "api_cals"'
    assert problem.hint == "Did you mean `api_calls`?"
    assert file.load(f"{streams}meters: {{m: {{metric: bytes}}, api_calls: {{}}}}").meters


@pytest.mark.parametrize("name", ["a", "_a1", "A" * 47, "a_b"])
def test_meters_and_views_have_plain_names(file: ConfigFile, name: str) -> None:
    assert name in file.load(meter("", name)).meters
    assert name in file.load(view("stream: trades, key: [trade_id]", name)).views


@pytest.mark.parametrize("name", ["1a", "a.b", "a-b", "é", "A" * 48, "", "a__b", "__a", "a__"])
def test_other_names_of_meters_and_views_are_refused(file: ConfigFile, name: str) -> None:
    for text in (meter("", name), view("stream: trades, key: [trade_id]", name)):
        assert "expected a name of at most 47 letters" in file.problem(text).message


@pytest.mark.parametrize("name", ["changes", "Changes"])
def test_the_name_of_the_log_of_changes_is_taken(file: ConfigFile, name: str) -> None:
    assert "log of changes" in file.problem(meter("", name)).hint


def test_meters_and_views_share_their_names_whatever_the_case(file: ConfigFile) -> None:
    problem = file.problem(view("stream: trades, key: [trade_id]", "Seats") + "meters: {seats: }")
    assert problem.path == "views.Seats"
    assert problem.message == "expected a name of its own, found that of meters.seats"
    assert file.problem(f"{USAGE}meters: {{a: , A: }}").path == "meters.A"


@pytest.mark.parametrize("name", ["1a", "a.b", "é", "a b", "A" * 64])
def test_a_group_has_a_name_that_can_be_a_column(file: ConfigFile, name: str) -> None:
    problem = file.problem(meter(f"group_by: [region, '{name}']"))
    assert problem.path == "meters.m.group_by[1]"
    assert "expected a name of at most 63 letters" in problem.message


@pytest.mark.parametrize("name", [*sorted(METER_COLUMNS), "Metric"])
def test_a_group_has_no_name_that_rows_of_meters_have_already(file: ConfigFile, name: str) -> None:
    problem = file.problem(meter(f"group_by: [{name}]"))
    assert problem.path == "meters.m.group_by[0]"
    assert problem.message == f'expected another name, found "{name}"'


@pytest.mark.parametrize("again", ["region", "Region"])
def test_a_group_stands_once(file: ConfigFile, again: str) -> None:
    problem = file.problem(meter(f"group_by: [region, {again}]"))
    assert problem.path == "meters.m.group_by[1]"


def test_a_group_is_one_of_the_declared_fields_of_meta(file: ConfigFile) -> None:
    streams = "streams: {u: {kind: usage, fields: {region: string, plan: string}}}\n"
    problem = file.problem(f"{streams}meters: {{m: {{group_by: [plan, regoin]}}}}")
    assert problem.path == "meters.m.group_by[1]"
    assert problem.message == 'expected a field of `meta`, found "regoin"'
    assert problem.hint == "Did you mean `region`?"


def test_a_view_needs_a_stream_and_a_key(file: ConfigFile) -> None:
    assert [p.path for p in file.problems(view(""))] == ["views.v.stream", "views.v.key"]
    problem = file.problem(view("stream: trades, key: []"))
    assert (problem.path, problem.message) == (
        "views.v.key",
        "expected a list with an entry or more, found an empty list",
    )


@pytest.mark.parametrize(
    ("stream", "message", "hint"),
    [
        ("trade", "a stream that is declared", "Did you mean `trades`?"),
        ("zzz", "a stream that is declared", "There is `trades`."),
        ("usage", "a stream of events", "`meters`"),
    ],
)
def test_a_view_shows_a_declared_stream_of_events(
    file: ConfigFile, stream: str, message: str, hint: str
) -> None:
    problem = file.problem(view(f"stream: {stream}, key: [trade_id]"))
    assert problem.path == "views.v.stream"
    assert message in problem.message
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("key", "message", "hint"),
    [
        ("trade_ids", "expected a field of the stream", "Did you mean `trade_id`?"),
        ("note", "expected a field that every event has", "required: false"),
        ("extra", "of type json", "single value"),
        ("tenant_id", "found the tenant", "always apart"),
        ("price, price", "expected each entry once", ""),
    ],
)
def test_the_key_of_a_view_names_required_fields_of_a_plain_type(
    file: ConfigFile, key: str, message: str, hint: str
) -> None:
    problem = file.problem(view(f"stream: trades, key: [trade_id, {key}]"))
    assert problem.path.startswith("views.v.key[")
    assert message in problem.message
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, "expected another name") for name in sorted(TABLE_COLUMNS)),
        ("Tenant_Id", "expected another name"),
        ("price", "no field of the stream"),
        ("Price", "no field of the stream"),
        ("a-b", "at most 63 letters"),
        ("A" * 64, "at most 63 letters"),
    ],
)
def test_a_calculated_column_has_a_new_name(file: ConfigFile, name: str, message: str) -> None:
    problem = file.problem(view(f"stream: trades, key: [trade_id], calculated: {{{name}: price}}"))
    assert problem.path.startswith("views.v.calculated.")
    assert message in problem.message


def test_calculated_columns_differ_whatever_the_case(file: ConfigFile) -> None:
    text = view("stream: trades, key: [trade_id], calculated: {a: price, A: price}")
    assert file.problem(text).path == "views.v.calculated.A"


@pytest.mark.parametrize("written", ["calculated: {a: ''}", "deleteWhen: ' '"])
def test_an_expression_of_a_view_says_something(file: ConfigFile, written: str) -> None:
    problem = file.problem(view(f"stream: trades, key: [trade_id], {written}"))
    assert problem.message == "expected a Spark SQL expression, found empty text"


@pytest.mark.parametrize("name", [*sorted(TABLE_COLUMNS), "TENANT_ID", "K", "A" * 64])
def test_fields_of_a_stream_that_is_shown_can_be_columns(file: ConfigFile, name: str) -> None:
    streams = f"streams: {{s: {{fields: {{k: int, {name}: int}}}}}}\n"
    assert file.load(streams).streams
    problem = file.problem(
        f"{streams}views: {{v: {{stream: s, key: [k]}}, w: {{stream: s, key: [k]}}}}"
    )
    assert problem.path == f"streams.s.fields.{name}"
    assert "expected a name that can be a column of view v" in problem.message


@pytest.mark.parametrize(
    ("settings", "warns"),
    [
        ("", False),
        ("period: month, lateness: 48h", False),
        ("period: month, lateness: 30d", False),
        ("period: month, lateness: 31d", True),
        ("period: week, lateness: 167h", False),
        ("period: week, lateness: 7d", True),
        ("period: day", True),
        ("period: day, lateness: 23h", False),
        ("period: day, closeAfter: 1h", False),
        ("period: hour", True),
        ("period: hour, lateness: 59m", False),
        ("period: hour, lateness: 1h", True),
    ],
)
def test_advice_is_given_where_nothing_is_ever_late(
    file: ConfigFile, settings: str, warns: bool
) -> None:
    remarks = advise(file.load(meter(settings)))
    assert [remark.path for remark in remarks] == (["meters.m"] if warns else [])
    assert all("nothing is then ever late" in remark.message for remark in remarks)


def test_the_names_that_are_taken_are_those_of_the_rows(file: ConfigFile) -> None:
    text = view("stream: trades, key: [trade_id]") + "meters: {m: {}}"
    definitions = Definitions.of(file.load(text))
    rows = {column.name for column in meter_schema(definitions.meters[0]).columns}
    assert rows <= METER_COLUMNS
    fields = {"trade_id", "note", "extra", "price"}
    rows = {column.name for column in table_schema(definitions.tables[0], ()).columns}
    assert rows - fields <= TABLE_COLUMNS
    assert {ROW_KEY, ROW_RECEIVED_AT} <= METER_COLUMNS & TABLE_COLUMNS


HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto"


@pytest.mark.parametrize("page", ["meters.md", "tables.md"])
def test_what_the_pages_on_meters_and_tables_show_is_valid_and_needs_no_advice(
    file: ConfigFile, page: str
) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", (HOWTO / page).read_text(), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        assert advise(file.load(example)) == []
