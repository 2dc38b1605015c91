"""What the settings of the pipeline mean; what of event time and Spark does not fit."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.unit.config_files import ConfigFile
from tidemark.config import (
    EventtimeColumn,
    EventtimeConfig,
    MeterConfig,
    OrderedConfig,
    PipelineConfig,
    SparkConfig,
    ViewConfig,
)
from tidemark.config.advice import advise
from tidemark.config.names import BUILT_IN_EVENTTIME_TYPES

HOUR_US = 3_600_000_000

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


def test_the_defaults_are_those_of_the_design(file: ConfigFile) -> None:
    config = file.load()
    assert (config.meters, config.views) == ({}, {})
    assert config.pipeline == PipelineConfig(
        enabled=True,
        source="ledger",
        max_batch_events=200_000,
        change_retention_us=7 * 24 * HOUR_US,
        eventtime=EventtimeConfig(
            enabled=False, late_tolerance_us=0, future_bound_us=HOUR_US, types={}
        ),
        ordered={},
    )
    assert config.view_store.url is None
    assert config.spark == SparkConfig(master="local[*]", options={}, java_home=None)


def test_a_meter_with_nothing_in_it_has_the_defaults(file: ConfigFile) -> None:
    found = file.load(f"{USAGE}meters: {{m: }}").meters["m"]
    assert found == MeterConfig(
        metric=None,
        aggregate="sum",
        period="month",
        timezone="UTC",
        lateness_us=48 * HOUR_US,
        close_after_us=None,
        group_by=[],
        where=None,
        value="quantity",
        live=True,
        description=None,
    )


def test_every_setting_reaches_its_attribute(file: ConfigFile) -> None:
    config = file.load("""
        streams:
          usage: {kind: usage, metrics: [calls]}
          trades:
            eventtime: {column: at, type: my_time}
            fields: {trade_id: string, at: bigint}
          notes: {fields: {text: string}}
        meters:
          m:
            metric: calls
            aggregate: unique
            period: week
            timezone: Europe/Berlin
            lateness: 0s
            closeAfter: 3d
            group_by: [region]
            where: meta['region'] <> 'test'
            value: quantity * 2
            live: false
            description: Calls.
        views:
          v:
            stream: trades
            key: [trade_id]
            calculated: {later: at + 1}
            deleteWhen: at = 0
            live: false
            description: Trades.
        pipeline:
          enabled: false
          source: ledger
          max_batch_events: 5
          change_retention: 1h
          eventtime:
            enabled: true
            lateTolerance: 5s
            futureBound: 10m
            types: {my_time: "package.module:function"}
          ordered:
            trades: {path: elsewhere, format: parquet}
            notes:
        view_store: {url: "sqlite:///rows.db"}
        spark:
          master: spark://host:7077
          java_home: /opt/java
          options: {spark.driver.memory: 4g, spark.ui.enabled: true, spark.task.maxFailures: 4}
    """)
    assert config.streams["trades"].eventtime == EventtimeColumn(column="at", type="my_time")
    assert config.meters["m"] == MeterConfig(
        metric="calls",
        aggregate="unique",
        period="week",
        timezone="Europe/Berlin",
        lateness_us=0,
        close_after_us=72 * HOUR_US,
        group_by=["region"],
        where="meta['region'] <> 'test'",
        value="quantity * 2",
        live=False,
        description="Calls.",
    )
    assert config.views["v"] == ViewConfig(
        stream="trades",
        key=["trade_id"],
        calculated={"later": "at + 1"},
        delete_when="at = 0",
        live=False,
        description="Trades.",
    )
    assert config.pipeline == PipelineConfig(
        enabled=False,
        max_batch_events=5,
        change_retention_us=HOUR_US,
        eventtime=EventtimeConfig(
            enabled=True,
            late_tolerance_us=5_000_000,
            future_bound_us=600_000_000,
            types={"my_time": "package.module:function"},
        ),
        ordered={
            "trades": OrderedConfig(path="elsewhere", format="parquet"),
            "notes": OrderedConfig(path=None, format="jsonl"),
        },
    )
    assert config.view_store.url == f"sqlite:///{file.path.parent}/rows.db"
    assert config.spark == SparkConfig(
        master="spark://host:7077",
        java_home="/opt/java",
        options={
            "spark.driver.memory": "4g",
            "spark.ui.enabled": True,
            "spark.task.maxFailures": 4,
        },
    )


def test_the_environment_sets_all_of_it(file: ConfigFile) -> None:
    config = file.load(
        TRADES + "views: {v: {stream: trades, key: [trade_id]}}\nmeters: {m: {}}",
        {
            "TIDEMARK_METERS__M__CLOSE_AFTER": "3d",
            "TIDEMARK_METERS__M__GROUP_BY": "[region]",
            "TIDEMARK_METERS__M__WHERE": "quantity > 0",
            "TIDEMARK_VIEWS__V__DELETE_WHEN": "price = 0",
            "TIDEMARK_VIEWS__V__CALCULATED": "{twice: price * 2}",
            "TIDEMARK_STREAMS__TRADES__EVENTTIME__COLUMN": "note",
            "TIDEMARK_STREAMS__TRADES__EVENTTIME__TYPE": "iso8601",
            "TIDEMARK_PIPELINE__EVENTTIME__ENABLED": "true",
            "TIDEMARK_PIPELINE__EVENTTIME__LATE_TOLERANCE": "5s",
            "TIDEMARK_PIPELINE__ORDERED": "{trades: {format: parquet}}",
            "TIDEMARK_VIEW_STORE__URL": "postgresql://h/rows",
            "TIDEMARK_SPARK__MASTER": "local[2]",
            "TIDEMARK_SPARK__OPTIONS": "{spark.driver.memory: 4g}",
        },
    )
    assert config.meters["m"].close_after_us == 72 * HOUR_US
    assert (config.meters["m"].group_by, config.meters["m"].where) == (["region"], "quantity > 0")
    assert config.views["v"].delete_when == "price = 0"
    assert config.views["v"].calculated == {"twice": "price * 2"}
    assert config.streams["trades"].eventtime == EventtimeColumn(column="note", type="iso8601")
    assert config.pipeline.eventtime.late_tolerance_us == 5_000_000
    assert config.pipeline.ordered["trades"].format == "parquet"
    assert config.view_store.url == "postgresql://h/rows"
    assert config.spark == SparkConfig(
        master="local[2]", options={"spark.driver.memory": "4g"}, java_home=None
    )


def test_the_environment_changes_one_option_that_the_file_has(file: ConfigFile) -> None:
    text = "spark: {options: {spark.driver.memory: 4g, spark.ui.enabled: false}}"
    config = file.load(text, {"TIDEMARK_SPARK__OPTIONS__SPARK_DRIVER_MEMORY": "8g"})
    assert config.spark.options == {"spark.driver.memory": "8g", "spark.ui.enabled": False}


@pytest.mark.parametrize("kind", BUILT_IN_EVENTTIME_TYPES)
def test_a_stream_takes_any_built_in_type_of_event_time(file: ConfigFile, kind: str) -> None:
    config = file.load(
        f"streams: {{s: {{fields: {{t: int}}, eventtime: {{column: t, type: {kind}}}}}}}"
    )
    assert config.streams["s"].eventtime == EventtimeColumn(column="t", type=kind)


def test_an_unknown_type_of_event_time_names_those_there_are(file: ConfigFile) -> None:
    problem = file.problem("""
        streams: {s: {fields: {t: int}, eventtime: {column: t, type: unixtime}}}
        pipeline: {eventtime: {types: {mine: "a.b:c"}}}
    """)
    assert problem.path == "streams.s.eventtime.type"
    assert problem.message == 'expected a type of event time, found "unixtime"'
    for name in (*BUILT_IN_EVENTTIME_TYPES, "mine"):
        assert f"`{name}`" in problem.hint


def test_a_missing_column_of_event_time_names_the_fields(file: ConfigFile) -> None:
    problem = file.problem(
        "streams: {s: {fields: {at: int, b: int}, eventtime: {column: zz, type: iso8601}}}"
    )
    assert problem.path == "streams.s.eventtime.column"
    assert problem.message == 'expected a field of the stream, found "zz"'
    assert problem.hint == "There are `at` and `b`."


def test_event_time_in_a_stream_without_fields_says_that_there_are_none(file: ConfigFile) -> None:
    problem = file.problem("streams: {u: {kind: usage, eventtime: {column: t, type: iso8601}}}")
    assert problem.path == "streams.u.eventtime.column"
    assert problem.hint == "The stream declares no fields."


def test_event_time_needs_a_stream_that_declares_it(file: ConfigFile) -> None:
    problem = file.problem(TRADES + "pipeline: {eventtime: {enabled: true}}")
    assert problem.path == "pipeline.eventtime.enabled"
    assert problem.message == "expected a stream that declares `eventtime`, found none"
    assert not file.load(TRADES + "pipeline: {eventtime: }").pipeline.eventtime.enabled


@pytest.mark.parametrize("path", ["a.b", "a.b:", ":c", "a/b:c", "a.b:c()", "a..b:c", "", "5"])
def test_a_type_of_event_time_is_a_function_in_a_module(file: ConfigFile, path: str) -> None:
    problem = file.problem(f"pipeline: {{eventtime: {{types: {{t: '{path}'}}}}}}")
    assert problem.path == "pipeline.eventtime.types.t"
    assert "expected a function such as `package.module:function`" in problem.message


@pytest.mark.parametrize("name", ["iso8601", "a-b", "A" * 65])
def test_a_type_of_event_time_has_a_new_and_plain_name(file: ConfigFile, name: str) -> None:
    assert file.problem(f"pipeline: {{eventtime: {{types: {{{name}: 'a:b'}}}}}}").path.startswith(
        "pipeline.eventtime.types."
    )


def test_an_ordered_stream_is_declared(file: ConfigFile) -> None:
    problem = file.problem(TRADES + "pipeline: {ordered: {trade: {}}}")
    assert problem.path == "pipeline.ordered.trade"
    assert problem.hint == "Did you mean `trades`?"


def test_ordered_streams_have_directories_of_their_own(file: ConfigFile) -> None:
    text = """\
  notes: {fields: {text: string}}
