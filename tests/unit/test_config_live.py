"""What the settings of tokens, subscriptions, triggers and webhooks mean, and what does not fit."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import pytest

from tests.unit.config_files import A_KEY, ConfigFile
from tidemark.config import (
    InvalidConfig,
    JwtKey,
    LiveConfig,
    TriggerConfig,
    WebhooksConfig,
    advise,
)

SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US
SECRET = "0123456789abcdef0123456789abcdef"
HOOK_SECRET = "whsec_" + "M" * 43 + "="
STREAMS = """\
streams:
  usage: {kind: usage}
  trades: {fields: {trade_id: string, price: decimal}}
meters: {calls: }
views:
  trades: {stream: trades, key: [trade_id]}
  quiet: {stream: trades, key: [trade_id], live: false}
"""


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path)


def with_issuer(entry: str) -> str:
    return f"auth: {{keys: [{A_KEY}], jwt: [{entry}]}}"


def test_the_defaults_are_bounded_and_safe(file: ConfigFile) -> None:
    config = file.load()
    assert config.live == LiveConfig(
        enabled=True,
        max_subscriptions=10_000,
        max_subscriptions_per_connection=100,
        max_filter_depth=10,
        max_filter_conditions=200,
        max_filter_list=1_000,
        max_document_bytes=65_536,
        max_document_depth=12,
        documents_per_second=50,
        document_burst=200,
        introspection="scope",
        poll_us=10_000,
        heartbeat_us=15 * SECOND_US,
        merge_above=1_000,
        merge_above_bytes=1_048_576,
        close_above=10_000,
        close_above_bytes=16_777_216,
        max_snapshot_rows=200_000,
        max_query_rows=10_000,
        drain_us=5 * SECOND_US,
    )
    assert config.webhooks == WebhooksConfig(
        secrets=[],
        id_prefix=None,
        timeout_us=15 * SECOND_US,
        allow=[],
        max_concurrent=512,
        max_concurrent_per_host=32,
        first_retry_us=5 * SECOND_US,
        max_retry_us=6 * HOUR_US,
        retry_for_us=72 * HOUR_US,
        history_us=30 * 24 * HOUR_US,
    )
    assert (config.auth.jwt, config.auth.rules, config.triggers) == ([], {}, {})
    assert config.trigger_store.url is None


def test_every_setting_reaches_its_attribute(file: ConfigFile, tmp_path: Path) -> None:
    config = file.load(f"""
        streams: {{trades: {{fields: {{trade_id: string, price: decimal}}}}}}
        views: {{trades: {{stream: trades, key: [trade_id]}}}}
        auth:
          keys: [{A_KEY}]
          jwt:
            - name: app
              algorithm: RS256
              jwks_file: keys/app.json
              issuer: https://id.example.com
              audience: tidemark
              leeway: 30s
              require_expiry: false
              scopes: [read, triggers]
              scopes_claim: scope
              tenants_claim: org.tenants
          rules:
            trades: {{_or: [{{tenant_id: {{_eq: $jwt.tenant}}}}, {{price: {{_lt: 1.5}}}}]}}
        live: {{poll: 50ms, heartbeat: 1m, drain: 0s, introspection: nobody}}
        triggers:
          dear-trades:
            view: trades
            webhook: https://example.com/hook?x=1
            match: {{price: {{_gt: "1000"}}}}
            unmatch: {{price: {{_lt: "900"}}}}
            enabled: false
            description: Trades to look at.
        trigger_store: {{url: "postgres://h/triggers"}}
        webhooks:
          secrets: [{HOOK_SECRET}]
          id_prefix: prod-
          timeout: 3s
          allow: [Hooks.Internal, 10.0.0.0/8, "::1"]
          first_retry: 1s
          max_retry: 1m
          retry_for: 1h
          history: 1d
    """)
    assert config.auth.jwt == [
        JwtKey(
            name="app",
            algorithm="RS256",
            jwks_file=tmp_path / "keys/app.json",
            issuer="https://id.example.com",
            audience="tidemark",
            leeway_us=30 * SECOND_US,
            require_expiry=False,
            scopes=["read", "triggers"],
            scopes_claim="scope",
            tenants_claim="org.tenants",
        )
    ]
    assert config.auth.rules == {
        "trades": {"_or": [{"tenant_id": {"_eq": "$jwt.tenant"}}, {"price": {"_lt": 1.5}}]}
    }
    assert (config.live.poll_us, config.live.heartbeat_us) == (50_000, 60 * SECOND_US)
    assert (config.live.drain_us, config.live.introspection) == (0, "nobody")
    assert config.triggers == {
        "dear-trades": TriggerConfig(
            view="trades",
            webhook="https://example.com/hook?x=1",
            match={"price": {"_gt": "1000"}},
            unmatch={"price": {"_lt": "900"}},
            enabled=False,
            description="Trades to look at.",
        )
    }
    assert config.trigger_store.url == "postgresql://h/triggers"
    assert config.webhooks == WebhooksConfig(
        secrets=[HOOK_SECRET],
        id_prefix="prod-",
        timeout_us=3 * SECOND_US,
        allow=["hooks.internal", "10.0.0.0/8", "::1"],
        first_retry_us=SECOND_US,
        max_retry_us=60 * SECOND_US,
        retry_for_us=HOUR_US,
        history_us=24 * HOUR_US,
    )


@pytest.mark.parametrize(
    ("entry", "path", "message"),
    [
        ("{name: a, algorithm: HS256}", "auth.jwt[0]", "found none"),
        (
            f"{{name: a, algorithm: HS256, secret: {SECRET}, jwks_file: k}}",
            "auth.jwt[0]",
            "found `secret` and `jwks_file`",
        ),
        (
            "{name: a, algorithm: HS256, public_key_file: k.pem}",
            "auth.jwt[0].public_key_file",
            "expected a secret with the algorithm HS256",
        ),
        (
            f"{{name: a, algorithm: RS256, secret: {SECRET}}}",
            "auth.jwt[0].secret",
            "expected a public key with the algorithm RS256",
        ),
        (
            f"{{name: a, algorithm: HS512, secret: {SECRET}}}",
            "auth.jwt[0].secret",
            "expected at least 64 bytes, found 32",
        ),
        (f"{{name: a, algorithm: none, secret: {SECRET}}}", "auth.jwt[0].algorithm", "one of HS"),
        (f"{{algorithm: HS256, secret: {SECRET}}}", "auth.jwt[0].name", "found nothing"),
        (f"{{name: a, secret: {SECRET}}}", "auth.jwt[0].algorithm", "found nothing"),
        (
            f"{{name: a, algorithm: HS256, secret: {SECRET}, scopes: [read, ingest]}}",
            "auth.jwt[0].scopes[1]",
            "expected one of read, triggers, introspect",
        ),
        (
            f"{{name: a, algorithm: HS256, secret: {SECRET}, scopes: [read, read]}}",
            "auth.jwt[0].scopes[1]",
            "expected each entry once",
        ),
        (
            "{name: a, algorithm: RS256, public_key_file: ''}",
            "auth.jwt[0].public_key_file",
            "expected the path of a file",
        ),
        (
            "{name: a, algorithm: HS256, secret: '-----BEGIN PUBLIC KEY-----\\nMIIBIjANBgkqhkiG'}",
            "auth.jwt[0].secret",
            "found a key in PEM format",
        ),
    ],
)
def test_an_issuer_that_cannot_be_used_is_refused(
    file: ConfigFile, entry: str, path: str, message: str
) -> None:
    problem = file.problem(with_issuer(entry.replace("'-", '"-').replace("G'", 'G"')))
    assert problem.path == path
    assert message in problem.message


def test_issuers_have_names_of_their_own(file: ConfigFile) -> None:
    entry = f"{{name: a, algorithm: HS256, secret: {SECRET}}}"
    assert file.problem(with_issuer(f"{entry}, {entry}")).path == "auth.jwt[1].name"


def test_tokens_without_keys_would_leave_the_rest_open(file: ConfigFile) -> None:
    problem = file.problem(f"auth: {{jwt: [{{name: a, algorithm: HS256, secret: {SECRET}}}]}}")
    assert problem.path == "auth.jwt"
    assert "`auth.keys`" in problem.message


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("", "found nothing"),
        ("[]", "found an empty list"),
        ("true", "found true"),
        ("{tenant_id: acme}", 'found "acme" at "tenant_id"'),
        ("{tenant_id: {_equals: acme}}", 'an unknown operator at "tenant_id._equals"'),
        ("{tenant_id: {_eq: null}}", 'nothing at "tenant_id._eq"'),
        ("{tenant_id: {_in: [a, {b: c}]}}", 'a mapping at "tenant_id._in"'),
        ("{tenant_id: {_in: [[a]]}}", 'a list at "tenant_id._in"'),
        ("{_or: [a]}", 'found "a" at "_or"'),
        ("{_not: [{}]}", 'found a list at "_not"'),
        ("{_and: [{_or: [{x: {_gt: 1e999}}]}]}", 'a number that is none at "_and._or.x._gt"'),
    ],
)
def test_a_rule_that_is_no_filter_is_refused(file: ConfigFile, rule: str, words: str) -> None:
    problem = file.problem(f"{STREAMS}auth: {{rules: {{trades: {rule}}}}}")
    assert problem.path == "auth.rules.trades"
    assert problem.message.startswith("expected a filter such as")
    assert words in problem.message


def test_a_rule_that_names_no_operator_says_which_was_meant(file: ConfigFile) -> None:
    text = f"{STREAMS}auth: {{rules: {{trades: {{x: {{_equal: a}}}}}}}}"
    assert "`_eq`" in file.problem(text).hint


@pytest.mark.parametrize(
    ("text", "path", "hint"),
    [
        ("auth: {rules: {trade: {}}}", "auth.rules.trade", "Did you mean `trades`?"),
        (
            "triggers: {t: {view: call, webhook: 'https://h', match: {}}}",
            "triggers.t.view",
            "Did you mean `calls`?",
        ),
        (
            "triggers: {t: {view: quiet, webhook: 'https://h', match: {}}}",
            "triggers.t.view",
            "Remove its `live: false`, or watch another.",
        ),
        (
            "triggers: {'a:b': {view: trades, webhook: 'https://h', match: {}}}",
            'triggers."a:b"',
            "",
        ),
    ],
)
def test_what_names_a_view_names_one_that_is_there(
    file: ConfigFile, text: str, path: str, hint: str
) -> None:
    problem = file.problem(f"{STREAMS}{text}")
    assert (problem.path, problem.hint) == (path, hint)


def test_rules_and_triggers_take_meters_as_well(file: ConfigFile) -> None:
    config = file.load(f"""{STREAMS}
