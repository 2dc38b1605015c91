"""Secrets stay where they are written: in no error, no repr, no log line made of either."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from tests.unit.config_files import SHA256_OF_SECRET, ConfigFile
from tidemark.config import InvalidConfig, LedgerConfig, redact

SECRET = "hunter2hunter2"


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        f"ledger: {SECRET}",
        f"ledger: [{SECRET}]",
        f"ledger: {{salt: [{SECRET}]}}",
        f"ledger: {{salt: {{a: {SECRET}}}}}",
        f"ledger: {{salt: '{SECRET * 100}'}}",
        f"ledger: {{slat: {SECRET}}}",
        f"salt: {SECRET}",
        f"ledger: {{salt: !{SECRET}}}",
        f"ledger: {{salt: *{SECRET}}}",
        f"ledger:\n  salt: @{SECRET}",
        f"ledger:\n  salt: '{SECRET}",
        f"ledger:\n  salt: {SECRET}: x",
        f"ledger:\n  salt: {SECRET}\n  salt: {SECRET}",
        f"ledger: {{salt: '{SECRET}\\0'}}".replace("'", '"'),
        f"ledger: {{url: {SECRET}}}",
        f"ledger: {{url: 'mysql://u:{SECRET}@h/db'}}",
        f"ledger: {{url: 'postgresql://u:{SECRET}/x@h/db'}}",
        f"ledger: {{url: 'postgresql://u:{SECRET}#x@h/db'}}",
        f"ledger: {{url: 'postgresql://u:{SECRET} x@h/db'}}",
        f"ledger: {{url: 'postgresql://u:{SECRET}@h:99999/db'}}",
        f"ledger: {{url: ['postgresql://u:{SECRET}@h/db']}}",
        f"sequence: {{url: 'sqlite://u:{SECRET}@h/db'}}",
        f"landing: {{clickhouse: {{url: 'clickhouse://u:{SECRET}@h'}}}}",
        f"landing: {{clickhouse: {{url: 'https://u:{SECRET}/x@h'}}}}",
        f"landing: {{clickhouse: {{url: 'https://u:{SECRET}@h/db'}}}}",
        f"landing: {{clickhouse: {{password: {SECRET}}}}}",
        f"sequence: 'postgresql://u:{SECRET}@h/db'",
        f"state_dir: ['postgresql://u:{SECRET}@h/db']",
        f"http: {{host: 'http://u:{SECRET}@h/db'}}",
        f"http: {{allowed_origins: ['http://u:{SECRET}@h/db']}}",
        f"http: {{allowed_origins: ['http://u:{SECRET}@h', 'http://u:{SECRET}@h']}}",
        f"auth: {SECRET}",
        f"auth: {{keys: {SECRET}}}",
        f"auth: {{keys: [{SECRET}]}}",
        f"auth: {{keys: [{{name: a, sha256: {SECRET}, scopes: [read], tenants: [t]}}]}}",
        f"auth: {{keys: [{{name: a, key: {SECRET}, scopes: [read], tenants: [t]}}]}}",
        f"{SECRET}",
        f"- {SECRET}",
        f"'postgresql://u:{SECRET}@h/db': 1",
    ],
)
def test_no_error_shows_a_secret(file: ConfigFile, text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        file.load(text)
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    assert SECRET not in str(caught.value.as_dict())
    assert SECRET not in repr(caught.value.problems)


@pytest.mark.parametrize(
    "environ",
    [
        {"TIDEMARK_LEDGER__URL": f"mysql://u:{SECRET}@h/db"},
        {"TIDEMARK_LEDGER__SALT": SECRET + "\udcff"},
        {"TIDEMARK_AUTH__KEYS": SECRET},
        {"TIDEMARK_AUTH__KEYS": f"[{SECRET}"},
        {"TIDEMARK_AUTH__KEYS__0__SHA256": SECRET},
        {"TIDEMARK_SALT": SECRET},
        {"TIDEMARK_LEDGER": SECRET},
    ],
)
def test_no_error_of_the_environment_shows_a_secret(
    file: ConfigFile, environ: dict[str, str]
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        file.load("", environ)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_repr_shows_no_secret(file: ConfigFile) -> None:
    config = file.load(f"""
        ledger:
          url: postgresql://tide:{SECRET}@h/db?password={SECRET}&sslmode=require
          salt: {SECRET}
        sequence: {{url: "postgresql://tide:{SECRET}@h/seq"}}
        landing: {{clickhouse: {{url: "https://tide:{SECRET}@h:8443"}}}}
        auth: {{keys: [{{name: a, sha256: {SHA256_OF_SECRET}, scopes: [read], tenants: [t]}}]}}
    """)
    for shown in (repr(config), str(config), f"{config.ledger}", str(config.auth.keys[0])):
        assert SECRET not in shown
        assert SHA256_OF_SECRET not in shown
    assert "postgresql://***@h/db" in repr(config)


def test_python_code_that_builds_a_model_sees_no_secret_in_its_error() -> None:
    with pytest.raises(ValueError, match="LedgerConfig") as caught:
        LedgerConfig(url=f"mysql://u:{SECRET}@h/db", salt=SECRET * 100)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p@h/db", "postgresql://***@h/db"),
        ("postgresql://u:p@x@h/db", "postgresql://***@h/db"),
        ("postgresql://u:1/p?q#r@h/db", "postgresql://***@h/db"),
        ("cannot reach postgresql://u:p@h/db today", "cannot reach postgresql://***@h/db today"),
        ("postgresql://h/db?user=a&password=b#c", "postgresql://h/db?user=a&password=***#c"),
        ("sqlite:////var/lib/ledger.db", "sqlite:////var/lib/ledger.db"),
        ("mail a@b.example", "mail a@b.example"),
    ],
)
def test_redaction_hides_what_a_url_knows(text: str, shown: str) -> None:
    assert redact(text) == shown
