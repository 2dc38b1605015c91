"""Options that several commands have: which configuration, which server, text or JSON.

The configuration is the file of `--config`, else of `TIDEMARK_CONFIG`, else `tidemark.yaml` in the
working directory. Where there is none, settings in the environment are a configuration too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from tidemark.cli.outcome import usage_error

if TYPE_CHECKING:
    from tidemark.config import Config

CONFIG_NAME = "tidemark.yaml"
CONFIG_VARIABLE = "TIDEMARK_CONFIG"
URL_VARIABLE = "TIDEMARK_URL"
API_KEY_VARIABLE = "TIDEMARK_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8787"
NO_SETTINGS = frozenset(
    {CONFIG_VARIABLE, URL_VARIABLE, API_KEY_VARIABLE, "TIDEMARK_CRASH_AT", "TIDEMARK_WORKER"}
)

# Options that stand for a setting, and the variable of the setting.
SETTING_OPTIONS = {
    "--host": "TIDEMARK_HTTP__HOST",
    "--port": "TIDEMARK_HTTP__PORT",
    "--workers": "TIDEMARK_HTTP__WORKERS",
}

# Where to call a server that listens on every address of its machine.
_CALLABLE_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1"}

F = TypeVar("F", bound=Callable[..., Any])

config_option = click.option(
    "-c",
    "--config",
    "config_path",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help=f"The configuration. Default: ${CONFIG_VARIABLE}, else ./{CONFIG_NAME}.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print results, and errors, as JSON."
)


def server_options(command: F) -> F:
    """`--url`, `--api-key` and `--config`, for commands that talk to a server."""
    for option in (
        config_option,
        click.option(
            "--api-key",
            metavar="KEY",
            help=f"The API key. Default: ${API_KEY_VARIABLE}, which other users cannot see.",
        ),
        click.option(
            "--url",
            metavar="URL",
            help=f"The server. Default: ${URL_VARIABLE}, else as configured, else {DEFAULT_URL}.",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Configured:
    """A configuration and where it came from; without a path it is the environment alone."""

    config: Config
    path: Path | None

    @property
    def source(self) -> str:
        return "the environment" if self.path is None else str(self.path)

    @property
    def as_json(self) -> str | None:
        return None if self.path is None else str(self.path)


def configuration(path: Path | None, options: Mapping[str, object] | None = None) -> Configured:
    """The configuration to use. Raises `ConfigError` if it is faulty or there is none.

    `options` are those of `SETTING_OPTIONS`; None means that one was not given. They win over the
    file and the environment, and are checked with them.
    """
    found = _find(path)
    given = {
        SETTING_OPTIONS[option]: str(value)
        for option, value in (options or {}).items()
        if value is not None
    }
    if found is None and not _environment_has_settings():
        raise usage_error(
            f"there is no configuration: no --config, no ${CONFIG_VARIABLE}, no ./{CONFIG_NAME}",
            "`tidemark init` writes one here.",
        )
    from tidemark.config import InvalidConfig, load_config

    try:
        return Configured(load_config(found, {**os.environ, **given}), found)
    except InvalidConfig as error:
        names = {variable: option for option, variable in SETTING_OPTIONS.items()}
        raise InvalidConfig(
            error.source,
            [
                replace(problem, where=names[problem.where]) if problem.where in given else problem
                for problem in error.problems
            ],
        ) from None


@dataclass(frozen=True, slots=True)
class Server:
    """A server to talk to."""

    url: str
    api_key: str | None


def server(url: str | None, api_key: str | None, config_path: Path | None) -> Server:
    """The server to talk to: as given, else of the environment, else as configured here."""
    address = url or os.environ.get(URL_VARIABLE) or _configured_url(config_path) or DEFAULT_URL
    try:
        parts = urlsplit(address)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname or parts.port)
    except ValueError:
        is_usable = False
    if not is_usable:
        raise usage_error(
            f"{address!r} is not an http:// or https:// address",
            f"Give the server's base address, such as {DEFAULT_URL}.",
            "url",
        )
    key = os.environ.get(API_KEY_VARIABLE) if api_key is None else api_key
    if key and not (key.isascii() and key.isprintable()):
        raise usage_error("an API key is printable ASCII", "Copy the key again.", "api-key")
    return Server(address.rstrip("/"), key or None)


def callable_url(host: str, port: int) -> str:
    """The base address at which a server that listens there can be called from its machine."""
    name = _CALLABLE_HOSTS.get(host, host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _find(path: Path | None) -> Path | None:
    if path is not None:
        return path
    if os.environ.get(CONFIG_VARIABLE):
        return Path(os.environ[CONFIG_VARIABLE])
    here = Path(CONFIG_NAME)
    return here if here.exists() else None


def _environment_has_settings() -> bool:
    return any(name.startswith("TIDEMARK_") and name not in NO_SETTINGS for name in os.environ)


def _configured_url(config_path: Path | None) -> str | None:
    if _find(config_path) is None and not _environment_has_settings():
        return None
    http = configuration(config_path).config.http
    if http.port == 0:
        raise usage_error(
            "the configuration leaves the port to chance (http.port is 0)",
            f"Give the address that the server printed: --url, or ${URL_VARIABLE}.",
            "url",
        )
    return callable_url(http.host, http.port)