triggers: {{t: {{view: calls, webhook: "https://h", match: {{}}}}}}
auth: {{rules: {{calls: {{}}, quiet: {{}}}}}}
""")
    assert config.triggers["t"].unmatch is None
    assert list(config.auth.rules) == ["calls", "quiet"]


@pytest.mark.parametrize(
    "address",
    [
        "example.com",
        "ftp://example.com/",
        "https://",
        "https:///path",
        "https://user:word@example.com/",
        "https://user@example.com/",
        "https://exa mple.com/",
        "https://example.com:99999/",
        "https://example.com/#part",
        "https://[::1/",
        "https://example.com/" + "x" * 2048,
        "javascript:alert(1)",
    ],
)
def test_an_address_that_no_webhook_can_have_is_refused_and_not_shown(
    file: ConfigFile, address: str
) -> None:
    text = f"{STREAMS}triggers: {{t: {{view: trades, webhook: '{address}', match: {{}}}}}}"
    problem = file.problem(text)
    assert problem.path == "triggers.t.webhook"
    assert "example" not in problem.message.partition("found")[2]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("live: {merge_above: 20000}", "live.merge_above"),
        ("live: {close_above: 10}", "live.merge_above"),
        ("live: {close_above_bytes: 1024}", "live.merge_above_bytes"),
        ("live: {document_burst: 1}", "live.documents_per_second"),
        ("live: {introspection: all}", "live.introspection"),
        ("live: {poll: 10}", "live.poll"),
        ("live: {poll: 1us}", "live.poll"),
        ("webhooks: {first_retry: 7h}", "webhooks.first_retry"),
        ("webhooks: {retry_for: 1h}", "webhooks.max_retry"),
        ("webhooks: {max_concurrent: 5, max_concurrent_per_host: 6}", None),
        ("webhooks: {id_prefix: 'a:b'}", "webhooks.id_prefix"),
        ("webhooks: {allow: [10.0.0.1/8]}", "webhooks.allow[0]"),
        ("webhooks: {allow: ['http://h']}", "webhooks.allow[0]"),
        ("webhooks: {allow: [a, a]}", "webhooks.allow[1]"),
        ("webhooks: {secrets: [abc]}", "webhooks.secrets[0]"),
        ("webhooks: {secrets: [whsec_é]}", "webhooks.secrets[0]"),
        ("webhooks: {secrets: [whsec_AAAA]}", "webhooks.secrets[0]"),
        (f"webhooks: {{secrets: [{HOOK_SECRET}, {HOOK_SECRET}]}}", "webhooks.secrets[1]"),
    ],
)
def test_what_does_not_fit_is_said(file: ConfigFile, text: str, path: str | None) -> None:
    assert file.problem(text).path == (path or "webhooks.max_concurrent_per_host")


def test_fewer_deliveries_at_once_need_no_second_setting(file: ConfigFile) -> None:
    assert file.load("webhooks: {max_concurrent: 5}").webhooks.max_concurrent == 5


def test_webhooks_are_signed_with_two_secrets_at_most(file: ConfigFile) -> None:
    secrets = ", ".join("whsec_" + letter * 43 + "=" for letter in "Mwk")
    assert file.problem(f"webhooks: {{secrets: [{secrets}]}}").path == "webhooks.secrets"


def test_a_range_with_bits_of_a_host_comes_with_the_range(file: ConfigFile) -> None:
    hint = file.problem("webhooks: {allow: [10.0.0.1/8]}").hint
    assert hint == "Did you mean `10.0.0.0/8`?"


HIDDEN = "hunter2hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"auth: {{jwt: [{{name: a, algorithm: HS256, secret: {HIDDEN}}}]}}",
        f"auth: {{jwt: [{{name: a, algorithm: HS256, secret: [{HIDDEN}]}}]}}",
        f"auth: {{jwt: [{{name: a, algorithm: HS256, public_key_file: [{HIDDEN}]}}]}}",
        f"auth: {{jwt: {HIDDEN}}}",
        f"webhooks: {{secrets: {HIDDEN}}}",
        f"webhooks: {{secrets: [{HIDDEN}]}}",
        f"webhooks: {{secrets: [whsec_{HIDDEN}, whsec_{HIDDEN}]}}",
        f"triggers: {{t: {{view: v, match: {{}}, webhook: 'https://h/ {HIDDEN}'}}}}",
        f"trigger_store: {{url: 'mysql://u:{HIDDEN}@h/db'}}",
    ],
)
def test_no_error_shows_a_secret(file: ConfigFile, text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        file.load(text)
    assert HIDDEN not in "".join(traceback.format_exception(caught.value))
    assert HIDDEN not in repr(caught.value.problems)


def test_a_repr_shows_no_secret(file: ConfigFile) -> None:
    config = file.load(f"""{STREAMS}
