"""Whether what the configuration says of access, GraphQL and triggers can be used.

A server finds out when the pipeline has made the views; `tidemark check` finds out before.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.config import Config
from tidemark.errors import ConfigError
from tidemark.live.access import Gatekeeper, RowRules
from tidemark.live.errors import LiveError
from tidemark.live.graphql.configured import service_limits
from tidemark.live.graphql.described import described_views
from tidemark.live.graphql.schema import build_schema
from tidemark.live.triggers.automation import declared_triggers
from tidemark.live.triggers.conditions import condition_of
from tidemark.live.triggers.desk import rule_of
from tidemark.live.webhooks.addresses import Allowance
from tidemark.live.webhooks.targets import check_url
from tidemark.pipeline.output.schema import ViewSchema


def check_access(config: Config) -> None:
    """Opens what tokens are verified with, and asks for what triggers need.

    Raises `ConfigError`.
    """
    Gatekeeper(config)
    if config.triggers and not config.webhooks.secrets:
        raise ConfigError(
            "there are triggers, but no `webhooks.secrets` to sign their webhooks with",
            hint="`tidemark keygen --webhook` makes a secret, and the lines for it.",
            field="webhooks.secrets",
        )


def check_live(config: Config, schemas: Sequence[ViewSchema]) -> None:
    """Raises `ConfigError` for the first rule, name or trigger that does not fit the views."""
    rules = RowRules(config, schemas)
    if schemas and config.live.enabled:
        build_schema(described_views(config, schemas))
    by_name = {schema.name: schema for schema in schemas}
    allow = Allowance(config.webhooks.allow)
    limits = service_limits(config).filters
    for declared in declared_triggers(config):
        trigger = declared.trigger
        try:
            check_url(trigger.webhook, allow)
            condition_of(by_name[trigger.view], trigger, rule_of(rules, by_name), limits)
        except LiveError as error:
            field = f"triggers.{trigger.name}.{error.field}"
            raise ConfigError(f"{field}: {error.message}", hint=error.hint, field=field) from error
