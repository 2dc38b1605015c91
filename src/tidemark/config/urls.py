"""Addresses of databases: `sqlite:///path`, `postgresql://user@host/name`, and for ClickHouse
`http://user@host:8123` and `chdb:///path`.

An address may hold a password, so no message here shows any part of one but its scheme.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationInfo

from tidemark.config.faults import fault, reading
from tidemark.config.problems import describe_found
from tidemark.config.suggestions import nearest

SQLITE_PREFIX: Final = "sqlite:///"
POSTGRESQL_PREFIX: Final = "postgresql://"
CHDB_PREFIX: Final = "chdb:///"

_SQLITE_HINT: Final = (
    "`sqlite:///ledger.db` is relative to the config file, `sqlite:////var/lib/ledger.db` is not."
)
_CHDB_HINT: Final = (
    "`chdb:///events` is relative to the config file, `chdb:////var/lib/events` is not."
)
_ESCAPE_HINT: Final = "In a user name or password write `@ : / ? #` as `%40 %3A %2F %3F %23`."
_SCHEME_ALIASES: Final = {"postgres": "postgresql"}
_SCHEME_SYNONYMS: Final = {
    "sqlite3": "sqlite",
    "pg": "postgresql",
    "pgsql": "postgresql",
    "clickhouse": "http",
    "clickhouses": "https",
}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+-]{0,30})://")
_HOST_AND_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(?::([0-9]{1,5}))?")


def read_ledger_url(value: Any, info: ValidationInfo) -> str | None:
    """The address in one spelling; a relative SQLite path in a file becomes absolute."""
    if value is None:
        return None
    if _scheme(value, ["sqlite", "postgresql"]) == "postgresql":
        return _postgresql(value)
    place = reading(info)
    return _sqlite(value, None if place is None else place.base)


def read_sequence_url(value: Any) -> str | None:
    """The address in one spelling."""
    if value is None:
        return None
    _scheme(value, ["postgresql"])
    return _postgresql(value)


def read_clickhouse_url(value: Any, info: ValidationInfo) -> str | None:
    """The address in one spelling; a relative path of a directory in a file becomes absolute."""
    if value is None:
        return None
    scheme = _scheme(value, ["http", "https", "chdb"])
    if scheme != "chdb":
        return _clickhouse(scheme, value)
    place = reading(info)
    return _chdb(value, None if place is None else place.base)


def _scheme(value: Any, known: list[str]) -> str:
    match = _SCHEME.match(value) if isinstance(value, str) else None
    if match is None:
        raise fault(describe_found(value, secret=True) + " without a scheme")
    scheme = _SCHEME_ALIASES.get(match[1].lower(), match[1].lower())
    if scheme in known:
        return scheme
    near = nearest(scheme.partition("+")[0], known, _SCHEME_SYNONYMS)
    hint = f"Did you mean `{near[0]}://`?" if near else ""
    raise fault(f"the scheme `{scheme}`", hint)


def _sqlite(value: str, base: Path | None) -> str:
    rest = _after_scheme(value)
    path = rest[1:]
    if not rest.startswith("/") or not path.strip("/") or path.endswith("/"):
        raise fault("no path of a file after `sqlite:///`", _SQLITE_HINT)
    if "?" in path or "#" in path:
        raise fault("a `?` or `#` in the path", _SQLITE_HINT)
    if path == ":memory:":
        raise fault("`:memory:` for a path", "A ledger is durable: give it a file.")
    return SQLITE_PREFIX + (path if base is None else str(base / path))


def _chdb(value: str, base: Path | None) -> str:
    rest = _after_scheme(value)
    path = rest[1:].rstrip("/")
    if not rest.startswith("/") or not path:
        raise fault("no path of a directory after `chdb:///`", _CHDB_HINT)
    if "?" in path or "#" in path:
        raise fault("a `?` or `#` in the path", _CHDB_HINT)
    return CHDB_PREFIX + (path if base is None else str(base / path))


def _clickhouse(scheme: str, value: str) -> str:
    rest = _after_scheme(value)
    if any(character.isspace() for character in rest):
        raise fault("white space in it", "Write a space as `%20`.")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    match = _HOST_AND_PORT.fullmatch(authority.rpartition("@")[2])
    if match is None or not match[0] or not 1 <= int(match[1] or 1) <= 65_535:
        raise fault("a host or port that cannot be read", _ESCAPE_HINT)
    behind = rest[len(authority) :]
    if "@" in behind.partition("?")[0]:
        raise fault("an `@` behind the host", _ESCAPE_HINT)
    if behind.partition("?")[0] not in ("", "/"):
        raise fault("a path behind the host", "The database is a setting of its own, `database`.")
    return f"{scheme}://{rest}"


def _postgresql(value: str) -> str:
    rest = _after_scheme(value)
    if any(character.isspace() for character in rest):
        raise fault("white space in it", "Write a space as `%20`.")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    for host in authority.rpartition("@")[2].split(","):
        match = _HOST_AND_PORT.fullmatch(host)
        if match is None or not 1 <= int(match[1] or 1) <= 65_535:
            raise fault("a host or port that cannot be read", _ESCAPE_HINT)
    if "@" in rest[len(authority) :].partition("?")[0]:
        raise fault("an `@` behind the host", _ESCAPE_HINT)
    return POSTGRESQL_PREFIX + rest


def _after_scheme(value: str) -> str:
    return value.partition("://")[2]
