"""One request over aiohttp, bounded in time and in size."""

from __future__ import annotations

import io
from types import TracebackType
from typing import Self

import aiohttp

from tidemark.client.answers import MAX_ANSWER_BYTES, Answer, HttpAnswer, NoAnswer, Unreachable
from tidemark.client.settings import Settings
from tidemark.client.urllib3_transport import untrusted
from tidemark.errors import ClientError


class AiohttpTransport:
    """Posts bodies to the server over one session, which lives as long as the `async with`."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.endpoint
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=settings.ssl_context or True),
            headers=settings.headers,
            timeout=aiohttp.ClientTimeout(total=settings.timeout_s),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def post(self, body: bytes) -> Answer:
        """Send one body once, and say what came of it."""
        if self._session.closed:
            closed = ClientError(
                "the client is closed", hint="Make a new client.", code="client_closed"
            )
            return Unreachable(closed)
        try:
            # aiohttp warns of large bytes, which it writes in one go; it reads a file in chunks.
            async with self._session.post(
                self._url, data=io.BytesIO(body), allow_redirects=False
            ) as response:
                return await self._read(response)
        except aiohttp.ClientConnectorCertificateError as error:
            return untrusted(error.certificate_error) or NoAnswer(f"TLS: {error}")
        except TimeoutError:
            return NoAnswer("the answer did not come in time")
        except (aiohttp.ClientError, OSError) as error:
            return NoAnswer(f"{type(error).__name__}: {error}")

    async def _read(self, response: aiohttp.ClientResponse) -> Answer:
        received = bytearray()
        async for chunk in response.content.iter_any():
            received += chunk
            if len(received) > MAX_ANSWER_BYTES:
                response.close()
                return NoAnswer(f"the answer is longer than {MAX_ANSWER_BYTES:,} bytes")
        return HttpAnswer(response.status, bytes(received), response.headers.get("Retry-After"))
