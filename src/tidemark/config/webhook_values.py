"""What the secrets and the addresses of webhooks must be, wherever one is read."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from yarl import URL

SECRET_PREFIX: Final = "whsec_"
MIN_KEY_BYTES: Final = 24
MAX_KEY_BYTES: Final = 64
MAX_SECRETS: Final = 2
MAX_URL_CHARACTERS: Final = 2_048
SCHEMES: Final = ("http", "https")

SECRET_HINT: Final = (
    f"A secret is {SECRET_PREFIX} and {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes in base64;"
    " `tidemark keygen --webhook` makes one."
)

_NEVER_IN_A_URL = re.compile(r"[\x00-\x20\x7f\\]")


class UnfitValue(ValueError):
    """`found` names what is wrong without showing any of it, since it may be a secret."""

    def __init__(self, found: str, hint: str = "") -> None:
        super().__init__(found, hint)
        self.found = found
        self.hint = hint


def webhook_key(secret: str) -> bytes:
    """The key in a secret of Standard Webhooks. Raises `UnfitValue`."""
    if not secret.startswith(SECRET_PREFIX):
        raise UnfitValue(f"text that does not begin with {SECRET_PREFIX}", SECRET_HINT)
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise UnfitValue(f"text that is not base64 after {SECRET_PREFIX}", SECRET_HINT) from None
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise UnfitValue(f"{len(key)} bytes", SECRET_HINT)
    return key


def webhook_address(url: str) -> URL:
    """A URL that a webhook can have; whether it may be called is another question.

    Read by the very parser that the HTTP client uses, so that the two cannot disagree. Raises
    `UnfitValue`.
    """
    # Most commands never read one.
    from yarl import URL

    if len(url) > MAX_URL_CHARACTERS:
        raise UnfitValue(f"more than {MAX_URL_CHARACTERS:,} characters")
    if _NEVER_IN_A_URL.search(url):
        raise UnfitValue(
            "a space, a backslash or a control character in it", "Write a space as `%20`."
        )
    if "#" in url:
        raise UnfitValue("a `#` in it", "Leave out what begins with `#`; it is never sent.")
    try:
        parsed = URL(url)
        port = parsed.port
    except ValueError:
        raise UnfitValue("a host or port that cannot be read") from None
    if parsed.scheme not in SCHEMES:
        raise UnfitValue("another scheme, or none", "Write `https://host/path`, in full.")
    if not parsed.raw_host:
        raise UnfitValue("no host in it")
    if "%" in parsed.raw_host:
        raise UnfitValue("a `%` in its host")
    if "@" in parsed.raw_authority:
        raise UnfitValue(
            "a user name or password in it", "Deliveries are signed, and receivers check that."
        )
    if not port:
        raise UnfitValue("a port that is not between 1 and 65535")
    return parsed
