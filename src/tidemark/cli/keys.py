"""`tidemark keygen`: a key for a caller, or a secret for receivers, and the lines for them."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Final, get_args

import click

from tidemark.cli.options import json_option
from tidemark.cli.outcome import usage_error
from tidemark.cli.output import write_json, write_line, write_lines, write_note
from tidemark.config import ALL_TENANTS, Scope

PREFIX: Final = "tmk_"
_KEY_BYTES: Final = 32
_MAX_NAME_LENGTH: Final = 256


@click.command
@click.option("--name", help="Who the key is for; appears in logs.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(get_args(Scope)),
    default=("ingest",),
    show_default="ingest",
    help="What it may do. Can be given several times.",
)
@click.option(
    "--tenant",
    "tenants",
    multiple=True,
    help=f"Whom it may act for; '{ALL_TENANTS}' is every tenant. Can be given several times.",
)
@click.option(
    "--webhook", is_flag=True, help="Make a secret that webhooks are signed with, and no key."
)
@json_option
@click.pass_context
def keygen(
    context: click.Context,
    name: str | None,
    scopes: tuple[str, ...],
    tenants: tuple[str, ...],
    webhook: bool,
    as_json: bool,
) -> None:
    """Make an API key, or a secret for webhooks.

    The key is printed once and kept nowhere. What goes into the configuration is its SHA-256, from
    which the key cannot be found again.

    The secret of --webhook stands in the configuration as it is, and each receiver has it too, to
    verify who is calling.
    """
    if webhook:
        _refuse_options_of_keys(context)
        _make_webhook_secret(as_json=as_json)
        return
    if name is None or not tenants:
        missing = "name" if name is None else "tenant"
        raise usage_error(
            f"missing option '--{missing}'", "`tidemark keygen --help` tells more.", missing
        )
    for option, value in [("name", name), *(("tenant", tenant) for tenant in tenants)]:
        if not value.isprintable() or not 1 <= len(value) <= _MAX_NAME_LENGTH:
            raise usage_error(
                f"--{option} is 1 to {_MAX_NAME_LENGTH} printable characters", field=option
            )
    key = PREFIX + secrets.token_urlsafe(_KEY_BYTES)
    digest = hashlib.sha256(key.encode()).hexdigest()
    scopes, tenants = tuple(dict.fromkeys(scopes)), tuple(dict.fromkeys(tenants))
    entry = [
        f"    - name: {_quoted(name)}",
        # In quotes: YAML would take sixty-four digits for a number.
        f"      sha256: {_quoted(digest)}",
        f"      scopes: [{', '.join(scopes)}]",
        f"      tenants: [{', '.join(map(_quoted, tenants))}]",
    ]
    if as_json:
        document = {"name": name, "key": key, "sha256": digest}
        write_json({**document, "scopes": list(scopes), "tenants": list(tenants)})
        return
    write_note("The key, shown this once:")
    write_line(key)
    write_note("In the configuration, so that it is known (a restart reads it):")
    write_lines(["auth:", "  keys:", *entry])


def _refuse_options_of_keys(context: click.Context) -> None:
    for parameter, option in (("name", "name"), ("scopes", "scope"), ("tenants", "tenant")):
        if context.get_parameter_source(parameter) is click.core.ParameterSource.COMMANDLINE:
            raise usage_error(
                f"--webhook and --{option} exclude each other",
                "A secret is for all receivers, and does not say who they are.",
                option,
            )


def _make_webhook_secret(*, as_json: bool) -> None:
    from tidemark.live.webhooks.signing import new_secret

    secret = new_secret()
    if as_json:
        write_json({"secret": secret})
        return
    write_note("The secret, which receivers verify webhooks with:")
    write_line(secret)
    write_note("In the configuration (a restart reads it); an old one may stand behind it:")
    write_lines(["webhooks:", "  secrets:", f"    - {_quoted(secret)}"])


def _quoted(text: str) -> str:
    """A JSON string, which is a YAML string too."""
    return json.dumps(text, ensure_ascii=False)
