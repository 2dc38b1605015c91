"""`tidemark triggers`: which there are, what they have sent, and changing them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from tidemark.cli.listing import Column, Entry, Kind, Page, limit_option, show_pages
from tidemark.cli.options import json_option, server, server_options
from tidemark.cli.outcome import usage_error
from tidemark.cli.output import compact_json, one_line, plural, put, write_json, write_line
from tidemark.cli.trigger_questions import (
    DELIVERY_FIELDS,
    TRIGGER_FIELDS,
    TriggerQuestions,
)
from tidemark.errors import ClientError
from tidemark.live.triggers.port import STATUSES
from tidemark.timestamps import format_timestamp

F = TypeVar("F", bound=Callable[..., Any])


def _text(name: str) -> Callable[[Entry], str]:
    def cell(entry: Entry) -> str:
        value = entry.get(name)
        if value is None:
            return ""
        return value if isinstance(value, str) else compact_json(value)

    return cell


def _source_time(name: str) -> Callable[[Entry], str]:
    return lambda entry: format_timestamp(int(entry[name]))


def _state(entry: Entry) -> str:
    if entry["enabled"]:
        return "enabled"
    reason = entry.get("disabled_reason")
    return f"disabled: {reason}" if reason else "disabled"


def _answer(entry: Entry) -> str:
    parts = (entry.get("response_status"), entry.get("last_error"))
    return " ".join(str(part) for part in parts if part is not None)


LISTED: Final = Kind(
    "/graphql",
    "triggers",
    TRIGGER_FIELDS,
    (
        Column("NAME", _text("name")),
        Column("VIEW", _text("view")),
        Column("STATE", _state),
        Column("SINCE", _source_time("since")),
        Column("MATCH", _text("match")),
        Column("UNMATCH", _text("unmatch")),
        Column("WEBHOOK", _text("webhook")),
    ),
    "No triggers were found.",
)
DELIVERIES: Final = Kind(
    "/graphql",
    "deliveries",
    DELIVERY_FIELDS,
    (
        Column("EVENT ID", _text("event_id")),
        Column("TYPE", _text("event_type")),
        Column("ROW", _text("row_key")),
        Column("CHANGED", _source_time("source_timestamp")),
        Column("STATUS", _text("status")),
        Column("ATTEMPTS", _text("attempts"), is_number=True),
        Column("ANSWER", _answer),
        Column("NEXT", _text("next_attempt_at")),
    ),
    "No deliveries were found.",
)


@click.group(no_args_is_help=False)
def triggers() -> None:
    """Show and change triggers and their deliveries.

    A running server is asked, over GraphQL. The API key needs the scope `triggers`.
    """


def _of_server(command: F) -> F:
    """The options of every command here."""
    view = click.option("--view", metavar="NAME", help="The view; by default whichever.")
    return view(server_options(json_option(command)))


def _questions(
    url: str | None, api_key: str | None, config_path: Path | None, view: str | None
) -> TriggerQuestions:
    return TriggerQuestions(server(url, api_key, config_path), view)


@triggers.command("list")
@_of_server
def list_(view: str | None, as_json: bool, **of_server: Any) -> None:
    """Show the triggers that there are.

    Shown are those that the key may see: all of them, or its own if it is for some tenants only.
    """
    questions = _questions(**of_server, view=view)

    def pages() -> Iterator[Page]:
        yield Page(questions.listed())

    show_pages(LISTED, pages(), as_json=as_json)


@triggers.command
@click.argument("name", metavar="NAME")
@click.option("--view", required=True, metavar="NAME", help="The meter or view to watch.")
@click.option("--webhook", required=True, metavar="URL", help="Where its events are sent.")
@click.option(
    "--match", required=True, metavar="JSON", help="The filter that a row enters by, as JSON."
)
@click.option(
    "--unmatch",
    metavar="JSON",
    help="A row that does not match leaves only when it passes this filter. Default: at once.",
)
@server_options
@json_option
def add(
    name: str,
    view: str,
    webhook: str,
    match: str,
    unmatch: str | None,
    as_json: bool,
    **of_server: Any,
) -> None:
    """Make a trigger.

    It has events for what changes from now on; rows that match already do not fire. It sees the
    rows that the key sees.
    """
    entering = _filter("match", match)
    leaving = None if unmatch is None else _filter("unmatch", unmatch)
    made = _questions(**of_server, view=view).add(name, webhook, entering, leaving)
    if as_json:
        put(bytes(made).decode(), sys.stdout)
        return
    since = _source_time("since")(msgspec.json.decode(made))
    write_line(f"The trigger {name} watches {view}: it fires for rows that enter after {since}.")


@triggers.command
@click.argument("name", metavar="NAME")
@_of_server
def remove(name: str, **options: Any) -> None:
    """End a trigger.

    Its events that were not delivered go with it, dead letters too. A trigger can be ended also
    when its view is there no more.
    """
    _change("delete", name, "is no more; what it had not delivered is dropped", **options)


@triggers.command
@click.argument("name", metavar="NAME")
@_of_server
def enable(name: str, **options: Any) -> None:
    """Let a disabled trigger go on from where it stands."""
    _change("enable", name, "is enabled and goes on from where it stood", **options)


@triggers.command
@click.argument("name", metavar="NAME")
@_of_server
def disable(name: str, **options: Any) -> None:
    """Let a trigger stand still; what it has to deliver waits."""
    _change("disable", name, "is disabled; what it has to deliver waits", **options)


@triggers.command
@click.argument("name", metavar="NAME")
@_of_server
def restart(name: str, **options: Any) -> None:
    """Let a trigger begin anew with what changes from now on.

    For one that lost its place in the log of changes. What a disabled trigger has missed is left
    out for good.
    """
    _change("restart", name, "begins anew with what changes from now on", **options)


@triggers.command
@click.argument("name", metavar="NAME")
@click.option("--status", type=click.Choice(STATUSES), help="Only those that are so.")
@limit_option
@_of_server
def deliveries(
    name: str,
    status: str | None,
    limit: int | None,
    view: str | None,
    as_json: bool,
    **of_server: Any,
) -> None:
    """Show what a trigger has sent or is about to, the latest first."""
    questions = _questions(**of_server, view=view)
    show_pages(DELIVERIES, questions.deliveries(name, status, limit), as_json=as_json)


@triggers.command
@click.argument("name", metavar="NAME")
@click.argument("event_id", metavar="[EVENT_ID]", required=False)
@_of_server
def redeliver(
    name: str, event_id: str | None, view: str | None, as_json: bool, **of_server: Any
) -> None:
    """Send dead letters again.

    All of them are, or the one event with EVENT_ID, also if it was delivered. Id and body are as
    before.
    """
    count = _questions(**of_server, view=view).redeliver(name, event_id)
    if event_id is not None and not count:
        raise ClientError(
            f"the trigger {name} has no event {event_id} that can be sent again",
            hint=f"`tidemark triggers deliveries {name}` lists what is kept; one that is still to"
            " be delivered is sent anyway.",
            field="event_id",
            code="not_found",
        )
    if as_json:
        write_json({"trigger": name, "redelivered": count})
        return
    write_line(f"{plural(count, 'event')} of {name} {'is' if count == 1 else 'are'} sent again.")


def _change(verb: str, name: str, told: str, *, as_json: bool, **options: Any) -> None:
    questions = _questions(**options)
    changed = questions.delete(name) if verb == "delete" else questions.change(verb, name)
    if as_json:
        put(bytes(changed).decode(), sys.stdout)
        return
    write_line(one_line(f"The trigger {name} {told}."))


def _filter(option: str, text: str) -> msgspec.Raw:
    """A filter as it was written, to the digit; what it says is checked by the server."""
    try:
        is_object = isinstance(msgspec.json.decode(text), dict)
    except msgspec.MsgspecError:
        is_object = False
    if not is_object:
        raise usage_error(
            f"--{option} is no object of JSON",
            """Write for example --match '{"quantity": {"_gte": "1000"}}'; """
            "docs/reference/filters.md has all there is.",
            option,
        )
    return msgspec.Raw(text.encode())