auth: {{keys: [{A_KEY}], jwt: [{{name: a, algorithm: HS256, secret: {SECRET}}}]}}
triggers: {{t: {{view: trades, webhook: "https://h/{HIDDEN}", match: {{}}}}}}
webhooks: {{secrets: [{HOOK_SECRET}]}}
trigger_store: {{url: "postgresql://u:{HIDDEN}@h/db"}}
""")
    for secret in (SECRET, HIDDEN, HOOK_SECRET):
        assert secret not in repr(config)


def test_rules_that_nothing_uses_are_remarked_on(file: ConfigFile) -> None:
    remarks = advise(file.load(f"{STREAMS}auth: {{rules: {{trades: {{}}}}}}"))
    assert "auth.rules" in [remark.path for remark in remarks]
    entry = f"{{name: a, algorithm: HS256, secret: {SECRET}}}"
    remarks = advise(file.load(with_issuer(entry)))
    assert "auth.jwt" in [remark.path for remark in remarks]


def test_a_rule_can_come_from_the_environment(file: ConfigFile) -> None:
    environ = {"TIDEMARK_AUTH__RULES": "{trades: {tenant_id: {_eq: $jwt.tenant}}}"}
    config = file.load(STREAMS, environ)
    assert config.auth.rules == {"trades": {"tenant_id": {"_eq": "$jwt.tenant"}}}


HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto" / "access.md"


def test_what_the_page_on_access_shows_is_valid(file: ConfigFile) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", HOWTO.read_text(encoding="utf-8"), re.DOTALL)
    keys, tokens, rules = examples
    assert file.load(keys).auth.keys[0].tenants == ["acme"]
    assert advise(file.load(tokens)) == []
    columns = "{stream: trades, key: [account]}"
    views = f"views: {{trades: {columns}, positions: {columns}, calendar: {columns}}}\n"
    found = file.load(f"streams: {{trades: {{fields: {{account: string}}}}}}\n{views}{rules}")
    assert list(found.auth.rules) == ["trades", "positions", "calendar"]
