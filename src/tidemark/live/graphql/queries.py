"""Queries and mutations, run by graphql-core over the views store.

Rows are not completed field by field: a resolver gives them as JSON, made by the template of their
selection set, and the executor lets that through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from graphql import FieldNode
from graphql.execution.executor_throwing_on_incremental import ExecutorThrowingOnIncremental
from graphql.execution.values import get_argument_values

from tidemark.decimals import plain_decimal
from tidemark.live.access.sessions import Session
from tidemark.live.filters import (
    Filter,
    FilterLimits,
    both,
    parse_filter,
    row_query,
    sql_condition,
)
from tidemark.live.graphql.arguments import only_column, order_terms, row_limit, row_offset
from tidemark.live.graphql.context import Info
from tidemark.live.graphql.limits import QueryLimits
from tidemark.live.graphql.selection import TYPENAME, RowTemplate, Selected
from tidemark.live.graphql.sessions import Permission, RowRule
from tidemark.live.graphql.triggers_port import TriggersPort
from tidemark.live.graphql.types import COUNT, COUNT_DISTINCT, count_term
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.output.encoding import json_values
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import Column, ViewSchema
from tidemark.views.port import RowQuery, RowsFound, ViewsStore

Term = tuple[str, str]

# Between as many rows other work gets its turn.
ROWS_AT_ONCE: Final = 1_000
_encode = msgspec.json.Encoder().encode


class RowsExecutor(ExecutorThrowingOnIncremental):
    """Takes JSON from a resolver for the completed value of its field."""

    def complete_value(
        self,
        return_type: Any,
        field_details_list: Any,
        info: Any,
        path: Any,
        result: Any,
        *rest: Any,
    ) -> Any:
        if isinstance(result, msgspec.Raw):
            return result
        return super().complete_value(return_type, field_details_list, info, path, result, *rest)


class Sources(msgspec.Struct, frozen=True):
    """What documents are answered from."""

    schemas: Mapping[str, ViewSchema]
    store: ViewsStore
    rule: RowRule
    triggers: TriggersPort | None
    manage_triggers: Permission
    query_limits: QueryLimits
    filter_limits: FilterLimits

    def filter(self, session: Session, view: str, where: object) -> Filter:
        """The rows that a caller asks for, of those that it may see.

        The rule is looked up first: who may see nothing learns nothing from an error in `where`.
        """
        allowed = self.rule(view, session)
        return both(parse_filter(self.schemas[view], where, self.filter_limits), allowed)


class Answering:
    """The `QueryContext` of one document for one caller; `frontiers` is when it was answered."""

    def __init__(self, sources: Sources, session: Session) -> None:
        self._sources = sources
        self.session = session
        # However many fields a document has, it takes no more of the store than any other.
        self._turn = asyncio.Lock()
        self.frontiers: set[Frontier | None] = set()

    async def rows(self, view: str, info: Info, arguments: Mapping[str, Any]) -> msgspec.Raw:
        sources = self._sources
        limits = sources.query_limits
        schema = sources.schemas[view]
        wanted = sources.filter(self.session, view, arguments.get("where"))
        dialect = sources.store.dialect
        query = row_query(
            schema,
            wanted,
            dialect,
            order=order_terms(schema, arguments.get("order_by"), dialect, limits),
            limit=row_limit(arguments.get("limit"), limits),
            offset=row_offset(arguments.get("offset"), limits),
        )
        found = await self._select(view, query)
        written = await _written(schema, found.columns, found.rows, _template(schema, info))
        return msgspec.Raw(b"[" + b",".join(written) + b"]")

    async def row_by_key(
        self, view: str, info: Info, arguments: Mapping[str, Any]
    ) -> msgspec.Raw | None:
        sources = self._sources
        schema = sources.schemas[view]
        where = {name: {"_eq": value} for name, value in arguments.items()}
        wanted = sources.filter(self.session, view, where)
        query = row_query(schema, wanted, sources.store.dialect, limit=1)
        found = await self._select(view, query)
        written = await _written(schema, found.columns, found.rows, _template(schema, info))
        return msgspec.Raw(written[0]) if written else None

    async def aggregates(
        self, view: str, info: Info, arguments: Mapping[str, Any]
    ) -> dict[Term, object]:
        sources = self._sources
        schema = sources.schemas[view]
        wanted = sources.filter(self.session, view, arguments.get("where"))
        terms = sorted(_terms(info))
        condition = sql_condition(schema, wanted, sources.store.dialect)
        async with self._turn:
            values, frontier = await sources.store.aggregate(view, condition, terms)
        self.frontiers.add(frontier)
        columns = {column.name: column for column in schema.visible}
        return {
            term: _shown(term, columns.get(term[1]), value)
            for term, value in zip(terms, values, strict=True)
        }

    def triggers(self) -> TriggersPort:
        self._sources.manage_triggers(self.session)
        assert self._sources.triggers is not None
        return self._sources.triggers

    def page_limit(self, asked: int | None, default: int) -> int:
        return default if asked is None else row_limit(asked, self._sources.query_limits)

    async def _select(self, view: str, query: RowQuery) -> RowsFound:
        async with self._turn:
            found = await self._sources.store.select(view, query)
        self.frontiers.add(found.frontier)
        return found


async def _written(
    schema: ViewSchema, names: Sequence[str], rows: Sequence[ViewRow], template: RowTemplate
) -> list[bytes]:
    """Each row as JSON."""
    columns = {column.name: column for column in schema.visible}
    picked = [(names.index(name), columns[name]) for name in template.columns]
    written: list[bytes] = []
    for start in range(0, len(rows), ROWS_AT_ONCE):
        if start:
            await asyncio.sleep(0)
        some = rows[start : start + ROWS_AT_ONCE]
        if not picked:
            written += [template.text % ()] * len(some)
            continue
        members = [
            [_encode(value) for value in json_values(column, [row.values[place] for row in some])]
            for place, column in picked
        ]
        written += [template.text % values for values in zip(*members, strict=True)]
    return written


def _template(schema: ViewSchema, info: Info) -> RowTemplate:
    selected = Selected(info.fragments, info.variable_values)
    return RowTemplate(schema.name, selected.fields(info.field_nodes))


def _terms(info: Info) -> set[Term]:
    """Every aggregate that is selected below the field."""
    selected = Selected(info.fragments, info.variable_values)
    terms: set[Term] = set()
    for nodes in selected.fields(info.field_nodes).values():
        for inner in selected.fields(nodes).values():
            function = inner[0].name.value
            if function == COUNT:
                terms.add(_count(info, inner[0]))
            elif function != TYPENAME:
                terms |= {
                    (function, leaf[0].name.value)
                    for leaf in selected.fields(inner).values()
                    if leaf[0].name.value != TYPENAME
                }
    return terms


def _count(info: Info, node: FieldNode) -> Term:
    aggregate: Any = info.schema.type_map[f"{info.field_name.removesuffix('_aggregate')}Aggregate"]
    field = aggregate.fields["aggregate"].type.of_type.fields[COUNT]
    arguments = get_argument_values(field, node, info.variable_values)
    only_column(arguments.get("columns"))
    return count_term(arguments)


def _shown(term: Term, column: Column | None, value: Any) -> object:
    """The value of an aggregate as it stands in JSON."""
    function = term[0]
    if value is None or column is None or function in (COUNT, COUNT_DISTINCT):
        return value
    if function in ("min", "max"):
        [shown] = json_values(column, [value])
        return shown
    return str(value) if isinstance(value, int) else plain_decimal(value)
