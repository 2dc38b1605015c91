"""What the resolvers of the schema need while one document is answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from graphql import GraphQLResolveInfo

from tidemark.live.access.sessions import Session
from tidemark.live.graphql.triggers_port import TriggersPort

Info: TypeAlias = GraphQLResolveInfo[Any]


class QueryContext(Protocol):
    """Answers the root fields for one caller."""

    @property
    def session(self) -> Session: ...

    async def rows(self, view: str, info: Info, arguments: Mapping[str, Any]) -> object:
        """The rows of a query, already as JSON."""

    async def row_by_key(self, view: str, info: Info, arguments: Mapping[str, Any]) -> object:
        """One row, already as JSON, or None."""

    async def aggregates(self, view: str, info: Info, arguments: Mapping[str, Any]) -> object:
        """The values of all aggregates that are selected, by function and column."""

    def triggers(self) -> TriggersPort:
        """Where triggers are; raises `AccessDenied` if the caller may not manage them."""

    def page_limit(self, asked: int | None, default: int) -> int:
        """How many entries a page may have."""
