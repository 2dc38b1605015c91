"""A token's signature, time, issuer and audience.

Nothing that a token says of itself decides how it is verified: each issuer of the configuration has
one algorithm and its keys, and a token counts only when one of the issuers vouches for all of it.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jwt
import msgspec

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.config import JwtKey
from tidemark.errors import AccessDenied
from tidemark.live.access.keys import KeySource, key_source

MAX_TOKEN_CHARACTERS: Final = 16_384
_SEGMENTS: Final = 3
# What int64 microseconds still hold; later is never.
_LAST_SECOND: Final = 9_000_000_000_000


class VerifiedToken(msgspec.Struct, frozen=True):
    """What an issuer vouched for. `expires_at` is in microseconds, with the leeway added."""

    issuer: JwtKey
    claims: Mapping[str, object]
    expires_at: int | None


class TokenVerifier:
    """Judges tokens by `auth.jwt`. Raises `ConfigError` when a key cannot be used."""

    def __init__(self, issuers: Sequence[JwtKey], clock: Clock) -> None:
        self._clock = clock
        self._issuers: list[tuple[JwtKey, KeySource, jwt.PyJWS]] = [
            (
                issuer,
                key_source(issuer, clock, f"auth.jwt[{index}]"),
                jwt.PyJWS(algorithms=[issuer.algorithm]),
            )
            for index, issuer in enumerate(issuers)
        ]

    def verify(self, token: str) -> VerifiedToken:
        """The claims of a token that is signed, in time and meant for us; else `AccessDenied`."""
        header = _header(token)
        kid = header.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise _denied("this token cannot be read")
        # RFC 7515, 4.1.11: what the header calls critical must be understood, and nothing is.
        if "crit" in header:
            raise _denied("this token asks for something that is not supported")
        # Of several objections the one of the issuer that signed it says the most.
        objection = _denied("this token is not signed by anybody that is known here")
        for issuer, source, signatures in self._issuers:
            if header.get("alg") != issuer.algorithm:
                continue
            claims = _signed_claims(token, issuer, source, kid, signatures)
            if claims is None:
                continue
            try:
                expires_at = _check_claims(claims, issuer, self._clock.wall_us())
            except AccessDenied as error:
                objection = error
                continue
            return VerifiedToken(issuer, claims, expires_at)
        raise objection


def looks_like_jwt(token: str) -> bool:
    """Whether a bearer token is meant as a JWT and not as an API key."""
    return token.count(".") == _SEGMENTS - 1


def _header(token: str) -> dict[str, Any]:
    """The header, of which nothing is believed yet."""
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise _denied("this token is too long")
    segment = token.partition(".")[0]
    try:
        decoded = base64.b64decode(
            segment.encode("ascii") + b"=" * (-len(segment) % 4), altchars=b"-_", validate=True
        )
        header = msgspec.json.decode(decoded)
    except (ValueError, RecursionError, binascii.Error):
        raise _denied("this token cannot be read") from None
    if not isinstance(header, dict):
        raise _denied("this token cannot be read")
    return header


def _signed_claims(
    token: str, issuer: JwtKey, source: KeySource, kid: str | None, signatures: jwt.PyJWS
) -> dict[str, object] | None:
    key = source.find(kid)
    if key is None:
        return None
    try:
        payload = signatures.decode_complete(token, key, algorithms=[issuer.algorithm])["payload"]
        claims = msgspec.json.decode(payload)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None


def _check_claims(claims: Mapping[str, object], issuer: JwtKey, now_us: int) -> int | None:
    """When the token ends, None for never; `AccessDenied` if it is not for now or not for us."""
    expires_at = _moment(claims, "exp")
    not_before = _moment(claims, "nbf")
    _moment(claims, "iat")
    if expires_at is None and issuer.require_expiry:
        raise _denied("this token never expires", "Its issuer must set the claim `exp`.")
    if expires_at is not None:
        expires_at += issuer.leeway_us
        if now_us >= expires_at:
            raise _denied("this token has expired", "Get a new one and connect again.")
    if not_before is not None and now_us < not_before - issuer.leeway_us:
        raise _denied("this token is not valid yet", "Compare the clocks of both machines.")
    if issuer.issuer is not None and claims.get("iss") != issuer.issuer:
        raise _denied("this token has another issuer", "Compare `iss` with `auth.jwt`.")
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [] if audience is None else [audience]
    # RFC 7519, 4.1.3: a token that is meant for others is refused, also by those who have no name.
    if (issuer.audience is None and named) or (
        issuer.audience is not None and issuer.audience not in named
    ):
        raise _denied("this token is meant for others", "Compare `aud` with `auth.jwt`.")
    return expires_at


def _moment(claims: Mapping[str, object], name: str) -> int | None:
    """A time claim in microseconds. Null is no time at all, and no way to leave one out."""
    if name not in claims:
        return None
    seconds = claims[name]
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise _denied(f"the claim `{name}` of this token is not a time")
    if not math.isfinite(seconds) or abs(seconds) > _LAST_SECOND:
        raise _denied(f"the claim `{name}` of this token is not a time")
    return int(seconds * MICROS_PER_SECOND)


def _denied(message: str, hint: str = "") -> AccessDenied:
    return AccessDenied(
        message,
        status=401,
        code="unauthorized",
        field="Authorization",
        hint=hint or "Get a new token, or look at `auth.jwt` in the configuration.",
    )
