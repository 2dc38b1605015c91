"""Where a webhook may go. Checked when a trigger is made and again when a connection is."""

from __future__ import annotations

import logging
import socket
from functools import lru_cache
from ipaddress import ip_address

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from tidemark.config.webhook_values import UnfitValue, webhook_address
from tidemark.live.errors import WebhookRefused
from tidemark.live.webhooks.addresses import Allowance, literal_address, why_not_public

log = logging.getLogger(__name__)

ALLOW_HINT = "Private receivers are allowed by name, address or network in `webhooks.allow`."

_LOCAL_NAMES = ("localhost", "localhost.localdomain")
_LOCAL_SUFFIX = ".localhost"


def check_url(url: str, allow: Allowance, *, field: str = "webhook") -> URL:
    """The URL as it will be called; raises `WebhookRefused` for one that never may be.

    A name is not resolved here: what it resolves to is checked whenever a connection is made.
    """
    try:
        parsed = webhook_address(url)
    except UnfitValue as unfit:
        raise _refused(f"the URL has {unfit.found}", field, unfit.hint) from None
    host = parsed.raw_host or ""
    if allow.covers_name(host):
        return parsed
    if host.rstrip(".") in _LOCAL_NAMES or host.rstrip(".").endswith(_LOCAL_SUFFIX):
        raise _refused(f"{host} is this machine", field, ALLOW_HINT)
    try:
        address = literal_address(host)
    except ValueError:
        raise _refused(
            f"the host {host!r} is not an address in its ordinary spelling",
            field,
            "Write four decimal numbers, as in 203.0.113.7, or a name.",
        ) from None
    if address is not None and not allow.covers_address(address):
        kind = why_not_public(address)
        if kind is not None:
            raise _refused(f"the address {address} is not public: {kind}", field, ALLOW_HINT)
    return parsed


def host_of(url: str) -> str:
    """The host and port that a URL leads to: what one receiver is counted by.

    A URL that cannot be read, which `check_url` refuses, is a host of its own.
    """
    try:
        return _host_of(url)
    except ValueError:
        return url


@lru_cache(maxsize=4_096)
def _host_of(url: str) -> str:
    parsed = URL(url)
    return f"{parsed.raw_host}:{parsed.port}"


class GuardedResolver(AbstractResolver):
    """Gives a connector only addresses that may be called, so what is checked is what is used."""

    def __init__(self, resolver: AbstractResolver, allow: Allowance) -> None:
        self._resolver = resolver
        self._allow = allow

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        if self._allow.covers_name(host):
            return found
        kinds = {result["host"]: self._why_refused(result["host"]) for result in found}
        usable = [result for result in found if kinds[result["host"]] is None]
        if found and not usable:
            refused = ", ".join(f"{address} ({kind})" for address, kind in kinds.items())
            log.warning("no webhook goes to %s, which resolves to %s", host, refused)
            # Whoever made the trigger is told no more: it could map a network by asking for names.
            raise _refused(f"{host} does not resolve to a public address", "webhook", ALLOW_HINT)
        return usable

    async def close(self) -> None:
        await self._resolver.close()

    def _why_refused(self, host: str) -> str | None:
        try:
            address = ip_address(host)
        except ValueError:
            return "no address"
        return None if self._allow.covers_address(address) else why_not_public(address)


def _refused(reason: str, field: str, hint: str = "") -> WebhookRefused:
    return WebhookRefused(f"a webhook cannot go there: {reason}", hint=hint, field=field)
