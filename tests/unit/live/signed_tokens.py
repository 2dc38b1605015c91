"""Tokens for tests: keys of every kind, what they sign, and a clock that stands still."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tidemark.config import ApiKey, AuthConfig, Config, JwtKey

NOW_S = 1_767_225_600
SECRET = "a secret that is long enough for every digest there is: 64 bytes of it"
API_KEY = "tmk_an-api-key"


class StillClock:
    """Shows the times that a test sets."""

    def __init__(self) -> None:
        self.wall = NOW_S * 1_000_000
        self.elapsed = 0

    def wall_us(self) -> int:
        return self.wall

    def elapsed_us(self) -> int:
        return self.elapsed


@cache
def rsa_key(number: int = 0) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def public_pem(key: Any) -> bytes:
    pem: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def jwk(key: Any, algorithm: str, **members: object) -> dict[str, Any]:
    """The public half of a key as a JSON Web Key."""
    text = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key())
    return {**json.loads(text), **members}


def claims(**members: object) -> dict[str, object]:
    return {"sub": "ada", "exp": NOW_S + 60, **members}


def signed(
    payload: dict[str, object],
    key: PrivateKeyTypes | str | bytes = SECRET,
    algorithm: str = "HS256",
    **header: object,
) -> str:
    return jwt.encode(payload, key, algorithm, headers=header or None)  # type: ignore[arg-type]


def forged(header: dict[str, object], payload: dict[str, object], secret: bytes = b"") -> str:
    """A token put together by hand, as no library would; with a secret, its HMAC of SHA-256."""
    body = b".".join(_segment(json.dumps(part).encode()) for part in (header, payload))
    digest = hmac.digest(secret, body, hashlib.sha256) if secret else b""
    return (body + b"." + _segment(digest)).decode()


def _segment(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def issuer(**settings: Any) -> JwtKey:
    """An issuer that signs with `SECRET`, unless told otherwise."""
    if not {"secret", "public_key_file", "jwks_file"} & set(settings):
        settings["secret"] = SECRET
    return JwtKey(**{"name": "app", "algorithm": "HS256", "leeway_us": 0, **settings})


def api_key(name: str = "service", key: str = API_KEY, **settings: Any) -> ApiKey:
    digest = hashlib.sha256(key.encode()).hexdigest()
    return ApiKey(
        **{"name": name, "sha256": digest, "scopes": ["read"], "tenants": ["*"], **settings}
    )


def config(*issuers: JwtKey, keys: list[ApiKey] | None = None, **rules: Any) -> Config:
    chosen = [api_key()] if keys is None else keys
    return Config(auth=AuthConfig(keys=chosen, jwt=list(issuers), rules=rules))
