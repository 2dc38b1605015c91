"""The program itself: which commands there are, and how each of them ends.

A command's module is imported when the command is used, so that `tidemark --help` is there at once.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, NamedTuple

import click

from tidemark.cli.outcome import (
    ExitCode,
    Terminated,
    exit_code_of,
    report,
    usage_error,
)
from tidemark.cli.output import discard, survive_any_locale, write_note
from tidemark.cli.stopping import stop_on
from tidemark.errors import TidemarkError


class Verb(NamedTuple):
    """Where a command is, and what it does in a few words."""

    module: str
    attribute: str
    summary: str


VERBS: Final = {
    "init": Verb("configuring", "init", "Write a commented sample configuration."),
    "check": Verb("configuring", "check", "Say what a configuration means, or what is wrong."),
    "up": Verb("serving", "up", "Run everything in the foreground."),
    "serve": Verb("serving", "serve", "Run the HTTP API only."),
    "pipeline": Verb("pipelining", "pipeline", "Fold the ledger into meters and tables."),
    "land": Verb("landing", "land", "Write raw events to Parquet files and to ClickHouse."),
    "mirror": Verb("mirroring", "mirror", "Write every event to Kafka, once and in order."),
    "send": Verb("sending", "send", "Send the events of a file or of stdin."),
    "import": Verb("importing", "import_", "Give an old history its order in a new ledger."),
    "tail": Verb("tailing", "tail", "Show events as they are committed."),
    "status": Verb("status", "status", "Show how far everything is that follows the ledger."),
    "causality": Verb("causality", "causality", "Show the history of one run."),
    "usage": Verb("usage", "usage", "Show what was used, by customer and period."),
    "adjustments": Verb("usage", "adjustments", "Show what came too late to be counted."),
    "errors": Verb("usage", "errors", "Show the events that the pipeline could not take."),
    "explain": Verb("explaining", "explain", "Say what became of an event, and why."),
    "verify": Verb("verifying", "verify", "Prove the views from the ledger."),
    "replay": Verb("replaying", "replay", "Build the views anew beside the live ones, and swap."),
    "schema": Verb("schema", "schema", "Print the GraphQL schema."),
    "triggers": Verb("triggers", "triggers", "Show and change triggers and their deliveries."),
    "keygen": Verb("keys", "keygen", "Make an API key, or a secret for webhooks."),
    "backup": Verb("keeping", "backup", "Copy ledger, views and triggers while they are used."),
    "compact": Verb("keeping", "compact", "Forget old changes and give their room back."),
    "migrate": Verb("ledger", "migrate", "Bring the schemas of all stores up to date."),
    "confirm-clock": Verb("ledger", "confirm_clock", "Say that the clock is right after a leap."),
}


class Program(click.Group):
    """The commands of the table above, loaded one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load_verb(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise usage_error(f"there is no command `{args[0]}`", _nearest_verbs(args[0]))
        return super().resolve_command(ctx, args)


def load_verb(name: str) -> click.Command:
    """The command of this name."""
    verb = VERBS[name]
    command = getattr(import_module(f"tidemark.cli.{verb.module}"), verb.attribute)
    assert isinstance(command, click.Command)
    return command


def _show_version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        from tidemark import __version__

        click.echo(f"tidemark {__version__}")
        ctx.exit()


@click.command(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each command has --help. Options, environment and exit codes: docs/reference/cli.md",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def program() -> None:
    """Tidemark: every event has one identity, one place in order, one effect."""


def run(args: Sequence[str]) -> int:
    """Run a command line and give its exit code. What can be foreseen leaves no traceback."""
    survive_any_locale()
    stop_on([signal.SIGTERM], lambda: Terminated(ExitCode.TERMINATED))
    as_json = "--json" in args
    try:
        code = program.main(list(args) or ["--help"], "tidemark", standalone_mode=False)
        return code if isinstance(code, int) else ExitCode.OK
    except click.ClickException as error:
        report(_from_click(error), as_json=as_json)
        return ExitCode.UNUSABLE
    except TidemarkError as error:
        report(error, as_json=as_json)
        return exit_code_of(error)
    except OSError as error:
        # A full disk behind stdout is no place to tell of it.
        discard(sys.stdout)
        where = f"{error.filename}: " if error.filename else ""
        write_note(f"error: {where}{error.strerror or error}", style="red")
        return ExitCode.FAILED
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED
    except Terminated:
        return ExitCode.TERMINATED


def _from_click(error: click.ClickException) -> TidemarkError:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "tidemark"
    return usage_error(_sentence(error.format_message()), f"`{command} --help` tells more.")


def _sentence(message: str) -> str:
    """Click's message in our form: no capital at the beginning, no full stop at the end."""
    text = message.strip().removesuffix(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _nearest_verbs(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, VERBS, n=2)
    if near:
        return f"Did you mean {' or '.join(f'`{name}`' for name in near)}?"
    return f"There are {', '.join(VERBS)}."
