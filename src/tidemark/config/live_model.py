"""The settings of what the world sees live: subscriptions, triggers and their webhooks."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from tidemark.config.durations import UNITS_US
from tidemark.config.live_values import (
    IdPrefix,
    NetworkTarget,
    WebhookSecret,
    WebhookUrl,
    Where,
)
from tidemark.config.section import ListOf, Section, Text
from tidemark.config.values import Duration, LedgerUrl

Introspection = Literal["scope", "everyone", "nobody"]

INTROSPECTION: Final[dict[Introspection, str]] = {
    "scope": "Callers with the scope `introspect`; without `auth.keys` every caller.",
    "everyone": "Every caller that may read.",
    "nobody": "No caller; `tidemark schema` still prints the schema.",
}


class LiveConfig(Section):
    """Subscriptions and queries over GraphQL, and what bounds them."""

    enabled: bool = Field(default=True, description="Whether GraphQL is served.")
    max_subscriptions: int = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description="The most subscriptions in one process; beyond it further ones are refused.",
    )
    max_subscriptions_per_connection: int = Field(
        default=100,
        ge=1,
        le=100_000,
        description="The most subscriptions on one websocket.",
    )
    max_filter_depth: int = Field(
        default=10,
        ge=1,
        le=32,
        description="The deepest nesting of `_and`, `_or` and `_not` in a client's filter.",
    )
    max_filter_conditions: int = Field(
        default=200,
        ge=1,
        le=10_000,
        description="The most comparisons in a client's filter.",
    )
    max_filter_list: int = Field(
        default=1_000,
        ge=1,
        le=100_000,
        description="The most values in one `_in` or `_nin` of a client's filter.",
    )
    max_document_bytes: int = Field(
        default=65_536,
        ge=1_024,
        le=16_777_216,
        description="The most bytes of one GraphQL request, its variables included.",
    )
    max_document_depth: int = Field(
        default=12,
        ge=3,
        le=100,
        description="The deepest nesting of selections in one GraphQL document.",
    )
    documents_per_second: int = Field(
        default=50,
        ge=1,
        le=1_000_000,
        description="How many GraphQL requests one connection may send each second.",
    )
    document_burst: int = Field(
        default=200,
        ge=1,
        le=1_000_000,
        description="How many of them it may send at once after it was silent.",
    )
    introspection: Introspection = Field(
        default="scope", description="Who may ask GraphQL what its schema is."
    )
    poll_us: Duration = Field(
        default=10 * UNITS_US["ms"],
        ge=UNITS_US["ms"],
        validation_alias="poll",
        description="How often the log of changes is looked at while somebody subscribes.",
    )
    heartbeat_us: Duration = Field(
        default=15 * UNITS_US["s"],
        ge=UNITS_US["s"],
        validation_alias="heartbeat",
        description=(
            "How long a subscription is silent before a ping, with PROGRESS for those that asked "
            "for it."
        ),
    )
    merge_above: int = Field(
        default=1_000,
        ge=1,
        le=10_000_000,
        description=(
            "How many changes wait for a slow client before those of one row are merged into one."
        ),
    )
    merge_above_bytes: int = Field(
        default=1_048_576,
        ge=1_024,
        le=1_073_741_824,
        description="How many bytes of changes wait for a slow client before they are merged.",
    )
    close_above: int = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description=(
            "How many changes wait for a slow client, merged, before its connection is closed; it "
            "can resume."
        ),
    )
    close_above_bytes: int = Field(
        default=16_777_216,
        ge=1_024,
        le=4_294_967_296,
        description="How many bytes of changes wait, merged, before the connection is closed.",
    )
    max_snapshot_rows: int = Field(
        default=200_000,
        ge=1,
        le=100_000_000,
        description=(
            "The most rows with which a subscription may begin; one whose filter lets through more "
            "is refused."
        ),
    )
    max_query_rows: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="The most rows in the answer to a query, whatever its `limit`.",
    )
    drain_us: Duration = Field(
        default=5 * UNITS_US["s"],
        validation_alias="drain",
        description=(
            "How long a stopping server goes on sending what waits for its clients, and waits for "
            "the answers to webhooks under way."
        ),
    )


class TriggerConfig(Section):
    """One trigger: a webhook for each row that comes to match, and for each that ceases to."""

    view: Text = Field(description="The meter or view whose rows it watches.")
    webhook: WebhookUrl = Field(repr=False, description="Where its events are sent.")
    match: Where = Field(description="The filter that a row enters by.")
    unmatch: Where | None = Field(
        default=None,
        description=(
            "A row that does not pass `match` leaves only when it passes this filter; by default "
            "it leaves at once."
        ),
    )
    enabled: bool = Field(
        default=True,
        description="Whether it watches; one that is switched on again goes on where it was.",
    )
    description: str | None = Field(default=None, description="What it means, for people.")


class TriggerStoreConfig(Section):
    """Where triggers are kept, with what they matched and what they have still to deliver."""

    url: LedgerUrl = Field(
        default=None,
        description=(
            "The database, `sqlite:///path` or `postgresql://user@host/name`; by default beside "
            "the ledger: in its PostgreSQL database, or in the file `triggers.db` in `state_dir`."
        ),
    )


class WebhooksConfig(Section):
    """How the events of triggers are delivered."""

    secrets: ListOf[WebhookSecret] = Field(
        default_factory=list,
        repr=False,
        description=(
            "The secrets that deliveries are signed with, each `whsec_` and the base64 of 24 to 64 "
            "bytes: one, or two while one replaces the other."
        ),
    )
    id_prefix: IdPrefix | None = Field(
        default=None,
        description="Text before every event id, so that two deployments have different ones.",
    )
    timeout_us: Duration = Field(
        default=15 * UNITS_US["s"],
        ge=100 * UNITS_US["ms"],
        validation_alias="timeout",
        description="How long a receiver may take for its whole answer.",
    )
    allow: ListOf[NetworkTarget] = Field(
        default_factory=list,
        description=(
            "Host names, addresses and ranges that webhooks may reach although they are private, "
            "such as `hooks.internal` or `10.1.0.0/16`."
        ),
    )
    max_concurrent: int = Field(
        default=512,
        ge=1,
        le=10_000,
        description="The most deliveries under way at once.",
    )
    max_concurrent_per_host: int = Field(
        default=32,
        ge=1,
        le=10_000,
        description="The most deliveries under way at once to one receiver.",
    )
    first_retry_us: Duration = Field(
        default=5 * UNITS_US["s"],
        ge=UNITS_US["ms"],
        validation_alias="first_retry",
        description="About how long after a failed delivery it is tried again; then twice that.",
    )
    max_retry_us: Duration = Field(
        default=6 * UNITS_US["h"],
        ge=UNITS_US["ms"],
        validation_alias="max_retry",
        description="The longest wait between two attempts. A receiver may ask for more"
        " (`Retry-After`): up to 12 hours.",
    )
    retry_for_us: Duration = Field(
        default=3 * UNITS_US["d"],
        ge=UNITS_US["ms"],
        validation_alias="retry_for",
        description="How long a delivery is tried before it becomes a dead letter.",
    )
    history_us: Duration = Field(
        default=30 * UNITS_US["d"],
        ge=UNITS_US["s"],
        validation_alias="history",
        description="How long deliveries that are over are kept, so that they can be looked at.",
    )
