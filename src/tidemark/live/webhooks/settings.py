"""What the configuration says about delivery, as the parts of it take it."""

from __future__ import annotations

from aiohttp.abc import AbstractResolver

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.config.live_model import WebhooksConfig
from tidemark.live.webhooks.addresses import Allowance
from tidemark.live.webhooks.lanes import DeliveryLimits
from tidemark.live.webhooks.schedule import RetrySchedule
from tidemark.live.webhooks.sender import Sender
from tidemark.live.webhooks.signing import Signer

LEASE_S = 45.0


def configured_sender(
    config: WebhooksConfig, clock: Clock, *, resolver: AbstractResolver | None = None
) -> Sender:
    """Raises `ConfigError` when there is no secret to sign with."""
    return Sender(
        Signer(config.secrets),
        clock,
        allow=Allowance(config.allow),
        timeout_s=config.timeout_us / MICROS_PER_SECOND,
        resolver=resolver,
    )


def configured_limits(config: WebhooksConfig) -> DeliveryLimits:
    return DeliveryLimits(
        in_flight=config.max_concurrent,
        in_flight_per_host=config.max_concurrent_per_host,
        # Some of it is for waiting in the lane.
        lease_s=LEASE_S + config.timeout_us / MICROS_PER_SECOND,
        drain_s=config.timeout_us / MICROS_PER_SECOND,
    )


def configured_schedule(config: WebhooksConfig) -> RetrySchedule:
    return RetrySchedule(
        first_delay_us=config.first_retry_us,
        max_delay_us=config.max_retry_us,
        retry_for_us=config.retry_for_us,
    )
