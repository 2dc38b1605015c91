"""The filter that is ANDed below everything a session asks for.

A rule of `auth.rules` is a `where` in which a text `$jwt.<claim>` stands for a claim of the token.
A claim takes the place of a value and of nothing else: the rule's columns, operators and shape are
read from the configuration alone, once, and whatever does not fit denies.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from tidemark.config import Config
from tidemark.config.live_values import LOGICAL_OPERATORS
from tidemark.errors import AccessDenied, ConfigError
from tidemark.live.access.claims import MISSING, claim_at
from tidemark.live.access.sessions import Session
from tidemark.live.errors import InvalidFilter
from tidemark.live.filters import Filter, FilterLimits, both, parse_filter
from tidemark.pipeline.output.schema import ColumnType, ViewSchema

TENANT_COLUMN: Final = "tenant_id"

# Rules come from the operator and lists from signed tokens, so they may be larger than a client's.
RULE_LIMITS: Final = FilterLimits(max_depth=32, max_conditions=10_000, max_list=10_000)
_CACHED_RULES: Final = 10_000

_LIST_OPERATORS: Final = ("_in", "_nin")
# Not those of patterns: in them a claim would be more than a value.
_CLAIM_OPERATORS: Final = ("_eq", "_neq", "_gt", "_lt", "_gte", "_lte", *_LIST_OPERATORS)
_CLAIM = re.compile(r"\$jwt\.(\S+)").fullmatch
# `$$` at the beginning is a `$` that stands for itself.
_ESCAPED: Final = "$$"

# Any value of the type, to see at the start whether a rule could be used.
_SAMPLES: Final[dict[ColumnType, object]] = {
    "string": "",
    "int": 0,
    "bigint": 0,
    "decimal": 0,
    "boolean": False,
    "timestamp": "2025-01-01T00:00:00Z",
}

_Resolve = Callable[[str, str, str], object]
"""From the column, the operator and the text `$jwt.<claim>` to the value that takes its place."""


class RowRules:
    """Which rows of which views a session sees.

    Everybody is held to the tenants of their key or token; holders of tokens also to the rule of
    the view, without which they see nothing. Raises `ConfigError` for a rule that does not fit its
    view.
    """

    def __init__(self, config: Config, schemas: Sequence[ViewSchema]) -> None:
        self._schemas = {schema.name: schema for schema in schemas}
        self._rules: dict[str, _Rule] = {}
        for view, where in config.auth.rules.items():
            if view in self._schemas:
                self._rules[view] = _Rule(self._schemas[view], where)
        self._cache: OrderedDict[tuple[object, ...], Filter] = OrderedDict()

    def rule(self, view: str, session: Session) -> Filter:
        """The filter to AND with the client's own; `AccessDenied` if the session sees nothing."""
        schema = self._schemas[view]
        claims: tuple[object, ...] = ()
        rule = None
        if session.by_token:
            rule = self._rules.get(view)
            if rule is None:
                raise _denied(
                    f"tokens do not show the view {view}",
                    f"Add a rule under `auth.rules.{view}`; `{{}}` shows every row.",
                )
            claims = rule.claims_of(session)
        # As JSON, because to Python 1, 1.0 and true are equal.
        key = (view, session.by_token, session.tenants, msgspec.json.encode(claims))
        found = self._cache.get(key)
        if found is None:
            found = self._build(schema, rule, claims, session.tenants)
            self._cache[key] = found
            if len(self._cache) > _CACHED_RULES:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(key)
        return found

    def _build(
        self,
        schema: ViewSchema,
        rule: _Rule | None,
        claims: tuple[object, ...],
        tenants: frozenset[str] | None,
    ) -> Filter:
        allowed = parse_filter(schema, {}) if rule is None else rule.filled_in(claims)
        if tenants is None:
            return allowed
        if not any(c.name == TENANT_COLUMN and c.type == "string" for c in schema.visible):
            raise _denied(
                f"the rows of {schema.name} do not say whose they are",
                "Only a key for every tenant can read this view.",
            )
        try:
            own = parse_filter(schema, {TENANT_COLUMN: {"_in": sorted(tenants)}}, RULE_LIMITS)
        except InvalidFilter:
            raise _denied("the tenants of this key or token cannot be compared with rows") from None
        return both(own, allowed)


