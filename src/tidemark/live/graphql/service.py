"""GraphQL for one deployment, whatever the transport: documents in, results out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
from graphql import ExecutionResult, FieldNode, GraphQLError, GraphQLSchema, execute
from graphql.execution.values import VariableValues, get_argument_values, get_variable_values

from tidemark.clock import Clock
from tidemark.errors import AccessDenied, TidemarkError
from tidemark.live.access.sessions import Session
from tidemark.live.filters import Filter, FilterLimits
from tidemark.live.graphql.arguments import resume_after
from tidemark.live.graphql.described import DescribedView
from tidemark.live.graphql.documents import (
    MAX_REPORTED_ERRORS,
    Documents,
    Operation,
    byte_size,
)
from tidemark.live.graphql.limits import DocumentLimits, QueryLimits
from tidemark.live.graphql.problems import (
    INVALID,
    VARIABLES,
    DocumentRefused,
    formatted,
    refusal,
)
from tidemark.live.graphql.queries import Answering, RowsExecutor, Sources
from tidemark.live.graphql.rate import DocumentRate, RateLimits, price_of_reading
from tidemark.live.graphql.schema import build_schema
from tidemark.live.graphql.selection import Selected, UpdateSelection
from tidemark.live.graphql.sessions import Permission, RowRule
from tidemark.live.graphql.triggers_port import TriggersPort
from tidemark.live.graphql.turns import Turns
from tidemark.pipeline.output.batch import Frontier
from tidemark.views.port import ViewsStore

_decode = msgspec.json.Decoder(float_hook=Decimal).decode


class ServiceLimits(msgspec.Struct, frozen=True):
    """Every limit on what a caller may ask."""

    documents: DocumentLimits = DocumentLimits()
    queries: QueryLimits = QueryLimits()
    filters: FilterLimits = FilterLimits()
    rate: RateLimits = RateLimits()


class SubscriptionRequest(msgspec.Struct, frozen=True):
    """What a subscriber asks for. The caller's row rule is in the filter already.

    `after` is a source timestamp in microseconds to go on from; None begins with a snapshot.
    """

    view: str
    filter: Filter
    projection: UpdateSelection
    after: int | None
    progress: bool


class Payload(msgspec.Struct, frozen=True):
    """A request of GraphQL, its members being of the right types."""

    query: str
    variables: Mapping[str, Any]
    operation_name: str | None


class GraphqlService:
    """Answers documents and reads subscriptions. It keeps nothing but documents and their rate.

    `may_introspect` and `may_manage_triggers` raise `AccessDenied` for those who may not.
    """

    def __init__(
        self,
        views: Sequence[DescribedView],
        store: ViewsStore,
        *,
        rule: RowRule,
        clock: Clock,
        triggers: TriggersPort | None = None,
        may_introspect: Permission = lambda session: None,
        may_manage_triggers: Permission = lambda session: None,
        limits: ServiceLimits | None = None,
    ) -> None:
        limits = limits or ServiceLimits()
        self.schema: GraphQLSchema = build_schema(views, triggers=triggers is not None)
        self._documents = Documents(self.schema, limits.documents)
        self._rate = DocumentRate(limits.rate, clock)
        self._may_introspect = may_introspect
        self._attempts = limits.queries.attempts
        self._turns = Turns(limits.queries)
        self._sources = Sources(
            schemas={view.schema.name: view.schema for view in views},
            store=store,
            rule=rule,
            triggers=triggers,
            manage_triggers=may_manage_triggers,
            query_limits=limits.queries,
            filter_limits=limits.filters,
        )

    def operation(
        self, session: Session, payload: Payload, *, connection: str | None = None
    ) -> Operation:
        """The operation of a request. Raises `DocumentRefused`.

        It counts against the rate of the connection it came on, where that has a name of its own,
        and else against the rate of the caller. One that has to be read first counts against both:
        a caller may have any number of connections.
        """
        known = self._documents.knows(payload.query, payload.operation_name)
        price = 1 if known else price_of_reading(byte_size(payload.query))
        if connection is not None:
            self._rate.take(connection, price)
        if connection is None or not known:
            self._rate.take(f"caller {session.name}", price)
        try:
            session.require("read")
            operation = self._documents.operation(payload.query, payload.operation_name)
            if operation.introspects:
                self._may_introspect(session)
        except AccessDenied as error:
            raise DocumentRefused.because(error) from None
        return operation

    async def run(
        self, session: Session, operation: Operation, variables: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The response of an operation that was let through, to be encoded with msgspec.

        Raises `DocumentRefused`.
        """
        if operation.kind == "subscription":
            raise refusal(
                "a subscription has no single answer",
                code="subscription_over_http",
                hint="Open a websocket at this address, with the protocol graphql-transport-ws.",
            )
        if operation.kind == "mutation":
            # An effect must not be had twice.
            return await self._answered(session, operation, variables, 1)
        async with self._turns.one():
            return await self._answered(session, operation, variables, self._attempts)

    async def _answered(
        self,
        session: Session,
        operation: Operation,
        variables: Mapping[str, Any],
        attempts: int,
    ) -> dict[str, Any]:
        for _ in range(attempts):
            answering = Answering(self._sources, session)
            result = await self._executed(operation, variables, answering)
            if len(answering.frontiers) < 2:
                return _response(result, answering.frontiers)
        raise refusal(
            "the views moved on between the fields of this document, again and again",
            code="views_moving",
            hint="Try again, or ask for fewer views at once.",
            status=503,
        )

    def subscription(
        self, session: Session, operation: Operation, variables: Mapping[str, Any]
    ) -> SubscriptionRequest:
        """What a subscription asks for that was let through.

        Raises `DocumentRefused`, whose `errors` are the answer.
        """
        values = self._variables(operation, variables)
        selected = Selected(operation.fragments, values)
        roots = selected.root(operation.node.selection_set)
        if len(roots) != 1:
            raise refusal(
                f"a subscription of {len(roots)} fields",
                code=INVALID,
                hint="Subscribe to one view; a connection can hold many subscriptions.",
            )
        [(response_key, nodes)] = roots.items()
        view = nodes[0].name.value
        arguments = self._arguments(nodes[0], values)
        try:
            return SubscriptionRequest(
                view,
                self._sources.filter(session, view, arguments.get("where")),
                UpdateSelection(self._sources.schemas[view], response_key, nodes, selected),
                resume_after(arguments.get("after")),
                bool(arguments.get("progress")),
            )
        except TidemarkError as error:
            raise DocumentRefused.because(error) from None

    async def _executed(
        self, operation: Operation, variables: Mapping[str, Any], answering: Answering
    ) -> ExecutionResult:
        result = execute(
            self.schema,
            operation.document,
            context_value=answering,
            variable_values=dict(variables),
            operation_name=operation.name,
            max_coercion_errors=MAX_REPORTED_ERRORS,
            executor_class=RowsExecutor,
        )
        if isinstance(result, ExecutionResult):
            return result
        return await result

    def _variables(self, operation: Operation, variables: Mapping[str, Any]) -> VariableValues:
        found = get_variable_values(
            self.schema,
            operation.node.variable_definitions or (),
            dict(variables),
            max_errors=MAX_REPORTED_ERRORS,
        )
        if isinstance(found, list):
            raise DocumentRefused.by_graphql(found, VARIABLES)
        return found

    def _arguments(self, node: FieldNode, values: VariableValues) -> dict[str, Any]:
        assert self.schema.subscription_type is not None
        field = self.schema.subscription_type.fields[node.name.value]
        try:
            return get_argument_values(field, node, values)
        except GraphQLError as error:
            raise DocumentRefused.by_graphql([error], VARIABLES) from None


