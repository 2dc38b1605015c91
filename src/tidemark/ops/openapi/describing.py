"""The parts of which operations are described: refusals, parameters, pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidemark.config.access_model import Scope
from tidemark.config.model import Config
from tidemark.ops.admin import DEFAULT_PAGE, LARGEST_PAGE
from tidemark.ops.openapi.answers import refusals
from tidemark.ops.openapi.events import EXAMPLE_KEY, EXAMPLE_TENANT, reference
from tidemark.ops.openapi.values import EXAMPLE_TIME, TIMESTAMP_PATTERN, WITHOUT_NUL, Schema
from tidemark.ops.parameters import CURSOR_PATTERN, SEQUENCE_PATTERN

QUERY_CODES: Final = ("invalid_query", "unknown_parameter", "repeated_parameter")
READ_CODES: Final = (*QUERY_CODES, "invalid_parameter", "ledger_unavailable", "storage_refused")

TEXT: Final[Schema] = {"type": "string"}

_WHAT_A_PARAMETER_ASKS: Final = {
    "tenantId": "Events of this tenant.",
    "stream": "Events of this stream.",
    "causalityKey": "All events of one run, across streams.",
    "metric": "Usage of this metric.",
    "customerRef": "Usage by this customer.",
    "sequenceFrom": "From this `ingressSequence` on.",
    "sequenceTo": "Up to, but without, this `ingressSequence`.",
    "receivedFrom": "Received at this time or later.",
    "receivedTo": "Received before this time.",
    "occurredFrom": "Happened at this time or later.",
    "occurredTo": "Happened before this time.",
    "code": "Refused with this code.",
    "idempotencyKey": "With this key.",
    "after": "Begin after this `ingressSequence`; left out, with what comes from now on.",
}
_PARAMETER_EXAMPLES: Final = {
    "tenantId": EXAMPLE_TENANT,
    "key": EXAMPLE_KEY,
    "stream": "usage",
    "sequenceFrom": "1",
    "receivedFrom": EXAMPLE_TIME,
    "occurredFrom": EXAMPLE_TIME,
}


# What is a number of 64 bits, though its name does not end like one.
_NUMBERS: Final = ("after", "rejectId")


class Describing:
    """Describes operations of a server with this configuration."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._has_keys = bool(config.auth.keys)

    def operation(
        self,
        operation_id: str,
        tag: str,
        summary: str,
        description: str,
        success: Schema,
        codes: Sequence[str] = (),
        *,
        status: int = 200,
        scopes: Sequence[Scope] = (),
        **more: Any,
    ) -> Schema:
        """One operation, with all that it can be refused with."""
        can_happen = [*codes, "foreign_origin", "internal_error"]
        if not self._has_keys:
            can_happen.append("foreign_host")
        elif scopes:
            can_happen += ["unauthorized", "forbidden"]
            needed = " or ".join(f"`{scope}`" for scope in scopes)
            description += f"\n\nNeeds a key with the scope {needed}."
        operation: Schema = {
            "operationId": operation_id,
            "tags": [tag],
            "summary": summary,
            "description": description.strip(),
            **more,
            "responses": {str(status): success, **refusals(can_happen)},
        }
        if self._has_keys:
            operation["security"] = [{"key": []}] if scopes else []
        return operation

    def query(self, *names: str, **asks: str) -> list[Schema]:
        """Query parameters; `asks` says what one asks for, where that is special here."""
        said = {**_WHAT_A_PARAMETER_ASKS, **asks}
        return [self._query_parameter(name, said) for name in names]

    def _query_parameter(self, name: str, asks: Mapping[str, str]) -> Schema:
        if name.startswith("sequence") or name.endswith("Sequence") or name in _NUMBERS:
            schema: Schema = {"type": "string", "pattern": SEQUENCE_PATTERN}
        elif name in ("from", "to") or name.endswith(("From", "To")):
            schema = {"type": "string", "pattern": TIMESTAMP_PATTERN}
        else:
            schema = {"type": "string", "pattern": WITHOUT_NUL}
        parameter = {
            "name": name,
            "in": "query",
            "description": asks[name],
            "schema": schema,
        }
        if name in _PARAMETER_EXAMPLES:
            parameter["example"] = _PARAMETER_EXAMPLES[name]
        return parameter


def json_content(name: str, *, example: object = None) -> Schema:
    content: Schema = {"schema": reference(name)}
    if example is not None:
        content["example"] = example
    return {"application/json": content}


def path_parameter(name: str, text: str, example: str) -> Schema:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": text,
        "schema": {"type": "string", "minLength": 1, "pattern": "^[^\\u0000]+$"},
        "example": example,
    }


def paging(cursor_pattern: str = CURSOR_PATTERN) -> list[Schema]:
    """The parameters of a list that comes in pages."""
    return [
        {
            "name": "limit",
            "in": "query",
            "description": "The most entries on one page.",
            "schema": {
                "type": "integer",
                "minimum": 1,
                "maximum": LARGEST_PAGE,
                "default": DEFAULT_PAGE,
            },
        },
        {
            "name": "cursor",
            "in": "query",
            "description": "The `nextCursor` of the page before, with the same filters.",
            "schema": {"type": "string", "pattern": cursor_pattern},
        },
    ]
