"""What the configuration says about GraphQL."""

from __future__ import annotations

from tidemark.config import Config
from tidemark.errors import AccessDenied
from tidemark.live.access.sessions import Session
from tidemark.live.filters import FilterLimits
from tidemark.live.graphql.limits import DocumentLimits, QueryLimits
from tidemark.live.graphql.rate import RateLimits
from tidemark.live.graphql.service import ServiceLimits
from tidemark.live.graphql.sessions import Permission


def service_limits(config: Config) -> ServiceLimits:
    """The limits that `live` sets; the others are as they are."""
    live = config.live
    return ServiceLimits(
        documents=DocumentLimits(
            max_bytes=live.max_document_bytes, max_depth=live.max_document_depth
        ),
        queries=QueryLimits(
            default_rows=min(QueryLimits().default_rows, live.max_query_rows),
            max_rows=live.max_query_rows,
        ),
        filters=FilterLimits(
            max_depth=live.max_filter_depth,
            max_conditions=live.max_filter_conditions,
            max_list=live.max_filter_list,
        ),
        rate=RateLimits(live.documents_per_second, live.document_burst),
    )


def introspection(config: Config) -> Permission:
    """Who may ask what the schema is."""

    def by_scope(session: Session) -> None:
        session.require("introspect")

    def everyone(session: Session) -> None:
        pass

    def nobody(session: Session) -> None:
        raise AccessDenied(
            "nobody may ask for the schema here",
            status=403,
            hint="`tidemark schema` prints it; `live.introspection` says who may ask.",
        )

    return {"scope": by_scope, "everyone": everyone, "nobody": nobody}[config.live.introspection]


def trigger_management(session: Session) -> None:
    """Who may see and change triggers."""
    session.require("triggers")
    if not session.is_somebody:
        raise AccessDenied(
            "this token does not say whose it is, and a trigger is somebody's",
            status=403,
            hint="The issuer must set the claim `sub`.",
        )
