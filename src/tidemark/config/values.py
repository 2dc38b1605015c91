"""The kinds of value a setting can have, beyond plain text, numbers and truth values.

Each reader turns what the file says into what the program uses, or raises a `fault` that says
what was expected and found.
"""

from __future__ import annotations

import ipaddress
import math
import re
import zoneinfo
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, PlainValidator, ValidationInfo

from tidemark.config import urls
from tidemark.config.durations import DURATION_PATTERN, parse_duration, suggest_duration
from tidemark.config.faults import Expected, fault, reading
from tidemark.config.problems import describe_found
from tidemark.config.suggestions import fold, nearest, or_list

_SHA256_HINT: Final = 'Make it with `printf %s "$KEY" | sha256sum`; the key itself stays out.'

_HOST_NAME = re.compile(r"(?=.{1,253}$)(?![0-9.]+$)\w[\w-]{0,62}(\.[\w-]{1,63})*\.?", re.ASCII)
_ORIGIN = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[^/:?#@\[\]\s]+)(:[0-9]{1,5})?")
_SHA256 = re.compile(r"[0-9A-Fa-f]{64}")
_IMPORT_PATH_PATTERN: Final = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
_IMPORT_PATH = re.compile(_IMPORT_PATH_PATTERN, re.ASCII)
_UTC: Final = "UTC"
# Present in many a zone database, but the name of no place.
_NO_ZONES: Final = frozenset({"Factory", "localtime"})


def null_is_empty_mapping(value: Any) -> Any:
    """A key with nothing behind it (all of it commented out, say) is an empty mapping."""
    return {} if value is None else value


def null_is_empty_list(value: Any) -> Any:
    """A key with nothing behind it is an empty list."""
    return [] if value is None else value


def read_duration(value: Any, info: ValidationInfo) -> Any:
    """Microseconds: from text with a unit in a file, or as they are from Python code."""
    if reading(info) is None and type(value) is int:
        return value
    meant = None
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError:
            meant = suggest_duration(value)
    if str(value).isdecimal():
        hint = f"Say the unit, for example `{value}s` or `{value}ms`."
    elif meant is not None and meant != value:
        hint = f"Did you mean `{meant}`?"
    else:
        hint = "Write a whole number and one of us, ms, s, m, h, d; at most 36500d."
    raise fault(describe_found(value), hint)


def read_state_dir(value: Any, info: ValidationInfo) -> Path:
    """A directory; absolute when it was read from a file."""
    if isinstance(value, Path):
        path = value
    elif isinstance(value, str) and value and "\0" not in value:
        path = Path(value)
    else:
        raise fault(describe_found(value))
    try:
        path = path.expanduser()
    except RuntimeError:
        raise fault("`~` for a home that is not known", "Write it without `~`.") from None
    place = reading(info)
    return path if place is None else place.base / path


def read_host(value: Any) -> str:
    """A host name or an address, without scheme, port or brackets."""
    if not isinstance(value, str):
        raise fault(describe_found(value))
    if is_host(value):
        return value
    if "://" in value:
        hint = "Leave out the scheme."
    elif value.startswith("["):
        hint = "Write an IPv6 address without brackets."
    elif ":" in value:
        hint = "Leave out the port; it is `http.port`."
    else:
        hint = ""
    raise fault(describe_found(value), hint)


def read_origin(value: Any) -> str:
    """What a browser sends as `Origin`: scheme, host and port, in lower case."""
    if isinstance(value, str) and _ORIGIN.fullmatch(value):
        return value.lower()
    hint = "Give scheme, host and port only, without a path or a slash at the end."
    raise fault(describe_found(value), hint)


def read_sha256(value: Any) -> str:
    """64 hexadecimal digits, in lower case. What was found is not shown: it may be the key."""
    if isinstance(value, str) and _SHA256.fullmatch(value):
        return value.lower()
    if isinstance(value, str):
        found = f"text of {len(value)} characters" if len(value) != 64 else "other characters"
    else:
        found = describe_found(value, secret=True)
    raise fault(found, _SHA256_HINT)


def read_time_zone(value: Any) -> str:
    """The name of a time zone that is known here."""
    if not isinstance(value, str):
        raise fault(describe_found(value))
    # To list the zones reads many files, and most need none but this.
    if value == _UTC or value in _time_zones():
        return value
    near = _nearest_zones(value)
    hint = f"Did you mean {or_list(near)}?" if near else "Name a place, or say `UTC`."
    raise fault(describe_found(value), hint)


def _nearest_zones(word: str) -> list[str]:
    """Of places only: `EST` is spelled like `CEST` and is an ocean away."""
    places = [_UTC, *sorted(zone for zone in _time_zones() if "/" in zone)]
    # Many write the city alone.
    cities = [place for place in places if fold(place.rpartition("/")[2]) == fold(word)]
    return cities[:3] or nearest(word, places)


@cache
def _time_zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones()) - _NO_ZONES


