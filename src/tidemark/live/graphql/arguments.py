"""The arguments of queries, as graphql-core has coerced them, in the terms of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tidemark.live.errors import InvalidArgument
from tidemark.live.graphql.limits import QueryLimits
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.views.querying import order_term
from tidemark.views.tables import Dialect

# Whether each direction is descending, and whether nulls come first.
_DIRECTIONS: Final = {
    "asc": (False, False),
    "asc_nulls_first": (False, True),
    "asc_nulls_last": (False, False),
    "desc": (True, True),
    "desc_nulls_first": (True, True),
    "desc_nulls_last": (True, False),
}
# As many as a number of 64 bits always has room for.
_MAX_DIGITS: Final = 18


def order_terms(
    schema: ViewSchema,
    order_by: Sequence[Mapping[str, str]] | None,
    dialect: Dialect,
    limits: QueryLimits,
) -> tuple[str, ...]:
    """What stands in ORDER BY."""
    order = order_by or ()
    if len(order) > limits.max_order_columns:
        raise InvalidArgument(
            f"an order of {len(order)} columns",
            hint=f"At most {limits.max_order_columns} are allowed.",
            field="order_by",
        )
    columns = {column.name: column for column in schema.visible}
    terms = []
    for entry in order:
        for name, direction in entry.items():
            descending, nulls_first = _DIRECTIONS[direction]
            terms.append(
                order_term(columns[name], dialect, descending=descending, nulls_first=nulls_first)
            )
    return tuple(terms)


def row_limit(asked: int | None, limits: QueryLimits) -> int:
    """How many rows are read at most."""
    if asked is None:
        return limits.default_rows
    if not 0 <= asked <= limits.max_rows:
        raise InvalidArgument(
            f"a limit of {asked}",
            hint=f"It is between 0 and {limits.max_rows}; {limits.default_rows} if none is given.",
            field="limit",
        )
    return asked


def row_offset(asked: int | None, limits: QueryLimits) -> int:
    """How many rows are left out."""
    if asked is None:
        return 0
    if not 0 <= asked <= limits.max_offset:
        raise InvalidArgument(
            f"an offset of {asked}",
            hint=f"It is between 0 and {limits.max_offset}; go on with `where` on what you order "
            "by instead.",
            field="offset",
        )
    return asked


def resume_after(asked: str | None) -> int | None:
    """The source timestamp that a subscription goes on from."""
    if asked is None:
        return None
    if not (asked.isascii() and asked.isdecimal() and len(asked) <= _MAX_DIGITS):
        raise InvalidArgument(
            f"{asked[:_MAX_DIGITS]!r} is no timestamp of an update",
            hint="Pass a `ts_timestamp` that you were given: microseconds, in digits.",
            field="after",
        )
    return int(asked)


def only_column(columns: Sequence[str] | None) -> None:
    """Refuses a `count` over several columns at once."""
    if columns is not None and len(columns) > 1:
        raise InvalidArgument(
            f"a count over {len(columns)} columns",
            hint="Name one column; ask for several counts under aliases.",
            field="columns",
        )
