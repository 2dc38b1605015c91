"""The key that an event is known by when the client gives none.

A key is the HMAC-SHA256, in base64url without padding, of a tuple written as canonical JSON. A
prefix tells the kinds of tuple apart, so that no two kinds can ever give the same key:

    usage          (tenantId, metric, customerRef, resourceId or null, ts)
    `stream`       (tenantId, stream, *the declared identity fields)
    `cloudevents`  (tenantId, source, id)
    `control`      (tenantId, control, target or its own fields, content hash in hex)

JSON keeps the members apart, so no text in one of them can be mistaken for a border.
"""

from __future__ import annotations

import hashlib
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Final

import msgspec

_BLOCK_BYTES: Final = 64
_INNER_PAD = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD = bytes(byte ^ 0x5C for byte in range(256))
_URL_SAFE = bytes.maketrans(b"+/", b"-_")

_encode = msgspec.json.Encoder().encode


class Identity:
    """Derives keys with one salt. The same salt and the same tuple always give the same key."""

    def __init__(self, salt: bytes | str) -> None:
        secret = salt.encode() if isinstance(salt, str) else salt
        if len(secret) > _BLOCK_BYTES:
            secret = hashlib.sha256(secret).digest()
        block = secret.ljust(_BLOCK_BYTES, b"\0")
        # HMAC hashes two blocks that depend on the salt alone: done once, copied for each key.
        self._inner = hashlib.sha256(block.translate(_INNER_PAD))
        self._outer = hashlib.sha256(block.translate(_OUTER_PAD))

    def usage_key(
        self, tenant_id: str, metric: str, customer_ref: str, resource_id: str | None, ts: str
    ) -> str:
        """`ts` is the normalised text. An absent resource is None and differs from an empty one."""
        return self._key(_encode((tenant_id, metric, customer_ref, resource_id, ts)))

    def stream_key(self, tenant_id: str, stream: str, values: Sequence[object]) -> str:
        """`values` are the identity fields in declared order, as their canonical JSON values."""
        return self._key(b"stream\n" + _encode((tenant_id, stream, *values)))

    def cloudevent_key(self, tenant_id: str, source: str, event_id: str) -> str:
        return self._key(b"cloudevents\n" + _encode((tenant_id, source, event_id)))

    def control_key(
        self, tenant_id: str, control: str, subject: Sequence[str], content_hash: bytes
    ) -> str:
        """`subject` is the target of a correction, or the own fields of another control event."""
        return self._key(b"control\n" + _encode((tenant_id, control, *subject, content_hash.hex())))

    def _key(self, message: bytes) -> str:
        inner = self._inner.copy()
        inner.update(message)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False).translate(_URL_SAFE, b"=").decode()
