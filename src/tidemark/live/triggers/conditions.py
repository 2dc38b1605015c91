"""The filters of a trigger, compiled for the view that it watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tidemark.live.errors import InvalidFilter
from tidemark.live.filters import Filter, FilterLimits, compile_predicate, parse_filter
from tidemark.live.triggers.definition import NewTrigger, Trigger, read_where
from tidemark.live.triggers.transitions import Condition
from tidemark.pipeline.output.schema import ViewSchema

RuleOf: TypeAlias = Callable[[Trigger | NewTrigger], Filter]
"""Which rows the creator of a trigger may see; raises `AccessDenied` if that cannot be said."""


def condition_of(
    schema: ViewSchema,
    trigger: Trigger | NewTrigger,
    rule_of: RuleOf,
    limits: FilterLimits | None = None,
) -> Condition:
    """Raises `InvalidFilter` with the path of the fault, or what `rule_of` raises."""
    match = _filter(schema, "match", trigger.match, limits)
    unmatch = None
    if trigger.unmatch is not None:
        unmatch = _filter(schema, "unmatch", trigger.unmatch, limits)
    rule = rule_of(trigger)
    return Condition(
        match=compile_predicate(schema, match),
        unmatch=None if unmatch is None else compile_predicate(schema, unmatch),
        rule=compile_predicate(schema, rule),
        columns=match.columns
        | rule.columns
        | (frozenset() if unmatch is None else unmatch.columns),
    )


def _filter(schema: ViewSchema, field: str, text: str, limits: FilterLimits | None) -> Filter:
    try:
        return parse_filter(schema, read_where(text), limits or FilterLimits())
    except InvalidFilter as error:
        path = (error.field or "where").removeprefix("where")
        raise InvalidFilter(error.message, hint=error.hint, field=field + path) from error
