"""What a client is told when it is made, checked there and then."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from tidemark.client.batches import SERVER_MAX_BYTES, SERVER_MAX_EVENTS, Limits, request_bytes
from tidemark.client.retry import RetryPolicy
from tidemark.clock import MICROS_PER_SECOND, Clock, SystemClock
from tidemark.errors import ClientError

DEFAULT_URL = "http://127.0.0.1:8787"
URL_VARIABLE = "TIDEMARK_URL"
API_KEY_VARIABLE = "TIDEMARK_API_KEY"
MAX_IN_FLIGHT = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """Every option of `Client` and `AsyncClient`; the clients document them."""

    url: str
    api_key: str | None = field(repr=False)
    batch_events: int
    max_request_bytes: int
    max_queued: int
    max_queued_bytes: int
    max_in_flight: int
    linger_s: float
    timeout_s: float
    retry_for_s: float
    first_delay_s: float
    max_delay_s: float
    idempotency_key: Literal["auto"] | None
    ssl_context: ssl.SSLContext | None
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        _check_url(self.url)
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise _invalid("api_key", "an API key is printable ASCII", "Copy the key again.")
        _check_range("batch_events", self.batch_events, 1, SERVER_MAX_EVENTS)
        _check_range("max_request_bytes", self.max_request_bytes, 1024, SERVER_MAX_BYTES)
        _check_range("max_queued", self.max_queued, 1, 10_000_000)
        _check_range("max_queued_bytes", self.max_queued_bytes, 1024, 1 << 40)
        _check_range("max_in_flight", self.max_in_flight, 1, MAX_IN_FLIGHT)
        _check_range("linger_s", self.linger_s, 0, 3600)
        _check_range("timeout_s", self.timeout_s, 0.001, 3600)
        _check_range("retry_for_s", self.retry_for_s, 0, 30 * 86_400)
        _check_range("first_delay_s", self.first_delay_s, 0.001, 3600)
        _check_range("max_delay_s", self.max_delay_s, self.first_delay_s, 3600)
        if self.idempotency_key not in (None, "auto"):
            raise _invalid(
                "idempotency_key",
                f'{self.idempotency_key!r} is neither None nor "auto"',
                'Put a key of your own into the event, as "idempotencyKey".',
            )

    @property
    def endpoint(self) -> str:
        return self.url.rstrip("/") + "/v1/events"

    @property
    def headers(self) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            # An answer is small, and one that is not compressed cannot unfold into a large one.
            "Accept-Encoding": "identity",
            "User-Agent": "tidemark-python",
        }
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers

    @property
    def limits(self) -> Limits:
        return Limits(self.batch_events, self.max_request_bytes)

    @property
    def max_event_bytes(self) -> int:
        """The longest event that fits a request alone."""
        return self.max_request_bytes - request_bytes(1, 0)

    @property
    def linger_us(self) -> int:
        return int(self.linger_s * MICROS_PER_SECOND)

    @property
    def patience_us(self) -> int:
        """How long `close` waits, by default, for a server that makes no progress at all."""
        return int((self.retry_for_s + self.timeout_s + 1) * MICROS_PER_SECOND)

    @property
    def retry_policy(self) -> RetryPolicy:
        return RetryPolicy(
            retry_for_us=int(self.retry_for_s * MICROS_PER_SECOND),
            first_delay_us=int(self.first_delay_s * MICROS_PER_SECOND),
            max_delay_us=int(self.max_delay_s * MICROS_PER_SECOND),
        )


def url_or_default(url: str | None) -> str:
    """The URL that was given, else the environment's, else the embedded default."""
    return url or os.environ.get(URL_VARIABLE) or DEFAULT_URL


def api_key_or_default(api_key: str | None) -> str | None:
    """The key that was given, else the environment's. An empty one means: send none."""
    return os.environ.get(API_KEY_VARIABLE) if api_key is None else api_key


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise _invalid("url", f"{url!r} is not a URL: {error}", _URL_HINT) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _invalid("url", f"{url!r} is not an http:// or https:// URL", _URL_HINT)
    if parts.username is not None or parts.password is not None:
        raise _invalid("url", "the URL holds a user or a password", "Pass api_key= instead.")
    if parts.query or parts.fragment:
        raise _invalid("url", f"{url!r} holds a query or a fragment", _URL_HINT)


_URL_HINT = f"Give the server's base address, such as {DEFAULT_URL}."


def _check_range(name: str, value: object, low: float, high: float) -> None:
    # A NaN is in no range.
    if not isinstance(value, int | float) or not low <= value <= high:
        raise _invalid(name, f"{name} is {value!r}", f"It is a number from {low:,} to {high:,}.")


def _invalid(name: str, message: str, hint: str) -> ClientError:
    return ClientError(message, hint=hint, field=name, code="invalid_setting")
