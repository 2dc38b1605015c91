"""`tidemark explain`: what became of an event and why, and how time and views are planned."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tidemark.cli.answers import not_ours
from tidemark.cli.asking import Asking
from tidemark.cli.explanations import explanation_lines
from tidemark.cli.options import (
    Configured,
    configuration,
    json_option,
    server,
    server_options,
)
from tidemark.cli.outcome import usage_error
from tidemark.cli.output import put, write_json, write_line, write_lines
from tidemark.errors import TidemarkError

if TYPE_CHECKING:
    from tidemark.pipeline.windows.definition import WindowDefinition

_PATH: Final = "/admin/explain"
# What a word can name, and the parameter of the server for it.
_PARAMETERS: Final = {"key": "key", "sequence": "sequence", "reject": "rejectId"}
_HASH_LETTERS: Final = 12


@click.command
@click.argument("event", metavar="[EVENT]", required=False)
@click.option("--tenant", metavar="NAME", help="The tenant of the event.")
@click.option(
    "--as",
    "as_",
    type=click.Choice(list(_PARAMETERS)),
    metavar="KIND",
    help="What EVENT is: key, sequence or reject. Default: a key, or for a number whatever it is.",
)
@click.option("--plan", "show_plan", is_flag=True, help="Explain how time and views are planned.")
@server_options
@json_option
def explain(
    event: str | None,
    tenant: str | None,
    as_: str | None,
    show_plan: bool,
    url: str | None,
    api_key: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Say what became of an event, and why.

    EVENT is its idempotency key, its sequence, or the number of a refusal. A running server is
    asked. With --plan no event is explained, but how the configuration tells time and what is
    folded; no server is needed for that.
    """
    if show_plan == (event is not None):
        raise usage_error(
            "EVENT and --plan exclude each other" if show_plan else "no EVENT is named",
            "Give a key, a sequence or the number of a refusal; or --plan alone.",
        )
    if event is None:
        _show_plan(configuration(config_path), as_json=as_json)
        return
    asking = Asking(server(url, api_key, config_path))
    answer = _first_answer(asking, event, tenant, _meanings(event, tenant, as_))
    if as_json:
        put(answer.decode(), sys.stdout)
        return
    try:
        explanation: dict[str, Any] = msgspec.json.decode(answer)
        lines = list(explanation_lines(explanation))
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError):
        raise not_ours("an explanation that cannot be read") from None
    write_lines(lines)


def _meanings(event: str, tenant: str | None, as_: str | None) -> list[str]:
    """What a word may name, the likeliest first: keys of a tenant may well be numbers."""
    if as_ is not None:
        return [as_]
    if not (event.isascii() and event.isdigit() and len(event) < 20):
        return ["key"]
    return ["sequence", "key", "reject"] if tenant is None else ["key", "sequence", "reject"]


def _first_answer(asking: Asking, event: str, tenant: str | None, meanings: list[str]) -> bytes:
    of_tenant = {} if tenant is None else {"tenantId": tenant}
    failure: TidemarkError | None = None
    for meaning in meanings:
        try:
            query = {_PARAMETERS[meaning]: event, **of_tenant}
            return asking.get(_PATH, query, "explanation").data
        except TidemarkError as error:
            if error.code != "not_found":
                raise
            failure = failure or error
    assert failure is not None
    if len(meanings) == 1:
        raise failure
    raise TidemarkError(
        f"there is no event and no refusal {event}: it is no sequence, no key and no number of one",
        hint=failure.hint,
        code=failure.code,
    )


def _show_plan(configured: Configured, *, as_json: bool) -> None:
    from tidemark.pipeline.definition_hash import definition_hash
    from tidemark.pipeline.definitions import Definitions
    from tidemark.pipeline.time.plans import PLANS, describe, plan_of

    plan = plan_of(configured.config)
    definitions = Definitions.of(configured.config)
    meters = [
        (it.name, f"{it.aggregate} of {it.metric} by {it.period}", definition_hash(it))
        for it in definitions.meters
    ]
    tables = [
        (it.name, f"the last of {it.stream} by {', '.join(it.key)}", definition_hash(it))
        for it in definitions.tables
    ]
    windows = [
        (it.name, f"{it.aggregate} of {it.stream} in {_span(it)}", definition_hash(it))
        for it in definitions.windows
    ]
    if as_json:
        write_json(
            {
                "plan": plan.name,
                "meaning": PLANS[plan.name],
                "streams": msgspec.to_builtins(plan.streams),
                "meters": [_definition(*it) for it in meters],
                "tables": [_definition(*it) for it in tables],
                "windows": [_definition(*it) for it in windows],
            }
        )
        return
    write_lines(describe(plan).splitlines())
    for title, listed in (("meters", meters), ("tables", tables), ("windows", windows)):
        if listed:
            write_line()
            write_lines(_columns([(title, "what", "definition"), *listed]))


def _span(window: WindowDefinition) -> str:
    from tidemark.config.durations import format_duration

    size = format_duration(window.size_us)
    if window.every_us == window.size_us:
        return size
    return f"{size} every {format_duration(window.every_us)}"


def _definition(name: str, what: str, of_meaning: str) -> dict[str, str]:
    return {"name": name, "what": what, "definitionHash": of_meaning}


def _columns(rows: list[tuple[str, str, str]]) -> list[str]:
    names = max(len(row[0]) for row in rows)
    whats = max(len(row[1]) for row in rows)
    return [
        f"{name:{names}}  {what:{whats}}  {of_meaning[:_HASH_LETTERS]}"
        for name, what, of_meaning in rows
    ]
