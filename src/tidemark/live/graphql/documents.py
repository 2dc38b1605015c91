"""Documents: parsed, validated and measured once, then remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

import msgspec
from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    GraphQLSchema,
    InlineFragmentNode,
    OperationDefinitionNode,
    SelectionSetNode,
    parse,
    validate,
)
from graphql.validation import MaxIntrospectionDepthRule, specified_rules

from tidemark.live.graphql.limits import DocumentLimits
from tidemark.live.graphql.problems import INVALID, SYNTAX, DocumentRefused, refusal

OperationKind: TypeAlias = Literal["query", "mutation", "subscription"]

MAX_REPORTED_ERRORS: Final = 20
_INTROSPECTION: Final = frozenset(("__schema", "__type"))
# How graphql-core words its limits; they have no code.
_SYNTAX_ERROR: Final = "Syntax Error: "
_TOO_MUCH: Final = "Parsing aborted."
_GIVEN_UP: Final = "Validation aborted."
_RULES: Final = (
    *specified_rules,
    *(rule for rule in (MaxIntrospectionDepthRule,) if rule not in specified_rules),
)


class Operation(msgspec.Struct, frozen=True, eq=False):
    """One operation of a valid document."""

    document: DocumentNode
    node: OperationDefinitionNode
    fragments: Mapping[str, FragmentDefinitionNode]
    introspects: bool

    @property
    def kind(self) -> OperationKind:
        return self.node.operation.value

    @property
    def name(self) -> str | None:
        return None if self.node.name is None else self.node.name.value


class Documents:
    """Gives the operation of a text. Raises `DocumentRefused` with every reason at once."""

    def __init__(self, schema: GraphQLSchema, limits: DocumentLimits | None = None) -> None:
        self._schema = schema
        self._limits = limits or DocumentLimits()
        self._cache: OrderedDict[tuple[str, str | None], Operation] = OrderedDict()
        self._cached_bytes = 0

    def knows(self, text: str, operation_name: str | None) -> bool:
        """Whether the document need not be read again."""
        return (text, operation_name) in self._cache

    def operation(self, text: str, operation_name: str | None = None) -> Operation:
        key = (text, operation_name)
        known = self._cache.get(key)
        if known is not None:
            self._cache.move_to_end(key)
            return known
        size = byte_size(text)
        if size > self._limits.max_bytes:
            raise refusal(
                f"the document has {size} bytes, more than {self._limits.max_bytes}",
                code="document_too_large",
                hint="Pass long lists as variables, or ask in several documents.",
            )
        found = self._read(text, operation_name)
        self._remember(key, size, found)
        return found

    def _remember(self, key: tuple[str, str | None], size: int, found: Operation) -> None:
        self._cache[key] = found
        self._cached_bytes += size
        while (
            len(self._cache) > self._limits.cached_documents
            or self._cached_bytes > self._limits.cached_bytes
        ):
            (oldest, _), _ = self._cache.popitem(last=False)
            self._cached_bytes -= byte_size(oldest)

    def _read(self, text: str, operation_name: str | None) -> Operation:
        document = self._parse(text)
        fragments = {
            node.name.value: node
            for node in document.definitions
            if isinstance(node, FragmentDefinitionNode)
        }
        self._measure(document)
        errors = validate(self._schema, document, _RULES, MAX_REPORTED_ERRORS)
        if any(error.message == _GIVEN_UP for error in errors):
            raise refusal(
                "the document takes too long to validate",
                code="document_too_complex",
                hint="Name each field once, or ask in several documents.",
            )
        if errors:
            raise DocumentRefused.by_graphql(errors, INVALID)
        node = _chosen(document, operation_name)
        # Fragments are known not to contain themselves only from here on.
        self._measure_expanded(node, fragments)
        fields = _root_fields(node.selection_set, fragments, set())
        introspects = any(field.name.value in _INTROSPECTION for field in fields)
        return Operation(document, node, fragments, introspects)

    def _parse(self, text: str) -> DocumentNode:
        limits = self._limits
        try:
            return parse(
                text, max_lexical_tokens=limits.max_tokens, max_comments=limits.max_comments
            )
        except GraphQLError as error:
            if error.message.endswith(_TOO_MUCH):
                raise refusal(
                    error.message.removeprefix(_SYNTAX_ERROR),
                    code="document_too_complex",
                    hint=f"A document may have {limits.max_tokens} tokens and "
                    f"{limits.max_comments} comments.",
                ) from None
            raise DocumentRefused.by_graphql([error], SYNTAX) from None

    def _measure(self, document: DocumentNode) -> None:
        """Before validation, whose work grows with the square of most of these numbers."""
        fields = aliases = 0
        fragments = sum(isinstance(node, FragmentDefinitionNode) for node in document.definitions)
        waiting = [
            node.selection_set
            for node in document.definitions
            if isinstance(node, OperationDefinitionNode | FragmentDefinitionNode)
        ]
        while waiting:
            for selection in waiting.pop().selections:
                if isinstance(selection, FieldNode):
                    fields += 1
                    aliases += selection.alias is not None
                else:
                    fragments += 1
                nested = getattr(selection, "selection_set", None)
                if nested is not None:
                    waiting.append(nested)
        _limit("fields", fields, self._limits.max_fields, "too_many_fields")
        _limit("fragments", fragments, self._limits.max_fragments, "too_many_fragments")
        _limit("aliases", aliases, self._limits.max_aliases, "too_many_aliases")

    def _measure_expanded(
        self, node: OperationDefinitionNode, fragments: Mapping[str, FragmentDefinitionNode]
    ) -> None:
        names = {
            (field.alias or field.name).value
            for field in _root_fields(node.selection_set, fragments, set())
        }
        _limit("root fields", len(names), self._limits.max_root_fields, "too_many_root_fields")
        depth = _depth(node.selection_set, fragments, {})
        _limit("levels", depth, self._limits.max_depth, "document_too_deep")


def byte_size(text: str) -> int:
    """Of any text that JSON can hold, even one that is no Unicode."""
    return len(text.encode("utf-8", "surrogatepass"))


def _chosen(document: DocumentNode, operation_name: str | None) -> OperationDefinitionNode:
    operations = [
        node for node in document.definitions if isinstance(node, OperationDefinitionNode)
    ]
    if operation_name is None and len(operations) == 1:
        return operations[0]
    for node in operations:
        if node.name is not None and node.name.value == operation_name:
            return node
    names = ", ".join(node.name.value for node in operations if node.name is not None)
    if operation_name is None:
        message = f"the document has {len(operations)} operations"
    else:
        message = f"the document has no operation {operation_name[:64]!r}"
    raise refusal(
        message, code="operation_unknown", hint=f"Set `operationName` to one of: {names or 'none'}."
    )


def _limit(what: str, count: int, most: int, code: str) -> None:
    if count > most:
        raise refusal(
            f"the document has {count} {what}, more than {most}",
            code=code,
            hint="Ask in several documents.",
        )


def _root_fields(
    selections: SelectionSetNode,
    fragments: Mapping[str, FragmentDefinitionNode],
    seen: set[str],
) -> Iterator[FieldNode]:
    for selection in selections.selections:
        if isinstance(selection, FieldNode):
            yield selection
        elif isinstance(selection, InlineFragmentNode):
            yield from _root_fields(selection.selection_set, fragments, seen)
        elif isinstance(selection, FragmentSpreadNode) and selection.name.value not in seen:
            seen.add(selection.name.value)
            yield from _root_fields(fragments[selection.name.value].selection_set, fragments, seen)


def _depth(
    selections: SelectionSetNode,
    fragments: Mapping[str, FragmentDefinitionNode],
    known: dict[str, int],
) -> int:
    """How deep fields are nested. Introspection has a limit of its own and counts as one level."""
    deepest = 0
    for selection in selections.selections:
        if isinstance(selection, FieldNode):
            depth = 1
            if selection.selection_set is not None and selection.name.value not in _INTROSPECTION:
                depth += _depth(selection.selection_set, fragments, known)
        elif isinstance(selection, InlineFragmentNode):
            depth = _depth(selection.selection_set, fragments, known)
        elif isinstance(selection, FragmentSpreadNode):
            name = selection.name.value
            if name not in known:
                known[name] = _depth(fragments[name].selection_set, fragments, known)
            depth = known[name]
        else:
            depth = 0
        deepest = max(deepest, depth)
    return deepest