pipeline: {ordered: {trades: {}, notes: {path: ordered/trades}}}
"""
    assert file.problem(TRADES + text).path == "pipeline.ordered.notes.path"


def test_usage_is_not_written_in_order(file: ConfigFile) -> None:
    problem = file.problem(TRADES + "pipeline: {ordered: {usage: {}}}")
    assert problem.path == "pipeline.ordered.usage"


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("driver.memory: 4g", "Did you mean `spark.driver.memory`?"),
        ("spark.sql.session.timeZone: UTC", "`meters.<name>.timezone`"),
        ("spark.sql.legacy.castComplexTypesToString.enabled: true", "mean the same on every run"),
        ("spark.sql.ansi.enabled: true", "Remove it."),
        ("spark.master: 'local[2]'", "Use `spark.master`"),
        ("spark.x: [1]", ""),
        ("spark.x: null", ""),
    ],
)
def test_options_of_spark_are_those_that_are_free(file: ConfigFile, option: str, hint: str) -> None:
    problem = file.problem(f"spark: {{options: {{{option}}}}}")
    assert problem.path.startswith("spark.options.")
    assert hint in problem.hint


def test_no_option_of_spark_is_shown(file: ConfigFile) -> None:
    option = "spark.hadoop.fs.s3a.secret.key"
    config = file.load(f"spark: {{options: {{{option}: hunter2}}}}")
    assert "hunter2" not in repr(config)
    assert "hunter2" not in str(file.problem(f"spark: {{options: {{{option}: [hunter2]}}}}"))


def test_all_problems_are_reported_at_once(file: ConfigFile) -> None:
    problems = file.problems(
        dedent("""\
        streams:
          usage: {kind: usage, metrics: [calls]}
          trades:
            fields: {trade_id: string}
            eventtime: {column: at, type: iso}
        meters:
          call: {aggregate: avrage, group_by: [total], timezone: Mars}
        views:
          call: {stream: trade, key: [trade_id]}
          trades: {stream: trades, key: [id], calculated: {trade_id: ''}}
        pipeline: {ordered: {trade: }}
        spark: {options: {spark.master: local}}
    """)
    )
    assert [problem.path for problem in problems] == [
        "streams.trades.eventtime.column",
        "streams.trades.eventtime.type",
        "meters.call",
        "meters.call.aggregate",
        "meters.call.group_by[0]",
        "meters.call.timezone",
        "views.call",
        "views.call.stream",
        "views.trades.key[0]",
        "views.trades.calculated.trade_id",
        "views.trades.calculated.trade_id",
        "pipeline.ordered.trade",
        'spark.options."spark.master"',
    ]


def test_rules_still_speak_when_something_else_has_the_wrong_type(file: ConfigFile) -> None:
    problems = file.problems("""
        streams: {s: {fields: {x: int}, eventtime: 5}, t: {fields: 5, eventtime: {column: []}}}
        meters: {a: 5, b: {group_by: 5, metric: []}, c: {group_by: [1, tenant_id]}}
        views: {v: 5, w: {stream: [], key: 5, calculated: 5}, x: {stream: s, key: [1, y]}}
        pipeline: {eventtime: {types: 5, enabled: true}, ordered: {z: 5}}
        spark: {options: 5}
    """)
    assert {
        *("meters", "meters.c.group_by[1]", "views.x.key[1]", "views.w.stream", "spark.options"),
        *("pipeline.ordered.z", "streams.t.eventtime.column"),
    } <= {problem.path for problem in problems}


PG = "postgresql://me:p%40ss@db.internal/tidemark"


@pytest.mark.parametrize(
    ("master", "ledger", "views", "warned_of"),
    [
        ("local[4]", None, None, []),
        ("local-cluster[2,1,1024]", None, None, []),
        ("spark://127.0.0.1:7077", None, None, []),
        ("spark://head.internal:7077", PG, None, []),
        ("spark://localhost.internal:7077", None, None, ["ledger.url", "view_store.url"]),
        ("spark://head.internal:7077", "sqlite:///l.db", PG, ["ledger.url"]),
        ("yarn", PG, "sqlite:///v.db", ["view_store.url"]),
        ("k8s://https://k8s.internal", PG, "postgresql://localhost/v", ["view_store.url"]),
        ("yarn", "postgresql://me:x@127.0.0.1:5432/l", PG, ["ledger.url"]),
    ],
)
def test_advice_is_given_where_the_tasks_of_a_cluster_cannot_read_a_store(
    file: ConfigFile, master: str, ledger: str | None, views: str | None, warned_of: list[str]
) -> None:
    text = f"streams: {{usage: {{kind: usage}}}}\nspark: {{master: '{master}'}}\n"
    text += "" if ledger is None else f"ledger: {{url: '{ledger}'}}\n"
    text += "" if views is None else f"view_store: {{url: '{views}'}}\n"
    remarks = advise(file.load(text))
    assert [remark.path for remark in remarks] == warned_of
    assert all("p%40ss" not in remark.message for remark in remarks)