def read_expression(value: Any) -> str:
    """The text of an expression, of which only Spark knows whether it means anything."""
    if isinstance(value, str) and value.strip():
        return value
    found = "empty text" if isinstance(value, str) else describe_found(value)
    hint = "Put it in quotes." if isinstance(value, bool | int | float) else ""
    raise fault(found, hint)


def read_import_path(value: Any) -> str:
    """A module and a function in it; whether they are there is seen when they are used."""
    if isinstance(value, str) and _IMPORT_PATH.fullmatch(value):
        return value
    hint = "Put a colon between the module and the function."
    raise fault(describe_found(value), hint if isinstance(value, str) else "")


def read_client_option(value: Any) -> str | int | float | bool:
    """What Spark or Kafka takes for an option. It may be a password of some store."""
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise fault(describe_found(value, secret=True))


def is_host(text: str) -> bool:
    """Whether the text can be the name or the address of a host."""
    return is_ip_address(text) or _HOST_NAME.fullmatch(text) is not None


def is_ip_address(text: str) -> bool:
    """Whether the text is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    if is_ip_address(host):
        return ipaddress.ip_address(host).is_loopback
    return host.rstrip(".").lower() == "localhost"


Duration = Annotated[
    int,
    BeforeValidator(read_duration),
    Expected("a duration such as `5s`, `5m` or `48h`", pattern=DURATION_PATTERN),
]
StateDir = Annotated[
    Path,
    BeforeValidator(read_state_dir),
    Expected("the path of a directory", pattern="."),
]
LedgerUrl = Annotated[
    str | None,
    BeforeValidator(urls.read_ledger_url),
    Expected(
        "an address such as `sqlite:///ledger.db` or `postgresql://host/name`",
        secret=True,
        pattern="^(sqlite:///|postgres(ql)?://)",
    ),
]
SequenceUrl = Annotated[
    str | None,
    BeforeValidator(urls.read_sequence_url),
    Expected(
        "an address such as `postgresql://host/name`", secret=True, pattern="^postgres(ql)?://"
    ),
]
ClickHouseUrl = Annotated[
    str | None,
    BeforeValidator(urls.read_clickhouse_url),
    Expected(
        "an address such as `https://user@host:8443` or `chdb:///path`",
        secret=True,
        pattern="^(https?://|chdb:///)",
    ),
]
Salt = Annotated[
    str | None,
    Field(min_length=1, max_length=1024),
    Expected("text of 1 to 1024 characters", secret=True),
]
Host = Annotated[
    str,
    BeforeValidator(read_host),
    Expected("a host name or an IP address", pattern="^[^/\\s]+$"),
]
Origin = Annotated[
    str,
    BeforeValidator(read_origin),
    Expected("an origin such as `https://app.example.com`", pattern="^https?://[^/]+$"),
]
Sha256Hex = Annotated[
    str,
    BeforeValidator(read_sha256),
    Expected(
        "the SHA-256 of the key as 64 hexadecimal digits",
        secret=True,
        pattern="^[0-9A-Fa-f]{64}$",
    ),
]
TimeZone = Annotated[
    str,
    BeforeValidator(read_time_zone),
    Expected("an IANA time zone such as `Europe/Berlin`", pattern="."),
]
Expression = Annotated[
    str,
    BeforeValidator(read_expression),
    Expected("a Spark SQL expression", pattern=r"\S"),
]
ImportPath = Annotated[
    str,
    BeforeValidator(read_import_path),
    Expected("a function such as `package.module:function`", pattern=_IMPORT_PATH_PATTERN),
]
PathText = Annotated[
    str,
    Field(min_length=1, max_length=4096),
    Expected("the path of a directory"),
]
ClientOption = Annotated[
    str | int | float | bool,
    PlainValidator(read_client_option),
    Expected("text, a number or a truth value", secret=True),
]
