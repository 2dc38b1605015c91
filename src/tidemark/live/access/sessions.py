"""One caller of GraphQL, known by an API key or a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from tidemark.clock import Clock, SystemClock
from tidemark.config import Config, Scope
from tidemark.errors import AccessDenied
from tidemark.live.access.claims import claim_at, texts_in
from tidemark.live.access.tokens import TokenVerifier, VerifiedToken, looks_like_jwt
from tidemark.web.access import ANYONE, Access, Caller

_HEADER = "authorization"
_TOKEN_PARAMETER = "authToken"


class Session(msgspec.Struct, frozen=True):
    """Somebody who may do `scopes` for `tenants` (None: all of them) until `expires_at`.

    `by_token` says that a token introduced them, so that `auth.rules` decide what they see.
    `expires_at` is in microseconds; None is never.
    """

    name: str
    claims: Mapping[str, object]
    scopes: frozenset[Scope]
    tenants: frozenset[str] | None
    expires_at: int | None
    by_token: bool = False

    def require(self, *scopes: Scope) -> None:
        """Refuse unless the session has at least one of these scopes."""
        if not self.scopes.intersection(scopes):
            entry = "auth.jwt" if self.by_token else "auth.keys"
            raise AccessDenied(
                f"{self.name!r} does not have the scope {' or '.join(scopes)}",
                status=403,
                hint=f"Use another key or token, or give this one the scope in `{entry}`.",
            )

    @property
    def is_somebody(self) -> bool:
        """Whether its name is that of one caller; tokens without `sub` have their issuer's."""
        subject = self.claims.get("sub")
        return not self.by_token or (isinstance(subject, str) and subject != "")


class _StoredSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A session as triggers keep it. Nothing has a default: what is missing must not widen it."""

    name: str
    claims: dict[str, Any]
    # Text, so that a scope which a later version drops is dropped here as well.
    scopes: list[str]
    tenants: list[str] | None
    expires_at: int | None
    by_token: bool


_KNOWN_SCOPES = ANYONE.scopes


def session_to_json(session: Session) -> str:
    """The session as text, equal for equal sessions."""
    stored = _StoredSession(
        name=session.name,
        claims=dict(session.claims),
        scopes=sorted(session.scopes),
        tenants=None if session.tenants is None else sorted(session.tenants),
        expires_at=session.expires_at,
        by_token=session.by_token,
    )
    return msgspec.json.encode(stored, order="sorted").decode()


def session_from_json(text: str) -> Session:
    """The session that was stored; raises `msgspec.ValidationError` for anything else."""
    stored = msgspec.json.decode(text, type=_StoredSession)
    return Session(
        name=stored.name,
        claims=stored.claims,
        scopes=frozenset(scope for scope in _KNOWN_SCOPES if scope in stored.scopes),
        tenants=None if stored.tenants is None else frozenset(stored.tenants),
        expires_at=stored.expires_at,
        by_token=stored.by_token,
    )


class Gatekeeper:
    """Turns what a connection carries into a session.

    A bearer token with two dots is a JWT where `auth.jwt` is configured, any other an API key.
    Without keys and issuers everybody who gets through to the loopback address may do everything.
    Raises `ConfigError` when what tokens are verified with cannot be used.
    """

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self._access = Access(config)
        self._tokens = TokenVerifier(config.auth.jwt, clock or SystemClock())
        self._has_issuers = bool(config.auth.jwt)

    @property
    def open(self) -> bool:
        """Whether everybody is let in."""
        return self._access.open and not self._has_issuers

    def authenticate(
        self, headers: Mapping[bytes, bytes], connection_params: Mapping[str, object] | None
    ) -> Session:
        """The caller that the payload of `connection_init`, or else the header, introduces.

        The payload may have `Authorization` or `headers.Authorization` (`Bearer …`), or the bare
        token in `authToken`. Raises `AccessDenied`.
        """
        if self.open:
            return session_of(ANYONE)
        token = _token_of_params(connection_params or {}) or _token_of_headers(headers)
        if token is None:
            raise AccessDenied(
                "an API key or a token is needed",
                status=401,
                code="unauthorized",
                field="Authorization",
                hint=(
                    "Send `Authorization: Bearer …` as a header or in the payload of "
                    "`connection_init`."
                ),
            )
        if self._has_issuers and looks_like_jwt(token):
            return _session_of_token(self._tokens.verify(token))
        if self._access.open:
            # It would take anybody for everybody.
            raise AccessDenied(
                "this is neither a token nor a known API key",
                status=401,
                code="unauthorized",
                field="Authorization",
                hint="Send a token of an issuer in `auth.jwt`.",
            )
        bearer = b"Bearer " + token.encode("utf-8", "surrogateescape")
        return session_of(self._access.identify({b"authorization": bearer}))


def session_of(caller: Caller) -> Session:
    """The session of somebody with an API key, or without one where none is needed."""
    return Session(caller.name, {}, caller.scopes, caller.tenants, None)


def _session_of_token(token: VerifiedToken) -> Session:
    issuer, claims = token.issuer, token.claims
    scopes = frozenset(issuer.scopes)
    if issuer.scopes_claim is not None:
        named = texts_in(claim_at(claims, issuer.scopes_claim), split=True) or frozenset()
        scopes = frozenset(scope for scope in scopes if scope in named)
    tenants = None
    if issuer.tenants_claim is not None:
        tenants = texts_in(claim_at(claims, issuer.tenants_claim), split=False)
        if tenants is None:
            raise AccessDenied(
                f"this token does not say its tenants in the claim `{issuer.tenants_claim}`",
                status=403,
                field="Authorization",
                hint="The claim is text or a list of texts; the issuer must set it.",
            )
    subject = claims.get("sub")
    # What is before the first colon is the issuer, whatever its name and the subject are.
    name = quote(issuer.name, safe=" /")
    if isinstance(subject, str):
        name += f":{subject}"
    return Session(name, claims, scopes, tenants, token.expires_at, by_token=True)


def _token_of_params(params: Mapping[str, object]) -> str | None:
    found = _bearer_in(params)
    if found is None:
        inner = params.get("headers")
        found = _bearer_in(inner) if isinstance(inner, Mapping) else None
    if found is None:
        bare = params.get(_TOKEN_PARAMETER)
        found = bare.strip() if isinstance(bare, str) else None
    # Half of a surrogate pair, which JSON can spell and a header cannot.
    return found.encode("utf-8", "replace").decode() if found else None


def _bearer_in(entries: Mapping[Any, object]) -> str | None:
    for name, value in entries.items():
        if isinstance(name, str) and name.lower() == _HEADER and isinstance(value, str):
            return _bearer(value)
    return None


def _token_of_headers(headers: Mapping[bytes, bytes]) -> str | None:
    return _bearer(headers.get(_HEADER.encode(), b"").decode("utf-8", "surrogateescape"))


def _bearer(value: str) -> str | None:
    scheme, _, token = value.strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
