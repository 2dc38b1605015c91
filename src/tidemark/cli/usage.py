"""`tidemark usage`, `tidemark adjustments` and `tidemark errors`: what was made of the events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tidemark.cli.listing import (
    Column,
    Entry,
    Kind,
    csv_option,
    limit_option,
    show_list,
    since,
)
from tidemark.cli.options import json_option, server, server_options

F = TypeVar("F", bound=Callable[..., Any])

_MIDNIGHT: Final = "T00:00:00Z"


def _field(name: str) -> Callable[[Entry], str]:
    return lambda entry: entry.get(name) or ""


def _groups(entry: Entry) -> str:
    groups = entry.get("groups") or {}
    return ", ".join(f"{name}={value or ''}" for name, value in groups.items())


def _period(entry: Entry) -> str:
    bounds = [_short(entry[name]) for name in ("periodStart", "periodEnd") if entry.get(name)]
    return " – ".join(bounds)


def _short(time: str) -> str:
    """A time without what is zero."""
    return time.replace(".000000Z", "Z").removesuffix(_MIDNIGHT)


_COMMON: Final = (
    Column("METER", _field("meter")),
    Column("TENANT", _field("tenantId")),
    Column("CUSTOMER", _field("customerRef")),
    Column("GROUPS", _groups),
    Column("PERIOD", _period),
)
USAGE: Final = Kind(
    "/v1/usage",
    "usage",
    (
        *("meter", "tenantId", "metric", "customerRef", "periodStart", "periodEnd"),
        *("sum", "max", "min", "count", "last", "counted", "adjusted", "total"),
        *("watermarkTs", "sourceTimestamp", "groups"),
    ),
    (
        *_COMMON,
        Column("COUNTED", _field("counted"), is_number=True),
        Column("ADJUSTED", _field("adjusted"), is_number=True),
        Column("TOTAL", _field("total"), is_number=True),
        Column("EVENTS", _field("count"), is_number=True),
        Column("UP TO", lambda entry: _short(entry.get("watermarkTs") or "")),
    ),
    "No usage was found.",
)
ADJUSTMENTS: Final = Kind(
    "/v1/adjustments",
    "adjustments",
    (
        *("meter", "tenantId", "metric", "customerRef", "periodStart", "quantity", "reason"),
        *("idempotencyKey", "ingressSequence", "part", "sourceTimestamp"),
        *("periodEnd", "originalKey", "originalSequence", "groups"),
    ),
    (
        Column("SEQUENCE", _field("ingressSequence"), is_number=True),
        *_COMMON,
        Column("QUANTITY", _field("quantity"), is_number=True),
        Column("REASON", _field("reason")),
        Column("CORRECTS", _field("originalSequence"), is_number=True),
        Column("KEY", _field("idempotencyKey")),
    ),
    "No adjustments were found.",
)
ERRORS: Final = Kind(
    "/admin/pipeline-errors",
    "errors",
    (
        *("ingressSequence", "stage", "code", "message"),
        *("tenantId", "stream", "idempotencyKey", "receivedAt"),
    ),
    (
        Column("SEQUENCE", _field("ingressSequence"), is_number=True),
        Column("RECEIVED", lambda entry: _short(entry["receivedAt"])),
        Column("TENANT", _field("tenantId")),
        Column("STREAM", _field("stream")),
        Column("STAGE", _field("stage")),
        Column("CODE", _field("code")),
        Column("MESSAGE", _field("message")),
        Column("KEY", _field("idempotencyKey")),
    ),
    "No errors were found.",
)


def usage_filters(command: F) -> F:
    """The filters of whatever belongs to the periods of meters."""
    for option in (
        click.option(
            "--wait",
            "wait_s",
            type=click.FloatRange(0, 30),
            metavar="SECONDS",
            help="How long to wait for --min-sequence. Default: 10.",
        ),
        click.option(
            "--min-sequence",
            type=click.IntRange(min=0),
            metavar="SEQUENCE",
            help="Wait until everything up to this sequence is counted.",
        ),
        click.option("--to", metavar="TIME", help="Only periods that begin before this time."),
        click.option(
            "--from",
            "from_",
            metavar="TIME",
            help="Only periods that end after this time. A date alone is its beginning in UTC.",
        ),
        click.option("--meter", metavar="NAME", help="Only of this meter."),
        click.option("--customer", metavar="NAME", help="Only of this customer."),
        click.option("--metric", metavar="NAME", help="Only of this metric."),
        click.option("--tenant", metavar="NAME", help="Only of this tenant."),
    ):
        command = option(command)
    return command


def _query(
    tenant: str | None,
    metric: str | None,
    customer: str | None,
    meter: str | None,
    from_: str | None,
    to: str | None,
    min_sequence: int | None,
    wait_s: float | None,
) -> dict[str, str | None]:
    return {
        "tenantId": tenant,
        "metric": metric,
        "customerRef": customer,
        "meter": meter,
        "from": since(from_),
        "to": since(to),
        "minSequence": None if min_sequence is None else str(min_sequence),
        "timeoutMs": None if wait_s is None else str(round(wait_s * 1000)),
    }


@click.command
@usage_filters
@limit_option
@server_options
@csv_option
@json_option
def usage(
    limit: int | None,
    url: str | None,
    api_key: str | None,
    config_path: Path | None,
    as_csv: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """Show what was used, by customer and period.

    COUNTED is what a meter has counted, ADJUSTED what came too late for that, and TOTAL both
    together. A running server is asked.
    """
    target = server(url, api_key, config_path)
    show_list(USAGE, target, _query(**filters), limit=limit, as_json=as_json, as_csv=as_csv)


@click.command
@usage_filters
@click.option(
    "--sequence",
    type=click.IntRange(min=0),
    metavar="SEQUENCE",
    help="Only those due to the event with this sequence.",
)
@click.option(
    "--original",
    type=click.IntRange(min=0),
    metavar="SEQUENCE",
    help="Only those due to corrections of the event with this sequence.",
)
@limit_option
@server_options
@csv_option
@json_option
def adjustments(
    sequence: int | None,
    original: int | None,
    limit: int | None,
    url: str | None,
    api_key: str | None,
    config_path: Path | None,
    as_csv: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """Show what came too late to be counted, each with its event.

    These are the events, corrections and operators' adjustments of which the ADJUSTED of
    `tidemark usage` is made. A running server is asked.
    """
    query = {
        **_query(**filters),
        "ingressSequence": None if sequence is None else str(sequence),
        "originalSequence": None if original is None else str(original),
    }
    target = server(url, api_key, config_path)
    show_list(ADJUSTMENTS, target, query, limit=limit, as_json=as_json, as_csv=as_csv)


@click.command
@click.option("--tenant", metavar="NAME", help="Only events of this tenant.")
@click.option("--stream", metavar="NAME", help="Only events of this stream.")
@click.option("--code", metavar="CODE", help="Only errors with this code.")
@click.option(
    "--sequence",
    type=click.IntRange(min=0),
    metavar="SEQUENCE",
    help="Only the event with this sequence.",
)
@limit_option
@server_options
@csv_option
@json_option
def errors(
    tenant: str | None,
    stream: str | None,
    code: str | None,
    sequence: int | None,
    limit: int | None,
    url: str | None,
    api_key: str | None,
    config_path: Path | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Show the events that the pipeline could not take, and why.

    They are in the ledger, but in no meter and no view. A running server is asked.
    """
    query = {
        "tenantId": tenant,
        "stream": stream,
        "code": code,
        "ingressSequence": None if sequence is None else str(sequence),
    }
    target = server(url, api_key, config_path)
    show_list(ERRORS, target, query, limit=limit, as_json=as_json, as_csv=as_csv)
