"""Sends events to a Tidemark server, so that each is stored once however often it is sent.

    settings   what a client is told when it is made, checked
    events     one event → its bytes, fixed once (`ts`, idempotency key)
    batches    bytes → request bodies within the server's limits
    buffer     events that were submitted and are not yet settled, within bounds
    answers    an HTTP answer → results, try again, send less, or give up
    retry      when to try again, and for how long
    delivery   the conversation of one batch with the server, without I/O
    reports    who was answered and who was not
    results    what a caller gets back

    urllib3_transport, aiohttp_transport    one request, bounded in time and size
    base, blocking, asynchronous            the two clients, with threads and with tasks
    exits                                   what is buffered when the interpreter ends is sent then

`AsyncClient` is loaded when first used, so that a program that has no event loop does not pay for
importing one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.client.blocking import Client
from tidemark.client.results import DeliveryFailed, Result
from tidemark.errors import ClientError

if TYPE_CHECKING:
    from tidemark.client.asynchronous import AsyncClient

__all__ = ["AsyncClient", "Client", "ClientError", "DeliveryFailed", "Result"]


def __getattr__(name: str) -> Any:
    if name == "AsyncClient":
        from tidemark.client.asynchronous import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
