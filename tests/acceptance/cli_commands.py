"""Every command there is by the words that call it, also those within another."""

from __future__ import annotations

import click

from tidemark.cli.program import VERBS, load_verb


def commands() -> dict[str, click.Command]:
    """`triggers list` and its kin stand for `triggers`, which does nothing by itself."""
    found: dict[str, click.Command] = {}
    for name in VERBS:
        command = load_verb(name)
        if isinstance(command, click.Group):
            found |= {f"{name} {inner}": it for inner, it in command.commands.items()}
        else:
            found[name] = command
    return found


COMMANDS = commands()
