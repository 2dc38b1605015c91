"""What must fit together in meters, views, event time and the options of Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from tidemark.config.names import (
    BUILT_IN_EVENTTIME_TYPES,
    COLUMN_NAME_PATTERN,
    EVENTTIME_TYPE_PATTERN,
    FIELD_NAME_PATTERN,
    VIEW_NAME_PATTERN,
)
from tidemark.config.pinned_options import why_pinned
from tidemark.config.problems import Location, shorten
from tidemark.config.raw_settings import (
    Finding,
    Rule,
    fields_of,
    mapping_of,
    sections,
    texts_of,
)
from tidemark.config.suggestions import and_list, did_you_mean, nearest, or_list
from tidemark.config.window_checks import WINDOW_RULES, late_view

# The columns that every row of a view has, in lower case as all names here are compared: SQLite
# does not tell upper from lower case.
TABLE_COLUMNS: Final = frozenset({"tenant_id", "row_ts", "row_seq", "row_key", "row_received_at"})
# Those of a meter's rows, and of the adjustments that are listed with them.
METER_COLUMNS: Final = frozenset(
    {
        *("tenant_id", "metric", "customer_ref", "period_start"),
        *("agg_sum", "agg_max", "agg_min", "agg_count", "agg_last", "watermark_ts"),
        *("counted", "adjusted", "total", "last_ts", "last_sequence"),
        *("all_sum", "all_max", "all_min", "all_count", "all_distinct", "all_last"),
        *("all_last_ts", "all_last_sequence", "standing_sum", "standing_count"),
        *("amount", "reason", "idempotency_key", "ingress_sequence"),
        *("original_key", "original_sequence", "received_at", "row_key", "row_received_at"),
    }
)
# The table of this view would be the log of changes.
RESERVED_VIEW: Final = "changes"

_OPTION_PREFIX: Final = "spark."

_VIEW_NAME = re.compile(VIEW_NAME_PATTERN)
_FIELD_NAME = re.compile(FIELD_NAME_PATTERN)
_COLUMN_NAME = re.compile(COLUMN_NAME_PATTERN)
_EVENTTIME_TYPE = re.compile(EVENTTIME_TYPE_PATTERN)
_NAME_HINT: Final = "A name begins with a letter or `_`."


def names_of_views_are_plain_and_differ(raw: dict[str, Any]) -> Iterator[Finding]:
    taken: dict[str, str] = {}
    for kind in ("meters", "views", "windows"):
        for name, _ in sections(raw, kind):
            if not _VIEW_NAME.fullmatch(name):
                message = "expected a name of at most 47 letters, digits and `_`, without `__`"
                yield (kind, name), f"{message}, found {shorten(name)}", _NAME_HINT
            elif name.lower() == RESERVED_VIEW:
                message = f"expected another name, found {shorten(name)}"
                yield (kind, name), message, "It is kept for the log of changes."
            elif name.lower() in taken:
                message = f"expected a name of its own, found that of {taken[name.lower()]}"
                hint = "Meters, views and windows share their names; case makes no difference."
                yield (kind, name), message, hint
            taken.setdefault(name.lower(), f"{kind}.{name}")
    for name, window in sections(raw, "windows"):
        late = late_view(name)
        if window.get("late") != "side_output" or not _VIEW_NAME.fullmatch(name):
            continue
        if not _VIEW_NAME.fullmatch(late):
            message = f"expected a name that leaves room for that of its late events, {late}"
            yield ("windows", name), message, "With `late: side_output`, at most 42 characters fit."
        elif late.lower() in taken:
            message = f"expected the name of its late events, {late}, to be free"
            hint = f"{taken[late.lower()]} has it; name one of the two otherwise."
            yield ("windows", name), message, hint


def meters_have_usage(raw: dict[str, Any]) -> Iterator[Finding]:
    meters = sections(raw, "meters")
    usage = _usage_stream(raw)
    if usage is None:
        if meters:
            message = "expected a usage stream to take events from, found none"
            yield ("meters",), message, "Declare one: `streams: {usage: {kind: usage}}`."
        return
    stream_name, stream = usage
    metrics = [metric for _, metric in texts_of(stream.get("metrics"))]
    for name, meter in meters:
        metric = meter.get("metric", name)
        if metrics and isinstance(metric, str) and metric not in metrics:
            place = ("meters", name, "metric") if "metric" in meter else ("meters", name)
            message = f"expected a metric of stream {stream_name}, found {shorten(metric)}"
            yield place, message, did_you_mean(metric, metrics)


def groups_can_be_columns(raw: dict[str, Any]) -> Iterator[Finding]:
    usage = _usage_stream(raw)
    meta = [] if usage is None else [field for field, _ in fields_of(usage[1])]
    for name, meter in sections(raw, "meters"):
        seen: set[str] = set()
        for index, field in texts_of(meter.get("group_by")):
            place = ("meters", name, "group_by", index)
            if not _COLUMN_NAME.fullmatch(field):
                message = "expected a name of at most 63 letters, digits and `_`"
                yield place, f"{message}, found {shorten(field)}", _NAME_HINT
            elif field.lower() in METER_COLUMNS:
                message = f"expected another name, found {shorten(field)}"
                yield place, message, "Rows of meters have a column of this name already."
            elif field.lower() in seen:
                message = f"expected each name once, found {shorten(field)} again"
                yield place, message, "Remove one of the two; case makes no difference."
            elif meta and field not in meta:
                message = f"expected a field of `meta`, found {shorten(field)}"
                yield place, message, did_you_mean(field, meta)
            seen.add(field.lower())


def views_show_streams_of_events(raw: dict[str, Any]) -> Iterator[Finding]:
    streams = dict(sections(raw, "streams"))
    for kind, name, view in _of_streams(raw):
        stream_name = view.get("stream")
        if not isinstance(stream_name, str):
            continue
        place = (kind, name, "stream")
        if stream_name not in streams:
            known = [known for known, stream in streams.items() if _holds_events(stream)]
            message = f"expected a stream that is declared, found {shorten(stream_name)}"
            yield place, message, did_you_mean(stream_name, known) or "Declare it in `streams`."
        elif streams[stream_name].get("kind") == "usage":
            message = f"expected a stream of events, found {shorten(stream_name)} of usage"
            yield place, message, "What usage comes to is shown by `meters`."


def keys_of_views_are_required_fields(raw: dict[str, Any]) -> Iterator[Finding]:
    for kind, name, view, _, stream in _views_of_events(raw):
        if kind != "views":
            continue
        fields = dict(fields_of(stream))
        for index, field in texts_of(view.get("key")):
            place = ("views", name, "key", index)
            if field == "tenant_id":
                message = "expected fields of the stream only, found the tenant"
                yield place, message, "Remove it: rows of different tenants are always apart."
            elif field not in fields:
                message = f"expected a field of the stream, found {shorten(field)}"
                yield place, message, did_you_mean(field, fields)
            elif fields[field].get("required") is False:
                message = f"expected a field that every event has, found {shorten(field)}"
                yield place, message, "Remove its `required: false`, or name another field."
            elif fields[field].get("type") == "json":
                message = f"expected a field of a plain type, found {shorten(field)} of type json"
                yield place, message, "Name fields that hold a single value."


def fields_can_be_columns(raw: dict[str, Any]) -> Iterator[Finding]:
    checked: set[str] = set()
    for _, view_name, _, stream_name, stream in _views_of_events(raw):
        if stream_name in checked:
            continue
        checked.add(stream_name)
        seen: set[str] = set()
        for field, _ in fields_of(stream):
            place = ("streams", stream_name, "fields", field)
            wanted = f"expected a name that can be a column of view {view_name}"
            if field.lower() in TABLE_COLUMNS:
                hint = "Rows of views have a column of this name already."
                yield place, f"{wanted}, found {shorten(field)}", hint
            elif field.lower() in seen:
                hint = "It differs from another field in case only."
                yield place, f"{wanted}, found {shorten(field)}", hint
            elif _FIELD_NAME.fullmatch(field) and not _COLUMN_NAME.fullmatch(field):
                yield place, f"{wanted}, found {len(field)} characters", "At most 63 fit."
            seen.add(field.lower())


def calculated_columns_are_new(raw: dict[str, Any]) -> Iterator[Finding]:
    streams = dict(sections(raw, "streams"))
    for name, view in sections(raw, "views"):
        stream_name = view.get("stream")
        stream = streams.get(stream_name, {}) if isinstance(stream_name, str) else {}
        fields = {field.lower() for field, _ in fields_of(stream)}
        seen: set[str] = set()
        for column in mapping_of(view, "calculated"):
            place = ("views", name, "calculated", column)
            if not _COLUMN_NAME.fullmatch(column):
                message = "expected a name of at most 63 letters, digits and `_`"
                yield place, f"{message}, found {shorten(column)}", _NAME_HINT
            elif column.lower() in fields:
                message = f"expected a name that is no field of the stream, found {shorten(column)}"
                yield place, message, "Name it otherwise; case makes no difference."
            elif column.lower() in TABLE_COLUMNS:
                message = f"expected another name, found {shorten(column)}"
                yield place, message, "Rows of views have a column of this name already."
            elif column.lower() in seen:
                message = f"expected each name once, found {shorten(column)} again"
                yield place, message, "Remove one of the two; case makes no difference."
            seen.add(column.lower())


def eventtime_is_found_and_read(raw: dict[str, Any]) -> Iterator[Finding]:
    types = [*BUILT_IN_EVENTTIME_TYPES, *mapping_of(_eventtime(raw), "types")]
    for name, stream in sections(raw, "streams"):
        declared = mapping_of(stream, "eventtime")
        place = ("streams", name, "eventtime")
        column, kind = declared.get("column"), declared.get("type")
        fields = [field for field, _ in fields_of(stream)]
        if isinstance(column, str) and column not in fields:
            message = f"expected a field of the stream, found {shorten(column)}"
            yield (*place, "column"), message, _available(column, fields)
        if isinstance(kind, str) and kind not in types:
            message = f"expected a type of event time, found {shorten(kind)}"
            yield (*place, "type"), message, _available(kind, types)


def eventtime_has_a_stream(raw: dict[str, Any]) -> Iterator[Finding]:
    is_declared = any(stream.get("eventtime") for _, stream in sections(raw, "streams"))
    if _eventtime(raw).get("enabled") is True and not is_declared:
        message = "expected a stream that declares `eventtime`, found none"
        hint = "For example `eventtime: {column: executed_at, type: iso8601}` in a stream."
        yield ("pipeline", "eventtime", "enabled"), message, hint


def eventtime_types_are_new(raw: dict[str, Any]) -> Iterator[Finding]:
    for name in mapping_of(_eventtime(raw), "types"):
        place = ("pipeline", "eventtime", "types", name)
        if not _EVENTTIME_TYPE.fullmatch(name):
            message = "expected a name of at most 64 letters, digits and `_`"
            yield place, f"{message}, found {shorten(name)}", _NAME_HINT
        elif name in BUILT_IN_EVENTTIME_TYPES:
            message = f"expected another name, found {shorten(name)}, which is built in"
            yield place, message, "Name it otherwise."


def ordered_streams_are_declared(raw: dict[str, Any]) -> Iterator[Finding]:
    streams = [name for name, _ in sections(raw, "streams")]
    paths: dict[str, str] = {}
    for name, ordered in sections(mapping_of(raw, "pipeline"), "ordered"):
        place: Location = ("pipeline", "ordered", name)
        if name not in streams:
            message = f"expected a stream that is declared, found {shorten(name)}"
            yield place, message, did_you_mean(name, streams) or "Declare it in `streams`."
        elif (usage := _usage_stream(raw)) is not None and name == usage[0]:
            message = f"expected a stream of kind `events`, found {shorten(name)}, which is usage"
            yield place, message, "Usage is read by meters; it has no order to be written in."
        path = ordered.get("path", f"ordered/{name}")
        if isinstance(path, str):
            if path in paths:
                message = f"expected a directory of its own, found that of {shorten(paths[path])}"
                yield (*place, "path"), message, "Give each stream another path."
            paths.setdefault(path, name)


def options_of_spark_are_free(raw: dict[str, Any]) -> Iterator[Finding]:
    for key in _keys(mapping_of(raw, "spark").get("options")):
        place = ("spark", "options", key)
        if not key.startswith(_OPTION_PREFIX) or key == _OPTION_PREFIX:
            message = f"expected an option that begins with `spark.`, found {shorten(key)}"
            yield place, message, f"Did you mean `{_OPTION_PREFIX}{key}`?" if key else ""
        elif (why := why_pinned(key)) is not None:
            message = "expected an option that is free to set, found one that results depend on"
            yield place, message, f"Remove it. {why}"
        elif key == "spark.master":
            message = "expected other options only, found the master"
            yield place, message, "Use `spark.master`: `spark: {master: …}`."


PIPELINE_RULES: Final[tuple[Rule, ...]] = (
    names_of_views_are_plain_and_differ,
    meters_have_usage,
    groups_can_be_columns,
    views_show_streams_of_events,
    keys_of_views_are_required_fields,
    fields_can_be_columns,
    calculated_columns_are_new,
    eventtime_is_found_and_read,
    eventtime_has_a_stream,
    eventtime_types_are_new,
    ordered_streams_are_declared,
    options_of_spark_are_free,
    *WINDOW_RULES,
)


def _usage_stream(raw: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    for name, stream in sections(raw, "streams"):
        if stream.get("kind") == "usage":
            return name, stream
    return None


def _holds_events(stream: dict[str, Any]) -> bool:
    return bool(stream.get("kind", "events") == "events")


def _of_streams(raw: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What is made of streams of events: its kind, its name and its settings."""
    for kind in ("views", "windows"):
        for name, view in sections(raw, kind):
            yield kind, name, view


def _views_of_events(
    raw: dict[str, Any],
) -> Iterator[tuple[str, str, dict[str, Any], str, dict[str, Any]]]:
    """Views and windows with their streams, where these are fit to be shown."""
    streams = dict(sections(raw, "streams"))
    for kind, name, view in _of_streams(raw):
        stream_name = view.get("stream")
        if isinstance(stream_name, str) and _holds_events(streams.get(stream_name, {"kind": ""})):
            yield kind, name, view, stream_name, streams[stream_name]


def _eventtime(raw: dict[str, Any]) -> dict[str, Any]:
    return mapping_of(mapping_of(raw, "pipeline"), "eventtime")


def _keys(value: Any) -> list[str]:
    return list(value) if isinstance(value, dict) else []


def _available(word: str, names: list[str]) -> str:
    """All that there is, and what is nearest to the word."""
    if not names:
        return "The stream declares no fields."
    near = nearest(word, names)
    there_is = f"There {'is' if len(names) == 1 else 'are'} {and_list(names)}."
    return f"Did you mean {or_list(near)}? {there_is}" if near else there_is
