"""What of access, GraphQL and triggers is found to be at fault before any server runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.app.live_check import check_access, check_live
from tidemark.app.view_schemas import view_schemas
from tidemark.config import Config, load_config
from tidemark.errors import ConfigError
from tidemark.pipeline.output.schema import Column

BASE = """
streams:
  usage: {kind: usage}
  trades:
    fields: {trade_id: string, account: string, quantity: decimal}
meters:
  calls: {}
views:
  trades: {stream: trades, key: [trade_id], calculated: {twice: quantity * 2}}
auth:
  keys: [{name: k, sha256: "%s", scopes: [read], tenants: ["*"]}]
""" % ("ab" * 32)
SECRET = "webhooks: {secrets: [whsec_QSBzZWNyZXQgdGhhdCBpcyBuZXcgYW5kIGxvbmcgZW5vdWdo]}\n"


def trigger(webhook: str = "https://example.org/hook", **filters: str) -> str:
    written = ", ".join(f"{name}: {where}" for name, where in filters.items())
    return f'triggers: {{big: {{view: trades, webhook: "{webhook}", {written}}}}}\n'


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "tidemark.yaml"
    path.write_text(BASE + text)
    return load_config(path, {})


def check(config: Config) -> None:
    calculated = {**dict.fromkeys(config.views, ()), "trades": (Column("twice", "decimal"),)}
    check_live(config, view_schemas(config, calculated))


def test_what_fits_is_no_fault(tmp_path: Path) -> None:
    config = load(tmp_path, SECRET + trigger(match='{twice: {_gte: "10"}}', unmatch="{}"))
    check_access(config)
    check(config)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (trigger(match="{thrice: {_gt: 1}}"), "triggers.big.match.thrice"),
        (trigger(match="{}", unmatch="{account: {_gt: 1}}"), "triggers.big.unmatch.account._gt"),
        (trigger("http://127.0.0.1/", match="{}"), "triggers.big.webhook"),
    ],
)
def test_a_trigger_that_cannot_be_used_is_named(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(load(tmp_path, SECRET + text))
    assert caught.value.field == field
    assert caught.value.message.startswith(f"{field}: ")


def test_an_allowed_private_receiver_is_no_fault(tmp_path: Path) -> None:
    secret = SECRET.replace("{secrets", "{allow: [127.0.0.1], secrets")
    check(load(tmp_path, secret + trigger("http://127.0.0.1/", match="{}")))


def test_a_rule_about_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tidemark.yaml"
    path.write_text(BASE + "  rules: {trades: {acount: {_eq: $jwt.sub}}}\n")
    with pytest.raises(ConfigError) as caught:
        check(load_config(path, {}))
    assert caught.value.field is not None
    assert caught.value.field.startswith("auth.rules.trades")


def test_views_whose_names_collide_in_graphql_are_named(tmp_path: Path) -> None:
    text = BASE.replace("views:\n", "views:\n  calls_aggregate: {stream: trades, key: [account]}\n")
    path = tmp_path / "tidemark.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        check(load_config(path, {}))
    assert "calls_aggregate" in caught.value.message


def test_triggers_without_a_secret_are_a_fault_with_the_fix_in_the_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        check_access(load(tmp_path, trigger(match="{}")))
    assert caught.value.field == "webhooks.secrets"
    assert "tidemark keygen --webhook" in caught.value.hint


def test_a_key_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "tidemark.yaml"
    path.write_text(BASE + "  jwt: [{name: app, algorithm: RS256, jwks_file: gone.json}]\n")
    with pytest.raises(ConfigError) as caught:
        check_access(load_config(path, {}))
    assert "gone.json" in caught.value.message