def read_payload(body: bytes | Mapping[str, Any]) -> Payload:
    """A request as clients send it. Raises `DocumentRefused`."""
    if isinstance(body, bytes):
        body = read_json(body, "the request")
    if not isinstance(body, Mapping):
        raise _unreadable("the request is no JSON object")
    query = body.get("query")
    variables = body.get("variables")
    name = body.get("operationName")
    if not isinstance(query, str):
        raise _unreadable("`query` must be a string")
    if not isinstance(variables, Mapping | None):
        raise _unreadable("`variables` must be an object")
    if not isinstance(name, str | None):
        raise _unreadable("`operationName` must be a string")
    return Payload(query, variables or {}, name or None)


def read_json(text: bytes | str, what: str) -> Any:
    """Numbers are not rounded, for the scalars that keep every digit. Raises `DocumentRefused`."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _unreadable(f"{what} is no JSON: {error}") from None


def _unreadable(message: str) -> DocumentRefused:
    return refusal(
        message,
        code="invalid_request",
        hint="Send {query, variables, operationName} as a JSON object.",
    )


def _response(result: ExecutionResult, frontiers: set[Frontier | None]) -> dict[str, Any]:
    response: dict[str, Any] = {}
    refused = result.data is None and not any(error.path for error in result.errors or ())
    if result.errors:
        code = VARIABLES if refused else INVALID
        response["errors"] = [formatted(error, code) for error in result.errors]
    if not refused:
        response["data"] = result.data
    if frontiers:
        [frontier] = frontiers
        response["extensions"] = {
            "frontier": None if frontier is None else str(frontier.ingress_sequence),
            "ts_timestamp": None if frontier is None else str(frontier.received_at),
        }
    return response
