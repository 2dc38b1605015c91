"""The settings of Kafka's client, of which users may have others."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark.config import Config, load_config
from tidemark.errors import ConfigError
from tidemark.mirror import kafka


def config_with(tmp_path: Any, options: str, max_event_bytes: int = 100_000) -> Config:
    path = tmp_path / "tidemark.yaml"
    path.write_text(f"""
state_dir: {tmp_path / "state"}
ingest: {{max_event_bytes: {max_event_bytes}}}
mirror: {{enabled: true, bootstrap_servers: "127.0.0.1:1", options: {{{options}}}}}
""")
    return load_config(path, {})


@pytest.mark.parametrize(
    "options",
    [
        "",
        # More than what we would allow at most.
        "reconnect.backoff.ms: 2000",
        "reconnect.backoff.max.ms: 5000",
        "enable.sparse.connections: true",
    ],
)
def test_every_client_takes_them_beside_ours(options: str, tmp_path: Any) -> None:
    config = config_with(tmp_path, options)
    kafka.admin(config)
    kafka.consumer(config).close()
    kafka.producer(config, "ledger", kafka.MOST_BATCH_BYTES, lambda error: None)


@pytest.mark.parametrize("option", ["stats_cb", "default.topic.config", "dr_cb", "batch.size"])
def test_what_the_client_does_not_take_is_told_of(option: str, tmp_path: Any) -> None:
    """Some are for programs only, of which the client says so in ways of its own."""
    config = config_with(tmp_path, f"{option}: x")
    with pytest.raises(ConfigError) as raised:
        kafka.producer(config, "ledger", kafka.MOST_BATCH_BYTES, lambda error: None)
    assert raised.value.field == "mirror.options"


def test_options_of_users_win_over_ours_unless_promises_rest_on_them(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_with(
        tmp_path,
        "compression.type: zstd, linger.ms: 50, fetch.wait.max.ms: 100, log_level: 3,"
        " transaction.timeout.ms: 900000",
    )
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(kafka, "_made", lambda kind, settings: made.append(settings))
    kafka.producer(config, "ledger", kafka.MOST_BATCH_BYTES, lambda error: None)
    kafka.consumer(config)
    kafka.admin(config)
    for settings in made:
        assert {name: settings[name] for name in config.mirror.options} == config.mirror.options
    # A slow broker has as long for a message as for its transaction.
    assert made[0]["message.timeout.ms"] == 900_000
    config = config_with(tmp_path, "")
    made.clear()
    kafka.producer(config, "ledger", kafka.MOST_BATCH_BYTES, lambda error: None)
    assert made[0]["compression.type"] == "lz4"
    assert made[0]["message.timeout.ms"] == made[0]["transaction.timeout.ms"] == 600_000


@pytest.mark.parametrize("wanted", [1, 100_000])
def test_what_may_wait_to_be_sent_is_never_less_than_one_message(
    wanted: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has no room is refused for ever, as if others were in its way."""
    config = config_with(tmp_path, f"queue.buffering.max.kbytes: {wanted}", 4 * 1024 * 1024)
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(kafka, "_made", lambda kind, settings: made.append(settings))
    kafka.producer(config, "ledger", kafka.MOST_BATCH_BYTES, lambda error: None)
    [settings] = made
    assert settings["queue.buffering.max.kbytes"] * 1024 > settings["message.max.bytes"]
    assert settings["queue.buffering.max.kbytes"] >= wanted
