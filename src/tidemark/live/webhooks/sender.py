"""One attempt: a signed request, bounded in time and in size."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import aiohttp
from aiohttp.abc import AbstractResolver

from tidemark import __version__
from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.live.errors import WebhookRefused
from tidemark.live.webhooks.addresses import Allowance
from tidemark.live.webhooks.names import PooledResolver
from tidemark.live.webhooks.outbox import Delivery
from tidemark.live.webhooks.schedule import Answer, NoAnswer, Result, parse_retry_after
from tidemark.live.webhooks.signing import Signer
from tidemark.live.webhooks.targets import GuardedResolver, check_url

TIMEOUT_S = 15.0
BODY_PATIENCE_S = 2.0
MAX_BODY_BYTES = 4_096
MAX_EXCERPT_CHARACTERS = 500
MAX_HEADER_BYTES = 8_190
DNS_CACHE_S = 10

HEADERS = {
    "Content-Type": "application/json",
    "User-Agent": f"tidemark-webhooks/{__version__}",
    # Compressed, a few bytes could become a great many.
    "Accept-Encoding": "identity",
}


class Sender:
    """Sends over one session of kept connections, which lives as long as the `async with`."""

    def __init__(
        self,
        signer: Signer,
        clock: Clock,
        *,
        allow: Allowance | None = None,
        timeout_s: float = TIMEOUT_S,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self._signer = signer
        self._clock = clock
        self._allow = allow or Allowance()
        self._resolver = GuardedResolver(resolver or PooledResolver(), self._allow)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            # Whoever calls `send` bounds the connections, in all and for each host.
            connector=aiohttp.TCPConnector(
                resolver=self._resolver, limit=0, ttl_dns_cache=DNS_CACHE_S
            ),
            headers=HEADERS,
            # One deadline is kept for the whole attempt, connections made anew included.
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            read_bufsize=MAX_BODY_BYTES,
            trace_configs=[_notice_reuse()],
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
        await self._resolver.close()

    async def send(self, delivery: Delivery) -> Result:
        """Post the payload once and say what came of it. Raises nothing but cancellation."""
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        try:
            return await self._send(delivery, deadline)
        except TimeoutError:
            return NoAnswer(f"no answer within {self.timeout_s:g} s")
        except WebhookRefused as refusal:
            return NoAnswer(f"{refusal.message}. {refusal.hint}".strip())
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return NoAnswer(_readable(f"{type(error).__name__}: {error}"))

    async def _send(self, delivery: Delivery, deadline: float) -> Answer:
        connection = SimpleNamespace(is_reused=False)
        try:
            return await self._post(delivery, deadline, connection)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            # A receiver may close a connection that it kept just when it is used again. That says
            # nothing of the receiver, so it is asked once more over a new one.
            if not connection.is_reused:
                raise
            return await self._post(delivery, deadline, connection)

    async def _post(
        self, delivery: Delivery, deadline: float, connection: SimpleNamespace
    ) -> Answer:
        if self._session is None:
            raise RuntimeError("the sender is used outside of its `async with`")
        url = check_url(delivery.url, self._allow)
        timestamp_s = self._clock.wall_us() // MICROS_PER_SECOND
        async with asyncio.timeout_at(deadline):
            response = await self._session.post(
                url,
                data=delivery.payload,
                headers=self._signer.headers(delivery.event_id, timestamp_s, delivery.payload),
                allow_redirects=False,
                trace_request_ctx=connection,
            )
        async with response:
            excerpt = await _excerpt(response, deadline)
        retry_after = response.headers.get("Retry-After")
        return Answer(
            response.status, excerpt, parse_retry_after(retry_after, self._clock.wall_us())
        )


async def _excerpt(response: aiohttp.ClientResponse, deadline: float) -> str:
    """The beginning of the body. The status stands, whatever the body turns out to be."""
    received = bytearray()
    patience_end = asyncio.get_running_loop().time() + BODY_PATIENCE_S
    try:
        async with asyncio.timeout_at(min(patience_end, deadline)):
            async for chunk in response.content.iter_any():
                received += chunk
                if len(received) > MAX_BODY_BYTES:
                    response.close()
                    break
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        response.close()
    return _readable(received[:MAX_BODY_BYTES].decode(errors="replace"))


def _readable(text: str) -> str:
    """One line that any database takes and any terminal shows."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())[:MAX_EXCERPT_CHARACTERS]


def _notice_reuse() -> aiohttp.TraceConfig:
    async def reused(
        session: aiohttp.ClientSession, context: SimpleNamespace, parameters: Any
    ) -> None:
        context.trace_request_ctx.is_reused = True

    async def created(
        session: aiohttp.ClientSession, context: SimpleNamespace, parameters: Any
    ) -> None:
        context.trace_request_ctx.is_reused = False

    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(reused)
    trace.on_connection_create_end.append(created)
    return trace
