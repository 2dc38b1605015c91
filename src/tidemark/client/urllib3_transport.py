"""One request over urllib3, bounded in time and in size."""

from __future__ import annotations

# Looking up a host's name loads this codec when it is first needed. A child that is forked while
# another thread loads it would never find it.
import encodings.idna  # noqa: F401
import ssl

import urllib3

from tidemark.client.answers import (
    MAX_ANSWER_BYTES,
    Answer,
    HttpAnswer,
    NoAnswer,
    Unreachable,
)
from tidemark.client.settings import Settings
from tidemark.clock import MICROS_PER_SECOND
from tidemark.errors import ClientError

_CHUNK_BYTES = 64 * 1024
# Connections are made as threads need them; this many are kept for the next request.
_MAX_KEPT_CONNECTIONS = 64


class Urllib3Transport:
    """Posts bodies to the server. Safe to share between threads, not across a fork."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.endpoint
        self._headers = settings.headers
        self._clock = settings.clock
        self._timeout_us = int(settings.timeout_s * MICROS_PER_SECOND)
        self._timeout = urllib3.Timeout(connect=settings.timeout_s, read=settings.timeout_s)
        self._pool = urllib3.PoolManager(
            num_pools=1, maxsize=_MAX_KEPT_CONNECTIONS, ssl_context=settings.ssl_context
        )

    def post(self, body: bytes) -> Answer:
        """Send one body once, and say what came of it."""
        deadline_us = self._clock.elapsed_us() + self._timeout_us
        try:
            response = self._pool.request(
                "POST",
                self._url,
                body=body,
                headers=self._headers,
                timeout=self._timeout,
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                return self._read(response, deadline_us)
            except BaseException:
                # What is left of this answer must not become the beginning of the next.
                response.close()
                raise
        except urllib3.exceptions.SSLError as error:
            return untrusted(error.args[0] if error.args else None) or NoAnswer(f"TLS: {error}")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            return NoAnswer(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._pool.clear()

    def _read(self, response: urllib3.BaseHTTPResponse, deadline_us: int) -> Answer:
        received = bytearray()
        # The timeout of the socket begins anew with every byte; the deadline does not.
        while chunk := response.read1(_CHUNK_BYTES):
            received += chunk
            if len(received) > MAX_ANSWER_BYTES:
                response.close()
                return NoAnswer(f"the answer is longer than {MAX_ANSWER_BYTES:,} bytes")
            if self._clock.elapsed_us() > deadline_us:
                response.close()
                return NoAnswer("the answer did not end in time")
        response.release_conn()
        return HttpAnswer(response.status, bytes(received), response.headers.get("Retry-After"))


def untrusted(error: object) -> Unreachable | None:
    """A certificate that is not trusted now will not be trusted in a second."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return None
    return Unreachable(
        ClientError(
            f"the server's certificate is not trusted: {error.verify_message}",
            hint="Pass ssl_context= with the certificate authority that signed it.",
            code="untrusted_certificate",
        )
    )