class _Rule:
    """One rule, checked against its view."""

    def __init__(self, schema: ViewSchema, where: Mapping[str, Any]) -> None:
        self._schema = schema
        self._where = where
        self._field = f"auth.rules.{schema.name}"
        self._paths: dict[str, str] = {}
        types = {column.name: column.type for column in schema.visible}
        enums = {column.name: column.values for column in schema.visible}

        def sample(column: str, operator: str, text: str) -> object:
            match = _CLAIM(text)
            if match is None:
                raise self._fault(
                    f"{text!r} is no claim",
                    "Write `$jwt.<claim>`, or `$$` for a `$` that stands for itself.",
                    f"{column}.{operator}",
                )
            if operator not in _CLAIM_OPERATORS:
                raise self._fault(
                    f"a claim cannot be used with {operator}",
                    f"Use it with one of {', '.join(_CLAIM_OPERATORS)}.",
                    f"{column}.{operator}",
                )
            self._paths[text] = match[1]
            values = enums.get(column) or (_SAMPLES.get(types.get(column, "string")),)
            return values[0]

        filled = _filled(where, sample)
        try:
            parse_filter(schema, filled, RULE_LIMITS)
        except InvalidFilter as error:
            place = (error.field or "").removeprefix("where").removeprefix(".")
            raise self._fault(error.message, error.hint, place) from None

    def claims_of(self, session: Session) -> tuple[object, ...]:
        """The claims that the rule names, in its order. One that is missing or null denies."""
        return tuple(self._claim(session, path) for path in self._paths.values())

    def filled_in(self, claims: tuple[object, ...]) -> Filter:
        """The rule with the claims in their places; `AccessDenied` where one does not fit."""
        values = dict(zip(self._paths, claims, strict=True))

        def value(column: str, operator: str, text: str) -> object:
            return values[text]

        try:
            return parse_filter(self._schema, _filled(self._where, value), RULE_LIMITS)
        except InvalidFilter:
            # What the rule compares is nobody's business, so nothing of it is repeated.
            raise _denied(
                f"a claim of this token does not fit the rule of the view {self._schema.name}",
                f"Compare the types of the claims with `{self._field}`.",
            ) from None

    def _claim(self, session: Session, path: str) -> object:
        claim = claim_at(session.claims, path)
        if claim is MISSING or claim is None:
            raise _denied(f"this token does not have the claim `{path}`")
        if isinstance(claim, Mapping):
            raise _denied(f"the claim `{path}` of this token is an object and no value")
        return claim

    def _fault(self, message: str, hint: str, place: str) -> ConfigError:
        field = f"{self._field}.{place}" if place else self._field
        return ConfigError(f"{field}: {message}", hint=hint, field=field)


def _filled(where: Mapping[str, Any], resolve: _Resolve) -> dict[str, Any]:
    """The `where` with each claim replaced by what `resolve` gives for it."""
    filled: dict[str, Any] = {}
    for name, inner in where.items():
        if name in LOGICAL_OPERATORS:
            parts = inner if isinstance(inner, list) else [inner]
            each = [_filled(part, resolve) for part in parts]
            filled[name] = each if isinstance(inner, list) else each[0]
        else:
            filled[name] = {
                operator: _operand(name, operator, operand, resolve)
                for operator, operand in inner.items()
            }
    return filled


def _operand(column: str, operator: str, operand: object, resolve: _Resolve) -> object:
    if isinstance(operand, list):
        return [_single(column, operator, entry, resolve) for entry in operand]
    return _single(column, operator, operand, resolve, whole=operator in _LIST_OPERATORS)


def _single(
    column: str, operator: str, value: object, resolve: _Resolve, *, whole: bool = False
) -> object:
    """One value; a list may only stand where the claim is the `whole` list."""
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    if value.startswith(_ESCAPED):
        return value[1:]
    claim = resolve(column, operator, value)
    if isinstance(claim, list) and not whole:
        raise InvalidFilter("a list where a single value must be")
    return claim


def _denied(message: str, hint: str = "") -> AccessDenied:
    return AccessDenied(
        message, status=403, hint=hint or "Ask whoever issues the tokens, or use another one."
    )
