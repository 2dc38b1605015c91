"""Errors as GraphQL shows them: `message`, `locations`, `path`, and ours in `extensions`.

`extensions` always has a `code`, a `hint` and, where one is at fault, a `field`. What was not
raised on purpose is logged under an id and shown as nothing but that id.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, Final

from graphql import GraphQLError

from tidemark.errors import RequestError, TidemarkError

log = logging.getLogger(__name__)

SYNTAX: Final = "graphql_syntax"
INVALID: Final = "graphql_invalid"
VARIABLES: Final = "graphql_variables"

_HINTS: Final = {
    SYNTAX: "Look at the place that `locations` names.",
    INVALID: "Compare with the schema: introspection, `tidemark schema` or the page at /graphql.",
    VARIABLES: "Compare `variables` with the types that the operation declares.",
}


class DocumentRefused(RequestError):
    """A document is not executed at all. `errors` are in the shape of a GraphQL response."""

    code = INVALID

    def __init__(self, errors: Sequence[dict[str, Any]], *, status: int = 400) -> None:
        first = errors[0]
        extensions = first["extensions"]
        super().__init__(
            first["message"],
            status=status,
            hint=extensions["hint"],
            field=extensions.get("field"),
            code=extensions["code"],
        )
        self.errors = list(errors)

    @classmethod
    def because(cls, error: TidemarkError, status: int | None = None) -> DocumentRefused:
        """Refused for a reason of ours."""
        if status is None:
            status = error.status if isinstance(error, RequestError) else 400
        refused = cls([shape(error)], status=status)
        if isinstance(error, RequestError):
            refused.retry_after_s = error.retry_after_s
        return refused

    @classmethod
    def by_graphql(cls, errors: Iterable[GraphQLError], code: str) -> DocumentRefused:
        """Refused for reasons that graphql-core found."""
        return cls([formatted(error, code) for error in errors])


def refusal(message: str, *, code: str, hint: str, status: int = 400) -> DocumentRefused:
    """A document is refused for one reason."""
    return DocumentRefused.because(TidemarkError(message, code=code, hint=hint), status)


def shape(error: TidemarkError) -> dict[str, Any]:
    """One of our errors, as it stands in `errors`."""
    fields = error.as_dict()
    return {"message": fields.pop("message"), "extensions": fields}


def formatted(error: GraphQLError, code: str = INVALID) -> dict[str, Any]:
    """An error of graphql-core, which may hold one of ours; `code` is for its own."""
    cause = error.original_error
    while isinstance(cause, GraphQLError) and cause.original_error is not None:
        cause = cause.original_error
    if isinstance(cause, TidemarkError):
        body = shape(cause)
    elif cause is None or isinstance(cause, GraphQLError):
        body = {"message": error.message, "extensions": {"code": code, "hint": _HINTS[code]}}
    else:
        body = masked(cause)
    if error.locations:
        body["locations"] = [location.formatted for location in error.locations]
    if error.path is not None:
        body["path"] = list(error.path)
    return body


def masked(cause: BaseException) -> dict[str, Any]:
    """An error that nobody raised on purpose: logged, and shown by its number only."""
    number = secrets.token_hex(8)
    log.error("GraphQL error %s", number, exc_info=cause)
    return shape(
        TidemarkError(
            "an error of our own making",
            hint=f"The server's log has the details under {number}. Please report it.",
        )
    )
