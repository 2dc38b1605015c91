"""What the settings of windows mean, and what does not fit together in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.config_files import ConfigFile
from tidemark.config.window_checks import WINDOW_COLUMNS
from tidemark.config.window_model import WindowConfig
from tidemark.pipeline.output.schema import Column
from tidemark.pipeline.windows.definition import WindowDefinition, window_schemas

MINUTE_US = 60_000_000
TRADES = """\
streams:
  usage: {kind: usage}
  trades:
    fields:
      symbol: string
      Amount: string
      quantity: decimal
      at: timestamp
      extra: {type: json, required: false}
    eventtime: {column: at, type: iso8601}
"""


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path)


def test_a_window_needs_a_stream_a_size_and_a_value_and_has_defaults(file: ConfigFile) -> None:
    found = file.load(f"{TRADES}windows: {{w: {{stream: trades, size: 1m, value: quantity}}}}")
    assert found.windows["w"] == WindowConfig(
        stream="trades",
        size_us=MINUTE_US,
        every_us=None,
        group_by=[],
        aggregate="sum",
        value="quantity",
        where=None,
        emit="close",
        late="drop",
        refire_for_us=None,
        live=True,
        description=None,
    )
    assert found.view_names == {"w"}


def test_every_setting_reaches_the_definition(file: ConfigFile) -> None:
    config = file.load(f"""{TRADES}
pipeline: {{eventtime: {{enabled: true}}}}
windows:
  w:
    stream: trades
    size: 1m
    every: 10s
    group_by: [symbol]
    aggregate: max
    value: quantity * 2
    where: symbol <> 'X'
    emit: change
    late: refire
    refireFor: 2m
    live: false
    description: The largest.
""")
    definition = WindowDefinition.of("w", config)
    assert (definition.size_us, definition.every_us) == (MINUTE_US, MINUTE_US // 6)
    assert [(group.name, group.type) for group in definition.groups] == [("symbol", "string")]
    assert (definition.aggregate, definition.value) == ("max", "quantity * 2")
    assert definition.where == "symbol <> 'X'"
    assert (definition.emit, definition.late) == ("change", "refire")
    assert definition.refire_for_us == 2 * MINUTE_US
    assert (definition.time_column, definition.time_type) == ("at", "iso8601")
    assert config.windows["w"].live is False


def test_without_event_time_a_window_goes_by_commits_and_a_count_needs_no_value(
    file: ConfigFile,
) -> None:
    text = f"{TRADES}windows: {{w: {{stream: trades, size: 1m, aggregate: count}}}}"
    definition = WindowDefinition.of("w", file.load(text))
    assert (definition.time_column, definition.time_type) == (None, None)
    assert (definition.value, definition.every_us) == ("1", MINUTE_US)


def test_a_side_output_is_a_view_of_its_own(file: ConfigFile) -> None:
    window = "{stream: trades, size: 1m, aggregate: count, late: side_output}"
    rules = "auth: {rules: {w_late: {}}}\n"
    config = file.load(f"{TRADES}windows: {{w: {window}}}\n{rules}")
    assert config.view_names == {"w", "w_late"}


COUNT = "stream: trades, size: 1m, aggregate: count"


@pytest.mark.parametrize(
    ("window", "path", "message", "hint"),
    [
        ("size: 1m", "windows.w.stream", "", ""),
        ("stream: trades, aggregate: count", "windows.w.size", "", ""),
        (
            "stream: trades, size: 1m",
            "windows.w",
            "a value to take the sum of",
            "aggregate: count",
        ),
        ("stream: trads, size: 1m, value: x", "windows.w.stream", "found", "trades"),
        ("stream: usage, size: 1m, value: x", "windows.w.stream", "of usage", "meters"),
        (
            "stream: trades, size: 0s, aggregate: count",
            "windows.w.size",
            "longer than nothing",
            "1m",
        ),
        (f"{COUNT}, every: 0s", "windows.w.every", "longer than nothing", "1m"),
        (f"{COUNT}, every: 2m", "windows.w.every", "no more than the size, 1m", "in neither"),
        (f"{COUNT}, every: 59ms", "windows.w.every", "at most 1000 windows", "in more"),
        (f"{COUNT}, group_by: [symbl]", "windows.w.group_by[0]", "a field of", "symbol"),
        (f"{COUNT}, group_by: [extra]", "windows.w.group_by[0]", "plain type", "single value"),
        (f"{COUNT}, group_by: [Amount]", "windows.w.group_by[0]", "another field", "already"),
        (f"{COUNT}, group_by: [at, at]", "windows.w.group_by[1]", "each entry once", "Remove"),
        (f"{COUNT}, late: refire", "windows.w", "how long late events are counted", "refireFor"),
        (f"{COUNT}, refireFor: 1h", "windows.w.refireFor", "only with `late: refire`", "Remove"),
        (f"{COUNT}, late: refires", "windows.w.late", "drop, side_output, refire", "refire"),
        (f"{COUNT}, emit: closed", "windows.w.emit", "close, change", "close"),
        ("stream: trades, size: 1m, aggregate: total", "windows.w.aggregate", "sum, max", ""),
    ],
)
def test_what_does_not_fit_is_named_with_what_would(
    file: ConfigFile, window: str, path: str, message: str, hint: str
) -> None:
    problems = {p.path: p for p in file.problems(f"{TRADES}windows: {{w: {{{window}}}}}")}
    assert path in problems, problems
    assert message in problems[path].message
    assert hint in problems[path].hint


def test_names_are_shared_with_meters_views_and_late_events(file: ConfigFile) -> None:
    late = f"{{{COUNT}, late: side_output}}"
    for others, path, message in (
        (
            f"windows: {{trades: {{{COUNT}}}}}\nviews: {{trades: {{stream: trades, key: [at]}}}}",
            "windows.trades",
            "views.trades",
        ),
        (f"windows: {{w: {late}, w_late: {{{COUNT}}}}}", "windows.w", "w_late"),
        (f"windows: {{{'w' * 43}: {late}}}", f"windows.{'w' * 43}", "leaves room"),
        (f"windows: {{a__b: {{{COUNT}}}}}", "windows.a__b", "without `__`"),
        (f"windows: {{changes: {{{COUNT}}}}}", "windows.changes", "another name"),
    ):
        problem = file.problem(TRADES + others)
        assert problem.path == path
        assert message in problem.message


def test_no_group_can_have_the_name_of_a_column_that_windows_have() -> None:
    column = Column("g", "string")
    window = WindowDefinition(
        name="w",
        stream="s",
        fields=(column,),
        size_us=1,
        every_us=1,
        group_by=("g",),
        aggregate="unique",
        value="1",
        where=None,
        emit="close",
        late="side_output",
        refire_for_us=0,
    )
    names = {c.name for schema in window_schemas(window) for c in schema.columns}
    assert names - {"g", "of_row"} <= WINDOW_COLUMNS
