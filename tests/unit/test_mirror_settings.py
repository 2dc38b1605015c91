"""The settings of Kafka's client, of which users may have others."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark.config import Config, load_config
from tidemark.errors import ConfigError
from tidemark.mirror import kafka


def config_with(tmp_path: Any, options: str) -> Config:
    path = tmp_path / "tidemark.yaml"
    path.write_text(f"""
state_dir: {tmp_path / "state"}
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
