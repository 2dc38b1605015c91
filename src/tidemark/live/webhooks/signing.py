"""Signatures as in Standard Webhooks, which receivers check with any of its libraries."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence

from tidemark.config.webhook_values import (
    MAX_SECRETS,
    SECRET_HINT,
    SECRET_PREFIX,
    UnfitValue,
    webhook_key,
)
from tidemark.errors import ConfigError

NEW_KEY_BYTES = 32
SECRETS_FIELD = "webhooks.secrets"


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
    try:
        return webhook_key(secret)
    except UnfitValue as unfit:
        raise ConfigError(
            f"expected a secret to sign webhooks with, found {unfit.found}",
            hint=unfit.hint,
            field=field,
        ) from None


def new_secret() -> str:
    """A secret that nobody has seen."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(NEW_KEY_BYTES)).decode()
