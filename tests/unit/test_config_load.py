"""From a file to a `Config`: defaults, shapes, paths, and files that cannot be read."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.unit.config_files import A_KEY, SHA256_OF_SECRET, ConfigFile
from tidemark.config import (
    Config,
    EventtimeColumn,
    FieldConfig,
    HttpConfig,
    InvalidConfig,
    LedgerConfig,
    StreamConfig,
    WebhooksConfig,
    advise,
    load_config,
    sample_text,
)
from tidemark.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n", "{}\n", "\ufeff"])
def test_a_file_without_settings_has_all_the_defaults(file: ConfigFile, text: str) -> None:
    config = file.load(text)
    assert config == Config(state_dir=file.path.parent / "tidemark-state")


def test_the_defaults_are_those_of_the_design(file: ConfigFile) -> None:
    config = file.load()
    assert (config.http.host, config.http.port, config.http.workers) == ("127.0.0.1", 8787, 1)
    assert (config.http.max_body_bytes, config.http.max_events) == (5 * 1024 * 1024, 1000)
    assert (config.ledger.url, config.ledger.salt) == (None, None)
    assert (config.ledger.tick_us, config.ledger.clock_leap_us) == (1_000_000, 3_600_000_000)
    assert (config.ledger.max_group_events, config.ledger.max_queued_events) == (10_000, 20_000)
    assert (config.sequence.url, config.sequence.timeout_us) == (None, 250_000)
    assert config.ingest.future_limit_us == 3_600_000_000
    assert (config.auth.keys, config.streams) == ([], {})


def test_sections_with_everything_commented_out_have_their_defaults(file: ConfigFile) -> None:
    text = """
        ledger:
          # salt: abc
        http:
          allowed_hosts:
        auth:
          keys:
        streams:
    """
    assert file.load(text) == file.load("")


def test_every_setting_reaches_its_attribute(file: ConfigFile) -> None:
    config = file.load(f"""
        state_dir: /var/lib/tidemark
        ledger:
          url: postgresql://u@h/db
          salt: pepper
          tick: 2s
          max_group_events: 5000
          max_queued_events: 6000
          clock_leap: 2h
        sequence: {{url: "postgres://s/seq", timeout: 1s}}
        http:
          host: localhost
          port: 0
          workers: 2
          max_body_bytes: 2048
          max_events: 10
          allowed_hosts: [tide.internal]
          allowed_origins: ["https://App.example.com:8443"]
        ingest:
          future_limit: 0s
          reject_log_size: 0
          max_string_length: 10
          max_json_depth: 3
          max_event_bytes: 1024
        auth:
          keys: [{A_KEY}]
        streams:
          usage: {{kind: usage, metrics: [api_calls], fields: {{region: string}}}}
          com.acme.order-placed:
            description: Orders.
            identity: [id]
            truncate: true
            idleAfter: 90s
            fields:
              id: bigint
              side: {{type: enum, values: [buy, no], required: false}}
              note: {{type: string, max_length: 10, description: Free text.}}
    """)
    assert config.state_dir == Path("/var/lib/tidemark")
    assert config.ledger == LedgerConfig(
        url="postgresql://u@h/db",
        salt="pepper",
        tick_us=2_000_000,
        max_group_events=5000,
        max_queued_events=6000,
        clock_leap_us=7_200_000_000,
    )
    assert (config.sequence.url, config.sequence.timeout_us) == ("postgresql://s/seq", 1_000_000)
    assert config.http == HttpConfig(
        host="localhost",
        port=0,
        workers=2,
        max_body_bytes=2048,
        max_events=10,
        allowed_hosts=["tide.internal"],
        allowed_origins=["https://app.example.com:8443"],
    )
    assert config.ingest.model_dump() == {
        "future_limit_us": 0,
        "reject_log_size": 0,
        "max_string_length": 10,
        "max_json_depth": 3,
        "max_event_bytes": 1024,
    }
    (key,) = config.auth.keys
    assert (key.name, key.sha256, key.scopes, key.tenants) == (
        "billing",
        SHA256_OF_SECRET,
        ["ingest"],
        ["*"],
    )
    assert config.streams["usage"].kind == "usage"
    assert config.streams["usage"].metrics == ["api_calls"]
    orders = config.streams["com.acme.order-placed"]
    assert orders == StreamConfig(
        description="Orders.",
        identity=["id"],
        truncate=True,
        idle_after_us=90_000_000,
        fields={
            "id": FieldConfig(type="bigint"),
            "side": FieldConfig(type="enum", values=["buy", "no"], required=False),
            "note": FieldConfig(type="string", max_length=10, description="Free text."),
        },
    )


def test_a_hash_in_capitals_is_the_same_hash(file: ConfigFile) -> None:
    config = file.load(f"auth: {{keys: [{A_KEY.replace(SHA256_OF_SECRET, 'AB' * 32)}]}}")
    assert config.auth.keys[0].sha256 == "ab" * 32


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Config().http.port = 1


def test_python_code_gives_durations_in_microseconds_and_by_attribute() -> None:
    assert LedgerConfig(tick_us=5_000).tick_us == 5_000
    with pytest.raises(ValidationError):
        LedgerConfig(tick_us=5)


@pytest.mark.parametrize("written", ["tick_us: 5000", "tick: 5000"])
def test_a_file_gives_durations_with_a_unit_and_by_key(file: ConfigFile, written: str) -> None:
    assert file.problem(f"ledger: {{{written}}}").path.startswith("ledger.tick")


@pytest.mark.parametrize(
    ("written", "below"),
    [("data", "data"), ("./data/", "data"), ("../data", "../data"), ("/data", "/data")],
)
def test_a_relative_state_dir_is_relative_to_the_file(
    file: ConfigFile, written: str, below: str
) -> None:
    assert file.load(f"state_dir: {written}").state_dir == file.path.parent / below


def test_a_home_directory_is_expanded(file: ConfigFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/tide")
    assert file.load("state_dir: ~/data").state_dir == Path("/home/tide/data")


@pytest.mark.parametrize(
    ("written", "path"),
    [("sqlite:///l.db", "{base}/l.db"), ("sqlite:////var/l.db", "/var/l.db")],
)
def test_a_relative_sqlite_path_is_relative_to_the_file(
    file: ConfigFile, written: str, path: str
) -> None:
    url = file.load(f"ledger: {{url: '{written}'}}").ledger.url
    assert url == "sqlite:///" + path.format(base=file.path.parent)


def test_a_relative_path_of_the_file_does_not_make_paths_in_it_relative(
    file: ConfigFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.load("state_dir: data")
    monkeypatch.chdir(file.path.parent)
    config = load_config(Path("tidemark.yaml"), {})
    assert config.state_dir == file.path.parent / "data"


def test_without_a_file_there_are_defaults_beside_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config(None, {}).state_dir == tmp_path / "tidemark-state"


def test_the_environment_names_the_file_where_no_path_is_given(file: ConfigFile) -> None:
    file.load("http: {port: 1}")
    assert load_config(None, {"TIDEMARK_CONFIG": str(file.path)}).http.port == 1


def test_a_missing_file_points_to_init(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "absent.yaml", {})
    assert str(tmp_path / "absent.yaml") in caught.value.message
    assert "tidemark init" in caught.value.hint


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="found a directory"):
        load_config(tmp_path, {})


def test_a_path_with_nul_is_a_problem_and_no_crash() -> None:
    with pytest.raises(InvalidConfig):
        load_config(Path("a\0b"), {})


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(InvalidConfig, match="expected at most 1048576 bytes"):
        load_config(Path("/dev/zero"), {})


def test_a_pipe_is_as_good_as_a_file() -> None:
    readable, writable = os.pipe()
    os.write(writable, b"http: {port: 5}\n")
    os.close(writable)
    try:
        assert load_config(Path(f"/dev/fd/{readable}"), {}).http.port == 5
    finally:
        os.close(readable)


def test_an_error_survives_pickling_with_its_problems(file: ConfigFile) -> None:
    with pytest.raises(InvalidConfig) as caught:
        file.load("http: {port: x, workers: y}")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copy, InvalidConfig)
    assert copy.problems == caught.value.problems
    assert copy.as_dict() == caught.value.as_dict()
    assert copy.code == "config_invalid"


def test_the_sample_is_valid_and_needs_no_advice(file: ConfigFile) -> None:
    config = file.load(sample_text())
    assert advise(config) == []
    assert list(config.streams) == ["usage", "trades"]
    assert config.streams["usage"].kind == "usage"
    assert list(config.streams["trades"].fields) == [
        "trade_id",
        "account",
        "symbol",
        "side",
        "quantity",
        "price",
        "executed_at",
    ]
    assert {name: (m.aggregate, m.period) for name, m in config.meters.items()} == {
        "api_calls": ("sum", "month"),
        "bytes": ("sum", "month"),
        "seats": ("max", "month"),
    }
    assert {m.lateness_us for m in config.meters.values()} == {48 * 3_600_000_000}
    assert {name: (v.stream, v.key) for name, v in config.views.items()} == {
        "trades": ("trades", ["trade_id"]),
        "positions": ("trades", ["account", "symbol"]),
    }
    assert config.views["trades"].calculated == {"notional": "quantity * price"}


def test_the_sample_states_defaults_as_they_are(file: ConfigFile) -> None:
    sample = file.load(sample_text())
    assert sample == Config(
        state_dir=sample.state_dir,
        streams=sample.streams,
        meters=sample.meters,
        views=sample.views,
        windows=sample.windows,
    )
    assert sample.state_dir == file.load().state_dir


def test_what_the_sample_has_commented_out_is_valid_too(file: ConfigFile) -> None:
    lines = []
    for line in sample_text().splitlines():
        stripped = line.lstrip()
        is_setting = stripped.startswith("# ") and (
            stripped.split()[1].rstrip(":") in OPTIONAL or stripped.startswith("#     ")
        )
        lines.append(line.replace("# ", "", 1) if is_setting else line)
    config = file.load("\n".join(lines))
    assert config.ledger.url == "postgresql://tidemark@localhost/tidemark"
    assert config.ledger.salt == "a long random text"
    assert config.sequence.url == "postgresql://tidemark@localhost/sequence"
    assert config.auth.keys[0].scopes == ["ingest", "read"]
    assert config.streams["usage"].metrics == ["api_calls", "bytes", "seats"]
    assert config.streams["trades"].eventtime == EventtimeColumn(
        column="executed_at", type="iso8601"
    )
    assert config.meters["api_calls"].group_by == ["region"]
    assert config.view_store.url == "postgresql://tidemark@localhost/views"
    assert config.spark.options == {"spark.driver.memory": "4g"}
    assert config.auth.jwt[0].audience == "tidemark"
    assert config.auth.rules["trades"] == {"tenant_id": {"_eq": "$jwt.tenant"}}
    assert config.triggers["large-trades"].unmatch == {"notional": {"_lt": "90000"}}
    assert config.webhooks.allow == ["hooks.internal", "10.1.0.0/16"]
    assert config.webhooks.retry_for_us == WebhooksConfig().retry_for_us
    assert advise(config) == []


OPTIONAL = {
    *("url", "salt", "sequence", "auth", "keys", "metrics", "eventtime", "group_by"),
    *("view_store", "options", "spark.driver.memory"),
    *("jwt", "rules", "triggers", "large-trades", "webhooks", "secrets", "allow", "timeout"),
    "retry_for",
}


def test_a_config_without_streams_is_valid_but_gets_advice(file: ConfigFile) -> None:
    (remark,) = advise(file.load())
    assert remark.path == "streams"
    assert "no streams" in remark.message


def test_advice_is_given_where_events_have_no_identity(file: ConfigFile) -> None:
    remarks = advise(file.load("streams: {usage: {fields: {a: int}}}"))
    assert [remark.path for remark in remarks] == ["streams.usage", "streams.usage"]
    assert "kind: usage" in remarks[0].hint
    assert "idempotencyKey" in remarks[1].message
