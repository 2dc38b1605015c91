"""A selection set compiled once into a template that rows and changes are poured into.

graphql-core takes more than a hundred microseconds to execute the selection of one message; this
takes about one. It relies on what validation has made sure of: every fragment fits, because no type
has an interface, and fields of one name in the response are the same field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec
from graphql import (
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLIncludeDirective,
    GraphQLSkipDirective,
    InlineFragmentNode,
    SelectionNode,
    SelectionSetNode,
)
from graphql.execution.values import VariableValues, get_directive_values

from tidemark.pipeline.output.schema import ViewSchema

NULL: Final = b"null"
TYPENAME: Final = "__typename"

_SLOT: Final = b"%b"
_OPERATIONS: Final = {
    name: f'"{name}"'.encode() for name in ("INSERT", "UPDATE", "DELETE", "PROGRESS")
}
# Where each part of an update stands among the values that its template is given.
_PLACES: Final = {"operation": 0, "fields": 1, "ts_timestamp": 2}
_encode = msgspec.json.Encoder().encode

Fragments = Mapping[str, FragmentDefinitionNode]


class Selected:
    """The fields of a selection set by their name in the response, in the order of their coming."""

    def __init__(self, fragments: Fragments, variables: VariableValues) -> None:
        self._fragments = fragments
        self._variables = variables

    def fields(self, nodes: Sequence[FieldNode]) -> dict[str, list[FieldNode]]:
        """What is selected of the value of these fields, which are one field to GraphQL."""
        found: dict[str, list[FieldNode]] = {}
        seen: set[str] = set()
        for node in nodes:
            if node.selection_set is not None:
                for field in self._fields(node.selection_set, seen):
                    found.setdefault((field.alias or field.name).value, []).append(field)
        return found

    def root(self, selections: SelectionSetNode) -> dict[str, list[FieldNode]]:
        """The same for an operation."""
        found: dict[str, list[FieldNode]] = {}
        for field in self._fields(selections, set()):
            found.setdefault((field.alias or field.name).value, []).append(field)
        return found

    def _fields(self, selections: SelectionSetNode, seen: set[str]) -> Iterator[FieldNode]:
        for selection in selections.selections:
            if not self._included(selection):
                continue
            if isinstance(selection, FieldNode):
                yield selection
            elif isinstance(selection, InlineFragmentNode):
                yield from self._fields(selection.selection_set, seen)
            elif isinstance(selection, FragmentSpreadNode):
                name = selection.name.value
                if name not in seen:
                    seen.add(name)
                    yield from self._fields(self._fragments[name].selection_set, seen)

    def _included(self, selection: SelectionNode) -> bool:
        if not selection.directives:
            return True
        skip = get_directive_values(GraphQLSkipDirective, selection, self._variables)
        if skip is not None and skip["if"]:
            return False
        include = get_directive_values(GraphQLIncludeDirective, selection, self._variables)
        return include is None or bool(include["if"])


class RowTemplate:
    """The JSON of a row, ready but for the values of `columns`, which may be named repeatedly."""

    __slots__ = ("_get", "columns", "text")

    def __init__(self, type_name: str, fields: Mapping[str, Sequence[FieldNode]]) -> None:
        members: list[bytes] = []
        columns: list[str] = []
        for key, nodes in fields.items():
            name = nodes[0].name.value
            if name == TYPENAME:
                members.append(_member(key, _encode(type_name)))
            else:
                members.append(_member(key, _SLOT))
                columns.append(name)
        self.columns = tuple(columns)
        self.text = b"{" + b",".join(members) + b"}"
        self._get = _getter(columns)

    def render(self, members: Mapping[str, bytes]) -> bytes:
        """`members` is each column's JSON; one that is missing is null."""
        try:
            return self.text % self._get(members)
        except KeyError:
            return self.text % tuple(members.get(column, NULL) for column in self.columns)


class UpdateSelection:
    """A `Projection` of the engine: what a subscriber selected of a view's updates.

    `columns` are those it shows, or all if it shows none of the row: then any change concerns it.
    """

    __slots__ = ("_get", "_rows", "_shows_fields", "_template", "columns", "key")

    def __init__(
        self, schema: ViewSchema, response_key: str, nodes: Sequence[FieldNode], selected: Selected
    ) -> None:
        update_type = f"{schema.name}Update"
        members: list[bytes] = []
        places: list[int] = []
        self._rows: list[RowTemplate] = []
        for key, fields in selected.fields(nodes).items():
            name = fields[0].name.value
            if name == TYPENAME:
                members.append(_member(key, _encode(update_type)))
                continue
            # A timestamp is put in as digits.
            members.append(_member(key, b'"%b"' if name == "ts_timestamp" else _SLOT))
            if name == "data":
                places.append(len(_PLACES) + len(self._rows))
                self._rows.append(RowTemplate(schema.name, selected.fields(fields)))
            else:
                places.append(_PLACES[name])
        self._shows_fields = _PLACES["fields"] in places
        self._get = _getter(places)
        inner = b"{" + b",".join(members) + b"}"
        self._template = b'{"data":{' + _member(response_key, inner) + b"}}"
        self.columns = (
            frozenset(column for row in self._rows for column in row.columns)
            if self._rows
            else frozenset(column.name for column in schema.visible)
        )
        rows = [[row.text.decode(), *row.columns] for row in self._rows]
        self.key = _encode([self._template.decode(), places, rows]).decode()

    def render(
        self,
        operation: str,
        members: Mapping[str, bytes] | None,
        fields: Sequence[str],
        timestamp: int,
    ) -> bytes:
        """The JSON of one GraphQL result."""
        values: list[bytes] = [
            _OPERATIONS[operation],
            _encode(fields) if self._shows_fields else NULL,
            b"%d" % timestamp,
        ]
        for row in self._rows:
            values.append(NULL if members is None else row.render(members))
        return self._template % self._get(values)


def _member(key: str, value: bytes) -> bytes:
    # A name has no character that JSON or a template would have to escape.
    return b'"' + key.encode() + b'":' + value


def _getter(keys: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """All values at some keys, as a tuple however many there are."""
    if len(keys) > 1:
        return itemgetter(*keys)
    if keys:
        [key] = keys
        return lambda values: (values[key],)
    return lambda values: ()
