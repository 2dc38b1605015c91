"""Signatures as in Standard Webhooks, which receivers check with any of its libraries."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

from tidemark.errors import ConfigError

SECRET_PREFIX = "whsec_"
MIN_KEY_BYTES = 24
MAX_KEY_BYTES = 64
NEW_KEY_BYTES = 32
MAX_SECRETS = 2
SECRETS_FIELD = "webhooks.secrets"

SECRET_HINT = f"A secret is {SECRET_PREFIX} and {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes in base64."


class Signer:
    """Signs with one secret, or with two while receivers move from the old one to the new one."""

    def __init__(self, signing_secrets: Sequence[str]) -> None:
        """Raises `ConfigError` for secrets that cannot be used."""
        if not signing_secrets:
            raise ConfigError(
                "there is no secret to sign webhooks with", hint=SECRET_HINT, field=SECRETS_FIELD
            )
        if len(signing_secrets) > MAX_SECRETS:
            raise ConfigError(
                f"there are {len(signing_secrets)} secrets, and webhooks are signed with at most"
                f" {MAX_SECRETS}",
                hint="Keep the new secret and the one that it replaces.",
                field=SECRETS_FIELD,
            )
        self._keys = tuple(
            secret_key(secret, field=f"{SECRETS_FIELD}[{index}]")
            for index, secret in enumerate(signing_secrets)
        )

    def headers(self, event_id: str, timestamp_s: int, payload: bytes) -> dict[str, str]:
        """The three headers of one attempt, made at `timestamp_s`."""
        signed = b"%s.%d.%s" % (event_id.encode(), timestamp_s, payload)
        signatures = (hmac.digest(key, signed, hashlib.sha256) for key in self._keys)
        return {
            "webhook-id": event_id,
            "webhook-timestamp": str(timestamp_s),
            "webhook-signature": " ".join(
                "v1," + base64.b64encode(signature).decode() for signature in signatures
            ),
        }


def secret_key(secret: str, *, field: str = SECRETS_FIELD) -> bytes:
    """The key in a `whsec_…` secret. The errors never repeat the secret."""
    if not secret.startswith(SECRET_PREFIX):
        raise ConfigError(
            f"the secret does not begin with {SECRET_PREFIX}", hint=SECRET_HINT, field=field
        )
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(
            f"what follows {SECRET_PREFIX} is not base64", hint=SECRET_HINT, field=field
        ) from None
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise ConfigError(
            f"the secret holds {len(key)} bytes, and {MIN_KEY_BYTES} to {MAX_KEY_BYTES} are needed",
            hint=SECRET_HINT,
            field=field,
        )
    return key


def new_secret() -> str:
    """A secret that nobody has seen."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(NEW_KEY_BYTES)).decode()
