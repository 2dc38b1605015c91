"""`tidemark init` and `tidemark check`: a configuration to begin with, and what one means."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from tidemark.cli.options import (
    CONFIG_NAME,
    CONFIG_VARIABLE,
    Configured,
    config_option,
    configuration,
    json_option,
)
from tidemark.cli.outcome import unreadable
from tidemark.cli.output import (
    pairs,
    plural,
    program_name,
    write_json,
    write_line,
    write_lines,
    write_note,
)
from tidemark.config import Config, Problem, StreamConfig, advise, json_schema, redact, sample_text
from tidemark.config.durations import format_duration
from tidemark.errors import TidemarkError

_YAML_SUFFIXES = (".yaml", ".yml")


@click.command
@click.argument("path", metavar="[PATH]", type=click.Path(path_type=Path), default=Path("."))
@click.option("--force", is_flag=True, help="Replace a file that is there already.")
@json_option
def init(path: Path, force: bool, as_json: bool) -> None:
    """Write a commented sample configuration.

    PATH is a directory, which gets a tidemark.yaml, or a file that ends in .yaml or .yml. Without
    it the file is written here. A file that is there already is left alone.
    """
    target = path if path.suffix in _YAML_SUFFIXES and not path.is_dir() else path / CONFIG_NAME
    _write_file(target, sample_text(), replace=force)
    option = "" if _is_found_by_itself(target) else f" -c {shlex.quote(str(target))}"
    program = program_name()
    steps = [f"{program} check{option}", f"{program} up{option} --demo"]
    if as_json:
        write_json({"path": str(target), "next": steps})
        return
    write_line(f"Wrote {target}, a sample with a stream of usage and a stream of trades.")
    write_line("Next:")
    write_lines(
        pairs([(steps[0], "says what it means"), (steps[1], "starts it with sample traffic")])
    )


@click.command
@config_option
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the file, for editors.")
@click.option(
    "--expressions",
    is_flag=True,
    help="Also check the Spark SQL in it, types of event time, and that row rules, triggers and"
    " GraphQL fit the views; starts Spark for some seconds.",
)
@json_option
def check(config_path: Path | None, schema: bool, expressions: bool, as_json: bool) -> None:
    """Say what a configuration means, or what is wrong with it.

    Every problem is listed with its place, what was expected and a hint; the exit code is then 2.
    Files with keys are opened. No database is asked, and nothing is started but Spark, for
    --expressions.
    """
    if schema:
        import json

        write_line(json.dumps(json_schema(), indent=2, ensure_ascii=False))
        return
    configured = configuration(config_path)
    _check_access(configured.config)
    if expressions:
        _check_expressions(configured.config)
    warnings = [*advise(configured.config), *_access_advice(configured.config)]
    if as_json:
        write_json(_document(configured, warnings, expressions=expressions))
        return
    write_line(f"{configured.source} is valid.")
    write_lines(pairs(_summary(configured.config)))
    write_lines(_streams(configured.config))
    write_lines(_rollups(configured.config))
    write_lines(_triggers(configured.config))
    if expressions:
        write_line("  Spark takes every expression.")
        write_line("  Row rules, triggers and GraphQL fit the views.")
    elif configured.config.view_names:
        write_line("  expressions: not checked; --expressions does, with Spark")
    for warning in warnings:
        write_note(f"warning: {warning.path}: {warning.message}", style="yellow")
        if warning.hint:
            write_note(f"  hint: {warning.hint}")


def ledger_text(config: Config) -> str:
    """Where the ledger is, without the password to it."""
    kind, place = _ledger(config)
    return f"{'SQLite' if kind == 'sqlite' else 'PostgreSQL'}, {place}"


def access_text(config: Config) -> str:
    """Who may call."""
    if not config.auth.keys:
        return "open to everyone on this machine, since there are no auth.keys"
    return plural(len(config.auth.keys), "API key")


def _summary(config: Config) -> list[tuple[str, str]]:
    rows = [("ledger", ledger_text(config))]
    if config.sequence.url is not None:
        rows.append(("sequence", redact(config.sequence.url)))
    workers = "" if config.http.workers == 1 else f", {config.http.workers} processes"
    rows.append(("listens", f"{config.http.host}:{config.http.port}{workers}"))
    rows.append(("access", access_text(config)))
    rows += [
        ("", f"{key.name}: {', '.join(key.scopes)} for {', '.join(key.tenants)}")
        for key in config.auth.keys
    ]
    if config.auth.jwt:
        rows.append(("tokens", plural(len(config.auth.jwt), "issuer")))
    rows += [
        ("", f"{issuer.name}: {issuer.algorithm}, for {', '.join(issuer.scopes)}")
        for issuer in config.auth.jwt
    ]
    return rows


def _streams(config: Config) -> Iterable[str]:
    yield f"  {plural(len(config.streams), 'stream')}"
    for name, stream in config.streams.items():
        yield f"    {name} ({stream.kind})" + (
            f": {stream.description}" if stream.description else ""
        )
        if stream.identity:
            yield f"      identity  {', '.join(stream.identity)}"
        if stream.metrics is not None:
            yield f"      metrics   {', '.join(stream.metrics)}"
        if stream.fields:
            yield f"      {'meta' if stream.kind == 'usage' else 'data':9} {_fields(stream)}"


def _rollups(config: Config) -> Iterable[str]:
    if config.meters:
        yield f"  {plural(len(config.meters), 'meter')}"
    for name, meter in config.meters.items():
        groups = f" by {', '.join(meter.group_by)}" if meter.group_by else ""
        yield f"    {name}: {meter.aggregate} of {meter.metric or name} a {meter.period}{groups}"
    if config.views:
        yield f"  {plural(len(config.views), 'view')}"
    for name, view in config.views.items():
        yield f"    {name}: the last of {view.stream} by {', '.join(view.key)}"
    if config.windows:
        yield f"  {plural(len(config.windows), 'window')}"
    for name, window in config.windows.items():
        groups = f" by {', '.join(window.group_by)}" if window.group_by else ""
        every = f" every {format_duration(window.every_us)}" if window.every_us else ""
        value = f" of {window.value}" if window.value else ""
        yield (
            f"    {name}: {window.aggregate}{value} in {window.stream} over"
            f" {format_duration(window.size_us)}{every}{groups}"
        )


def _triggers(config: Config) -> Iterable[str]:
    if config.triggers:
        yield f"  {plural(len(config.triggers), 'trigger')}"
    for name, trigger in config.triggers.items():
        yield f"    {name}: on {trigger.view}{'' if trigger.enabled else ', switched off'}"


def _check_access(config: Config) -> None:
    """Raises `ConfigError` for keys that cannot be read, and where one is missing."""
    if config.auth.jwt or config.triggers:
        from tidemark.app.live_check import check_access

        check_access(config)


def _check_expressions(config: Config) -> None:
    """Raises `ConfigError` for the first that Spark does not take, or that does not fit."""
    from tidemark.cli.spark_questions import calculated_columns

    calculated = calculated_columns(config)
    from tidemark.app.live_check import check_live
    from tidemark.app.view_schemas import view_schemas

    check_live(config, view_schemas(config, calculated))


def _fields(stream: StreamConfig) -> str:
    return ", ".join(
        f"{name} {'|'.join(field.values) if field.values else field.type}"
        + ("" if field.required else "?")
        for name, field in stream.fields.items()
    )


def _document(
    configured: Configured, warnings: Iterable[Problem], *, expressions: bool
) -> dict[str, Any]:
    config = configured.config
    kind, place = _ledger(config)
    return {
        "valid": True,
        "config": configured.as_json,
        "stateDir": str(config.state_dir),
        "ledger": {"kind": kind, "location": place},
        "sequence": None if config.sequence.url is None else redact(config.sequence.url),
        "http": {
            "host": config.http.host,
            "port": config.http.port,
            "workers": config.http.workers,
        },
        "access": {
            "mode": "keys" if config.auth.keys else "open",
            "keys": [
                {"name": key.name, "scopes": key.scopes, "tenants": key.tenants}
                for key in config.auth.keys
            ],
            "issuers": [
                {"name": issuer.name, "algorithm": issuer.algorithm, "scopes": issuer.scopes}
                for issuer in config.auth.jwt
            ],
        },
        "streams": {
            name: {
                "kind": stream.kind,
                "identity": stream.identity,
                "metrics": stream.metrics,
                "fields": {
                    field_name: {
                        "type": field.type,
                        "required": field.required,
                        **({"values": field.values} if field.values else {}),
                    }
                    for field_name, field in stream.fields.items()
                },
            }
            for name, stream in config.streams.items()
        },
        "meters": {
            name: {
                "metric": meter.metric or name,
                "aggregate": meter.aggregate,
                "period": meter.period,
                "timezone": meter.timezone,
                "groupBy": meter.group_by,
            }
            for name, meter in config.meters.items()
        },
        "views": {
            name: {"stream": view.stream, "key": view.key, "calculated": list(view.calculated)}
            for name, view in config.views.items()
        },
        "windows": {
            name: {
                "stream": window.stream,
                "size": format_duration(window.size_us),
                "every": format_duration(window.every_us or window.size_us),
                "groupBy": window.group_by,
                "aggregate": window.aggregate,
                "emit": window.emit,
                "late": window.late,
            }
            for name, window in config.windows.items()
        },
        "triggers": {
            name: {"view": trigger.view, "enabled": trigger.enabled}
            for name, trigger in config.triggers.items()
        },
        "expressionsChecked": expressions,
        "warnings": [
            {"path": warning.path, "message": warning.message, "hint": warning.hint}
            for warning in warnings
        ],
    }


def _access_advice(config: Config) -> list[Problem]:
    if config.auth.keys:
        return []
    message = "there are no keys, so everyone on this machine may send and read everything"
    return [Problem("auth.keys", message, "`tidemark keygen` makes one.")]


def _ledger(config: Config) -> tuple[str, str]:
    if config.ledger.url is None:
        return "sqlite", str(config.state_dir / "ledger.db")
    if config.ledger.url.startswith("sqlite:///"):
        return "sqlite", config.ledger.url.removeprefix("sqlite:///")
    return "postgresql", redact(config.ledger.url)


def _is_found_by_itself(target: Path) -> bool:
    is_here = target.absolute() == Path(CONFIG_NAME).absolute()
    return is_here and not os.environ.get(CONFIG_VARIABLE)


def _write_file(target: Path, text: str, *, replace: bool) -> None:
    """Write the whole file or nothing of it."""
    written = target.with_name(f".{target.name}.{os.getpid()}") if replace else target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unreadable(target, error, what="written") from error
    try:
        with written.open("x", encoding="utf-8") as file, _removed_if_it_fails(written):
            file.write(text)
            file.flush()
        if replace:
            written.replace(target)
    except FileExistsError:
        raise TidemarkError(
            f"{target} is there already and was left as it is",
            hint="Edit it, or replace it with --force.",
            code="file_exists",
        ) from None
    except OSError as error:
        raise unreadable(target, error, what="written") from error


@contextlib.contextmanager
def _removed_if_it_fails(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        path.unlink()
        raise
