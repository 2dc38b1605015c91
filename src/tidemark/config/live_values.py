"""The kinds of value that access, triggers and webhooks are set with.

What stands in the place of a secret, or of an address that may hold one, is never shown.
"""

from __future__ import annotations

import ipaddress
import math
import re
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, PlainValidator, ValidationInfo

from tidemark.config.faults import Expected, fault, reading
from tidemark.config.problems import describe_found, shorten
from tidemark.config.suggestions import did_you_mean
from tidemark.config.values import is_host
from tidemark.config.webhook_values import UnfitValue, webhook_address, webhook_key

LOGICAL_OPERATORS: Final = ("_and", "_or", "_not")
COMPARISON_OPERATORS: Final = (
    *("_eq", "_neq", "_gt", "_lt", "_gte", "_lte", "_in", "_nin", "_is_null"),
    *("_like", "_ilike", "_nlike", "_nilike", "_regex"),
)

_ID_PREFIX_PATTERN: Final = "^[A-Za-z0-9_-]{1,32}$"
_ID_PREFIX = re.compile(_ID_PREFIX_PATTERN)
# Deeper than any limit on filters allows; it keeps the walk itself bounded.
_MAX_WHERE_DEPTH: Final = 64


def read_where(value: Any) -> dict[str, Any]:
    """A filter that has its shape; whether its columns are there is seen where views are known."""
    if value is None:
        raise fault("nothing", "`{}` is every row.")
    if not isinstance(value, dict):
        raise fault(describe_found(value))
    _check_condition(value, "", _MAX_WHERE_DEPTH)
    return value


def _check_condition(where: dict[Any, Any], path: str, depth: int) -> None:
    if depth == 0:
        raise fault(f"more than {_MAX_WHERE_DEPTH} levels", "Write it flatter.")
    for key, inner in where.items():
        if not isinstance(key, str):
            raise fault(f"{describe_found(key)} for a name", "Put it in quotes.")
        place = f"{path}{key}"
        if key in LOGICAL_OPERATORS:
            # As in GraphQL, one filter is a list of one.
            parts = inner if isinstance(inner, list) and key != "_not" else [inner]
            for part in parts:
                if not isinstance(part, dict):
                    raise fault(
                        f"{describe_found(part)} at {shorten(place)}", "Put a filter there."
                    )
                _check_condition(part, f"{place}.", depth - 1)
        elif isinstance(inner, dict):
            _check_comparisons(inner, place)
        else:
            raise fault(
                f"{describe_found(inner)} at {shorten(place)}",
                "Name the operator, for example `{_eq: …}`.",
            )


def _check_comparisons(operators: dict[Any, Any], path: str) -> None:
    for operator, operand in operators.items():
        place = f"{path}.{operator}"
        if operator not in COMPARISON_OPERATORS:
            hint = did_you_mean(str(operator), COMPARISON_OPERATORS)
            raise fault(f"an unknown operator at {shorten(place)}", hint)
        for single in operand if isinstance(operand, list) else [operand]:
            if single is None:
                hint = "Compare with null by `_is_null: true` or `_is_null: false`."
                raise fault(f"nothing at {shorten(place)}", hint)
            if isinstance(single, float) and not math.isfinite(single):
                raise fault(f"a number that is none at {shorten(place)}")
            if not isinstance(single, str | bool | int | float):
                raise fault(f"{describe_found(single)} at {shorten(place)}")


def read_file_path(value: Any, info: ValidationInfo) -> Path:
    """A file; absolute when it was read from a file. Whether it is there is seen at the start."""
    if isinstance(value, Path):
        path = value
    elif isinstance(value, str) and value and "\0" not in value:
        path = Path(value)
    else:
        # Somebody may have put the key itself here.
        raise fault(describe_found(value, secret=True))
    place = reading(info)
    return path if place is None else place.base / path


def read_token_secret(value: Any) -> str:
    """Text that is a shared secret."""
    if not isinstance(value, str) or not value:
        raise fault("empty text" if value == "" else describe_found(value, secret=True))
    if "-----BEGIN" in value:
        raise fault("a key in PEM format", "Put it in a file and name that in `public_key_file`.")
    return value


def read_webhook_secret(value: Any) -> str:
    """A secret of Standard Webhooks."""
    if not isinstance(value, str):
        raise fault(describe_found(value, secret=True))
    try:
        webhook_key(value)
    except UnfitValue as unfit:
        raise fault(unfit.found, unfit.hint) from None
    return value


def read_webhook_url(value: Any) -> str:
    """Where a webhook goes. Such an address often holds a secret."""
    if not isinstance(value, str):
        raise fault(describe_found(value, secret=True))
    try:
        webhook_address(value)
    except UnfitValue as unfit:
        raise fault(unfit.found, unfit.hint) from None
    return value


def read_id_prefix(value: Any) -> str:
    """What may stand before an event id and in a header."""
    if isinstance(value, str) and _ID_PREFIX.fullmatch(value):
        return value
    raise fault(describe_found(value))


def read_network_target(value: Any) -> str:
    """A host name, an address, or a range of addresses such as `10.0.0.0/8`."""
    if not isinstance(value, str):
        raise fault(describe_found(value))
    if is_host(value):
        return value.lower()
    try:
        return str(ipaddress.ip_network(value))
    except ValueError:
        pass
    try:
        hint = f"Did you mean `{ipaddress.ip_network(value, strict=False)}`?"
    except ValueError:
        hint = "Leave out scheme, port and path." if ":" in value or "/" in value else ""
    raise fault(describe_found(value), hint)


Where = Annotated[
    dict[str, Any],
    PlainValidator(read_where),
    Expected("a filter such as `{tenant_id: {_eq: acme}}`"),
]
FilePath = Annotated[
    Path,
    BeforeValidator(read_file_path),
    Expected("the path of a file", secret=True, pattern="."),
]
TokenSecret = Annotated[
    str,
    BeforeValidator(read_token_secret),
    Field(max_length=4096),
    Expected("text that is a secret", secret=True),
]
WebhookSecret = Annotated[
    str,
    BeforeValidator(read_webhook_secret),
    Expected("a secret such as `whsec_…`", secret=True, pattern="^whsec_[A-Za-z0-9+/]+=*$"),
]
WebhookUrl = Annotated[
    str,
    BeforeValidator(read_webhook_url),
    Expected("an address such as `https://example.com/hook`", secret=True, pattern="^https?://"),
]
IdPrefix = Annotated[
    str,
    BeforeValidator(read_id_prefix),
    Expected("at most 32 letters, digits, `_` and `-`", pattern=_ID_PREFIX_PATTERN),
]
NetworkTarget = Annotated[
    str,
    BeforeValidator(read_network_target),
    Expected("a host name, an IP address or a range such as `10.0.0.0/8`", pattern=r"^\S+$"),
]
