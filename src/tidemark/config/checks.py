"""What must fit together: rules that span several settings.

What concerns the pipeline (meters, views, event time, Spark) is in `pipeline_checks`, what concerns
tokens, triggers and webhooks in `live_checks`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, get_args

from tidemark.config.live_checks import LIVE_RULES
from tidemark.config.mirror_checks import MIRROR_RULES
from tidemark.config.model import FieldType, HttpConfig, IngestConfig, LedgerConfig
from tidemark.config.names import FIELD_NAME_PATTERN, OWN_STREAMS, STREAM_NAME_PATTERN
from tidemark.config.pipeline_checks import PIPELINE_RULES
from tidemark.config.problems import Location, redact, shorten
from tidemark.config.raw_settings import (
    Finding,
    Rule,
    fields_of,
    mapping_of,
    sections,
    texts_of,
)
from tidemark.config.suggestions import did_you_mean
from tidemark.config.values import is_host, is_loopback

_STREAM_NAME = re.compile(STREAM_NAME_PATTERN)
_FIELD_NAME = re.compile(FIELD_NAME_PATTERN)
_NAME_HINT: Final = "A name begins with a letter or `_`."
_LISTEN_DEFAULT: Final = HttpConfig().host


def cross_check(raw: dict[str, Any]) -> Iterator[Finding]:
    """All that does not fit together, rule by rule."""
    for rule in RULES:
        yield from rule(raw)


def names_are_plain(raw: dict[str, Any]) -> Iterator[Finding]:
    for name, stream in sections(raw, "streams"):
        if not _STREAM_NAME.fullmatch(name):
            message = "expected a name of at most 64 letters, digits, `_`, `.` and `-`"
            yield ("streams", name), f"{message}, found {shorten(name)}", _NAME_HINT
        if name.lower().startswith(OWN_STREAMS):
            message = f"names that begin with `{OWN_STREAMS}` are Tidemark's own"
            yield ("streams", name), message, "Give the stream another name."
        for field, _ in fields_of(stream):
            if not _FIELD_NAME.fullmatch(field):
                message = "expected a name of at most 64 letters, digits and `_`"
                place = ("streams", name, "fields", field)
                yield place, f"{message}, found {shorten(field)}", _NAME_HINT


def usage_stands_once(raw: dict[str, Any]) -> Iterator[Finding]:
    usage = [name for name, stream in sections(raw, "streams") if stream.get("kind") == "usage"]
    for name in usage[1:]:
        message = f"expected at most one usage stream, found {shorten(usage[0])} before this one"
        hint = "Put all metrics in one usage stream, or make this one a stream of events."
        yield ("streams", name, "kind"), message, hint


def kinds_have_their_settings(raw: dict[str, Any]) -> Iterator[Finding]:
    for name, stream in sections(raw, "streams"):
        place = ("streams", name)
        if stream.get("kind", "events") == "usage":
            if stream.get("identity"):
                message = "expected no identity in a usage stream, found one"
                hint = "Usage events are known by tenantId, metric, customerRef, resourceId and ts."
                yield (*place, "identity"), message, hint
        elif stream.get("kind", "events") == "events":
            if stream.get("metrics") is not None:
                message = "expected metrics only in a usage stream, found some"
                hint = "Remove them, or say `kind: usage`."
                yield (*place, "metrics"), message, hint
            if stream.get("fields") in (None, {}):
                message = "expected at least one field, found none"
                hint = "Declare what `data` holds, for example `fields: {order_id: string}`."
                yield (*place, "fields"), message, hint


def identity_names_required_fields(raw: dict[str, Any]) -> Iterator[Finding]:
    for name, stream in sections(raw, "streams"):
        if stream.get("kind", "events") != "events":
            continue
        fields = dict(fields_of(stream))
        for index, field in texts_of(stream.get("identity")):
            place = ("streams", name, "identity", index)
            if field not in fields:
                message = f"expected a field of the stream, found {shorten(field)}"
                yield place, message, did_you_mean(field, fields)
            elif fields[field].get("required") is False:
                message = f"expected a field that every event has, found {shorten(field)}"
                yield place, message, "Remove its `required: false`, or name another field."
            elif fields[field].get("type") == "json":
                message = f"expected a field of a plain type, found {shorten(field)} of type json"
                yield place, message, "Name fields that hold a single value."


def types_have_their_settings(raw: dict[str, Any]) -> Iterator[Finding]:
    for name, stream in sections(raw, "streams"):
        for field, settings in fields_of(stream):
            place = ("streams", name, "fields", field)
            kind = settings.get("type")
            if kind not in get_args(FieldType):
                continue
            if kind == "enum" and settings.get("values") in (None, []):
                message = "expected the values of the enum, found none"
                yield (*place, "values"), message, "For example `values: [buy, sell]`."
            if kind != "enum" and settings.get("values") is not None:
                message = f"expected values only with type enum, found type {kind}"
                yield (*place, "values"), message, "Remove them, or say `type: enum`."
            if kind != "string" and settings.get("max_length") is not None:
                message = f"expected a length only with type string, found type {kind}"
                yield (*place, "max_length"), message, "Remove it, or say `type: string`."


def lists_have_no_repeats(raw: dict[str, Any]) -> Iterator[Finding]:
    lists: list[tuple[Location, Any]] = []
    for name, stream in sections(raw, "streams"):
        lists += [(("streams", name, key), stream.get(key)) for key in ("identity", "metrics")]
        for field, settings in fields_of(stream):
            lists.append((("streams", name, "fields", field, "values"), settings.get("values")))
    lists += [(("views", name, "key"), view.get("key")) for name, view in sections(raw, "views")]
    lists += [
        (("windows", name, "group_by"), window.get("group_by"))
        for name, window in sections(raw, "windows")
    ]
    for index, key in _keys(raw):
        lists += [(("auth", "keys", index, name), key.get(name)) for name in ("scopes", "tenants")]
    http = mapping_of(raw, "http")
    lists += [(("http", name), http.get(name)) for name in ("allowed_hosts", "allowed_origins")]
    for place, entries in lists:
        seen = set()
        for index, entry in texts_of(entries):
            if entry in seen:
                message = f"expected each entry once, found {shorten(redact(entry))} again"
                yield (*place, index), message, "Remove one of the two."
            seen.add(entry)


def metrics_are_some(raw: dict[str, Any]) -> Iterator[Finding]:
    for name, stream in sections(raw, "streams"):
        if stream.get("kind") == "usage" and stream.get("metrics") == []:
            message = "expected at least one metric, found none"
            yield ("streams", name, "metrics"), message, "Without the key any name is a metric."


def keys_differ(raw: dict[str, Any]) -> Iterator[Finding]:
    for setting in ("name", "sha256"):
        first: dict[str, int] = {}
        for index, key in _keys(raw):
            value = key.get(setting)
            if not isinstance(value, str):
                continue
            folded = value.lower() if setting == "sha256" else value
            if folded in first:
                message = f"expected another {setting} than that of auth.keys[{first[folded]}]"
                yield ("auth", "keys", index, setting), message, "Change or remove one of the two."
            first.setdefault(folded, index)


def open_host_needs_keys(raw: dict[str, Any]) -> Iterator[Finding]:
    host = mapping_of(raw, "http").get("host", _LISTEN_DEFAULT)
    has_keys = mapping_of(raw, "auth").get("keys") not in (None, [])
    if isinstance(host, str) and is_host(host) and not is_loopback(host) and not has_keys:
        message = f"expected `auth.keys` when others can reach {shorten(host)}, found none"
        hint = "Add a key under `auth.keys`, or listen on `127.0.0.1`."
        yield ("http", "host"), message, hint


def a_full_request_fits(raw: dict[str, Any]) -> Iterator[Finding]:
    http, ledger, ingest = (mapping_of(raw, name) for name in ("http", "ledger", "ingest"))
    events = http.get("max_events", HttpConfig().max_events)
    for name in ("max_group_events", "max_queued_events"):
        bound = ledger.get(name, getattr(LedgerConfig(), name))
        if _is_count(events) and _is_count(bound) and events > bound:
            message = f"expected at most {bound}, which is `ledger.{name}`, found {events}"
            hint = "The events of one request are committed together: lower one or raise the other."
            yield ("http", "max_events"), message, hint
    body = http.get("max_body_bytes", HttpConfig().max_body_bytes)
    event = ingest.get("max_event_bytes", IngestConfig().max_event_bytes)
    if _is_count(body) and _is_count(event) and event > body:
        message = f"expected at most {body}, which is `http.max_body_bytes`, found {event}"
        yield ("ingest", "max_event_bytes"), message, "Lower one or raise the other."


RULES: Final[tuple[Rule, ...]] = (
    names_are_plain,
    usage_stands_once,
    kinds_have_their_settings,
    identity_names_required_fields,
    types_have_their_settings,
    lists_have_no_repeats,
    metrics_are_some,
    keys_differ,
    open_host_needs_keys,
    a_full_request_fits,
    *PIPELINE_RULES,
    *LIVE_RULES,
    *MIRROR_RULES,
)


def _keys(raw: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    keys = mapping_of(raw, "auth").get("keys")
    if not isinstance(keys, list):
        return []
    return [(index, key) for index, key in enumerate(keys) if isinstance(key, dict)]


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0
