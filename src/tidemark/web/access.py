"""Who is calling, and may they?

With `auth.keys` every caller names a key. Without, everyone who can reach the loopback address may
do everything; so that a web page cannot be such a caller, foreign `Host` and `Origin` headers are
refused then (a page that a browser loaded from elsewhere carries one or the other).
"""

from __future__ import annotations

import hashlib
import hmac
import re

import msgspec

from tidemark.config.access_model import ALL_TENANTS, SCOPES, Scope
from tidemark.config.model import Config
from tidemark.config.values import is_loopback
from tidemark.errors import AccessDenied, EventRejected

# What may stand in a Host header, and nothing of a URL besides: an address in brackets or a name.
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]*)?").fullmatch
_HOST_OF_ORIGIN = re.compile(r"\Ahttps?://")


class Caller(msgspec.Struct, frozen=True):
    """Somebody who may do `scopes` for `tenants` (None: all of them)."""

    name: str
    scopes: frozenset[Scope]
    tenants: frozenset[str] | None

    @property
    def limited(self) -> bool:
        """Whether there is anything that this caller may not send."""
        return self.tenants is not None or not self.scopes.issuperset(("ingest", "control"))

    def require(self, *scopes: Scope) -> None:
        """Refuse unless the caller has at least one of these scopes."""
        if not self.scopes.intersection(scopes):
            raise AccessDenied(
                f"the key {self.name!r} does not have the scope {' or '.join(scopes)}",
                status=403,
                hint="Use another key, or give this one the scope in `auth.keys`.",
            )

    def require_tenant(self, tenant_id: str) -> None:
        if self.tenants is not None and tenant_id not in self.tenants:
            raise AccessDenied(
                f"the key {self.name!r} is not for the tenant {tenant_id[:64]!r}",
                status=403,
                hint="Use another key, or give this one the tenant in `auth.keys`.",
            )

    def may_send(self, tenant_id: str, control: bool) -> EventRejected | None:
        """None if this caller may send (control) events of the tenant."""
        if self.tenants is not None and tenant_id not in self.tenants:
            return EventRejected(
                f"the key {self.name!r} is not for this tenant",
                code="forbidden",
                field="tenantId",
                hint="Use another key, or give this one the tenant in `auth.keys`.",
            )
        scope: Scope = "control" if control else "ingest"
        if scope not in self.scopes:
            return EventRejected(
                f"the key {self.name!r} does not have the scope {scope}",
                code="forbidden",
                hint="Use another key, or give this one the scope in `auth.keys`.",
            )
        return None


ANYONE = Caller("anyone", frozenset(SCOPES), None)
NOBODY = Caller("nobody", frozenset(), frozenset())


class Access:
    """Judges the headers of a request by the configuration."""

    def __init__(self, config: Config) -> None:
        self._keys = [
            (
                key.sha256.encode(),
                Caller(
                    key.name,
                    frozenset(key.scopes),
                    None if ALL_TENANTS in key.tenants else frozenset(key.tenants),
                ),
            )
            for key in config.auth.keys
        ]
        self._allowed_hosts = frozenset(host.lower() for host in config.http.allowed_hosts)
        self._allowed_origins = frozenset(config.http.allowed_origins)

    @property
    def open(self) -> bool:
        """Whether everybody who gets through to this address may do everything."""
        return not self._keys

    def check_origin(self, headers: dict[bytes, bytes]) -> str | None:
        """Refuse what a foreign web page sends; give the foreign origin that is allowed, if any."""
        host = headers.get(b"host", b"").decode("latin-1")
        if self.open and not self._host_allowed(host):
            raise AccessDenied(
                "this Host header is not allowed",
                status=421,
                code="foreign_host",
                field="Host",
                hint="Call 127.0.0.1 or localhost, or add the name to `http.allowed_hosts`.",
            )
        origin = headers.get(b"origin")
        if origin is None:
            return None
        text = origin.decode("latin-1")
        if text in self._allowed_origins:
            return text
        if host and _HOST_OF_ORIGIN.sub("", text).lower() == host.lower():
            return None
        raise AccessDenied(
            "requests from pages of this origin are not allowed",
            status=403,
            code="foreign_origin",
            field="Origin",
            hint="Add the origin to `http.allowed_origins` if its pages may call.",
        )

    def recognise(self, headers: dict[bytes, bytes]) -> Caller:
        """The caller where no key is asked for: without a known one, nobody in particular."""
        try:
            return self.identify(headers)
        except AccessDenied:
            return NOBODY

    def identify(self, headers: dict[bytes, bytes]) -> Caller:
        """The caller whose key the request carries."""
        if self.open:
            return ANYONE
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not token:
            raise AccessDenied(
                "an API key is needed",
                status=401,
                code="unauthorized",
                field="Authorization",
                hint="Send `Authorization: Bearer <key>`; `tidemark keygen` makes one.",
            )
        digest = hashlib.sha256(token.strip()).hexdigest().encode()
        found: Caller | None = None
        for known, caller in self._keys:
            # Every key is compared, so that the time taken tells nothing of which one is near.
            if hmac.compare_digest(known, digest):
                found = caller
        if found is None:
            raise AccessDenied(
                "this API key is not known",
                status=401,
                code="unauthorized",
                field="Authorization",
                hint="Look at `auth.keys` in the configuration; a restart reads it anew.",
            )
        return found

    def _host_allowed(self, host: str) -> bool:
        match = _HOST(host)
        if match is None:
            return False
        name = (match[1] or match[2]).lower()
        return is_loopback(name) or name in self._allowed_hosts


def visible_tenants(caller: Caller, wanted: str | None) -> tuple[str, ...] | None:
    """The tenants a reader sees: the one it asks for, else all that its key is for."""
    if wanted is not None:
        caller.require_tenant(wanted)
        return (wanted,)
    return None if caller.tenants is None else tuple(sorted(caller.tenants))
