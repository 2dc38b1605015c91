"""Which addresses of the network are nobody's business: everything that is not public."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TypeAlias

from tidemark.errors import ConfigError

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

# Kept here rather than asked of `ipaddress`, whose answers have changed between Python releases.
_SPECIAL_V4 = tuple(
    (IPv4Network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_SPECIAL_V6 = tuple(
    (IPv6Network(network), kind)
    for network, kind in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fc00::/7", "unique-local"),
        ("fe80::/10", "link-local"),
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "documentation"),
    )
)
_GLOBAL_UNICAST_V6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_HOST_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


class Allowance:
    """What the configuration allows although it is not public: host names, addresses, networks.

    An allowed name may be served from any address. An allowed network may be named in any way.
    """

    def __init__(self, entries: Sequence[str] = (), *, field: str = "webhooks.allow") -> None:
        names: set[str] = set()
        networks: list[Network] = []
        for index, entry in enumerate(entries):
            try:
                networks.append(ip_network(entry))
            except ValueError as error:
                name = entry.lower()
                if "/" in name or ends_in_a_number(name) or not _HOST_NAME.fullmatch(name):
                    raise ConfigError(
                        f"{entry!r} is neither a host name nor an address nor a network: {error}",
                        hint="Write `hooks.internal`, `10.1.2.3`, `10.1.0.0/16` or `fd00::/8`.",
                        field=f"{field}[{index}]",
                    ) from None
                names.add(name)
        self._names = frozenset(names)
        self._networks = tuple(networks)

    def covers_name(self, host: str) -> bool:
        return host.rstrip(".").lower() in self._names

    def covers_address(self, address: Address) -> bool:
        spellings = (address, embedded_ipv4(address))
        return any(
            spelling is not None and spelling in network
            for network in self._networks
            for spelling in spellings
        )


def why_not_public(address: Address) -> str | None:
    """The kind of a special address; None for one that is public."""
    if isinstance(address, IPv6Address):
        embedded = embedded_ipv4(address)
        if embedded is not None:
            return why_not_public(embedded)
        if address.scope_id is not None:
            return "link-local"
        for network, kind in _SPECIAL_V6:
            if address in network:
                return kind
        return None if address in _GLOBAL_UNICAST_V6 else "reserved"
    for network_v4, kind in _SPECIAL_V4:
        if address in network_v4:
            return kind
    return None


def embedded_ipv4(address: Address) -> IPv4Address | None:
    """The IPv4 address that a connection to an IPv4-mapped or NAT64 address ends at."""
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(address.packed[-4:])
    return None


def literal_address(host: str) -> Address | None:
    """The address that a host spells out; None for a name.

    Raises `ValueError` for the spellings that some resolvers read as an address, others as a name:
    2130706433, 0x7f.1, 0177.0.0.1, 127.1, 127.0.0.1. with a dot at its end.
    """
    if ":" in host:
        return ip_address(host)
    if ends_in_a_number(host):
        return IPv4Address(host)
    return None


def ends_in_a_number(host: str) -> bool:
    """Whether a URL parser of a browser would take the host for an IPv4 address, however odd."""
    last = host.rstrip(".").rpartition(".")[2]
    return last.isdigit() or re.fullmatch(r"0[xX][0-9a-fA-F]*", last) is not None
