"""What the configuration says about delivery is what is done."""

from __future__ import annotations

import pytest

from tidemark.clock import SystemClock
from tidemark.config.live_model import WebhooksConfig
from tidemark.errors import ConfigError
from tidemark.live.webhooks.schedule import RetrySchedule
from tidemark.live.webhooks.settings import (
    configured_limits,
    configured_schedule,
    configured_sender,
)
from tidemark.live.webhooks.signing import new_secret


def test_the_defaults_of_the_configuration_are_those_of_the_schedule() -> None:
    assert configured_schedule(WebhooksConfig()) == RetrySchedule()


def test_without_a_secret_nothing_is_sent() -> None:
    with pytest.raises(ConfigError) as refused:
        configured_sender(WebhooksConfig(), SystemClock())
    assert refused.value.field == "webhooks.secrets"


def test_every_setting_arrives() -> None:
    config = WebhooksConfig.model_validate(
        {
            "secrets": [new_secret(), new_secret()],
            "timeout": "2s",
            "allow": ["hooks.internal", "10.1.0.0/16", "10.1.2.3", "fd00::/8"],
            "max_concurrent": 7,
            "max_concurrent_per_host": 3,
            "first_retry": "1s",
            "max_retry": "1m",
            "retry_for": "1h",
        }
    )
    assert configured_sender(config, SystemClock()).timeout_s == 2.0
    limits = configured_limits(config)
    assert (limits.in_flight, limits.in_flight_per_host) == (7, 3)
    assert limits.lease_s > 2 * limits.lease_margin_s + 2.0
    schedule = configured_schedule(config)
    assert (schedule.first_delay_us, schedule.max_delay_us) == (1_000_000, 60_000_000)
    assert schedule.retry_for_us == 3_600_000_000
