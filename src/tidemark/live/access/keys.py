"""What tokens are verified with: a secret, a public key, or a set of keys in a file.

A key is only ever used with the one algorithm that the configuration names, and it is checked that
it is a key for that algorithm. So a public key can never be taken for a shared secret.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.config import Algorithm, JwtKey
from tidemark.config.live_checks import SECRET_BYTES
from tidemark.errors import ConfigError

PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey
VerificationKey: TypeAlias = bytes | PublicKey

MIN_RSA_BITS: Final = 2048
MAX_KEY_FILE_BYTES: Final = 1_048_576
RECHECK_US: Final = MICROS_PER_SECOND

_CURVES: Final = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}
_KEY_TYPES: Final = {"HS": "oct", "RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}

_log = logging.getLogger(__name__)


class KeySource(Protocol):
    """The keys of one issuer."""

    def find(self, kid: str | None) -> VerificationKey | None:
        """The key that a token with this `kid` in its header must be verified with."""
        ...


class SingleKey:
    """One key, whatever `kid` a token names."""

    def __init__(self, key: VerificationKey) -> None:
        self._key = key

    def find(self, kid: str | None) -> VerificationKey | None:
        return self._key


class KeySetFile:
    """A JSON Web Key Set in a file, which is read again when it has changed.

    Entries that are for something else, or that cannot be used, are passed over. The file is looked
    at once a second at most. While it is no set at all, the keys that were read before stay in use;
    a set counts as it is, so a key that is no longer among its keys is never accepted again.
    """

    def __init__(self, path: Path, algorithm: Algorithm, clock: Clock, field: str) -> None:
        """Raises `ConfigError` when the file cannot be used, or gives no key."""
        self._path = path
        self._algorithm = algorithm
        self._clock = clock
        self._field = field
        self._checked_us = clock.elapsed_us()
        self._stamp = self._stat()
        found = self._read()
        if found.fault is not None:
            raise _unreadable(path, found.fault, field)
        self._keys = found.keys

    def find(self, kid: str | None) -> VerificationKey | None:
        self._refresh()
        if kid is not None:
            return self._keys.get(kid)
        # Without a name there is no telling which of several is meant.
        return next(iter(self._keys.values())) if len(self._keys) == 1 else None

    def _refresh(self) -> None:
        now_us = self._clock.elapsed_us()
        if now_us - self._checked_us < RECHECK_US:
            return
        self._checked_us = now_us
        try:
            # Before the content: what is written in between is then read next time.
            stamp = self._stat()
            if stamp == self._stamp:
                return
            found = self._read()
        except ConfigError as error:
            _log.warning("the keys of %s stay as they were: %s", self._path, error.message)
            return
        self._stamp = stamp
        self._keys = found.keys
        if found.fault is not None:
            _log.error("tokens are refused because of %s: %s", self._path, found.fault)

    def _stat(self) -> tuple[int, int, int]:
        try:
            status = self._path.stat()
        except OSError as error:
            raise _unreadable(self._path, error.strerror or "unknown", self._field) from None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> _KeySet:
        content = _read_file(self._path, self._field)
        try:
            document = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError):
            raise _unreadable(self._path, "it is not JSON", self._field) from None
        entries = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(entries, list):
            raise _unreadable(self._path, "it has no list `keys`", self._field)
        return _key_set(entries, self._algorithm)


class _KeySet(msgspec.Struct, frozen=True):
    """The usable keys of a set by their `kid`, and why there are not all that there should be."""

    keys: dict[str | None, VerificationKey]
    fault: str | None


def _key_set(entries: list[object], algorithm: Algorithm) -> _KeySet:
    keys: dict[str | None, VerificationKey] = {}
    twice: set[str | None] = set()
    unfit: list[str] = []
    for entry in entries:
        if not isinstance(entry, dict) or not _is_for(entry, algorithm):
            continue
        kid = entry.get("kid")
        if kid is not None and not isinstance(kid, str):
            unfit.append("a `kid` in it is no text")
            continue
        try:
            key = _key(entry, algorithm)
        except ConfigError as error:
            unfit.append(error.message)
            continue
        if kid in keys:
            twice.add(kid)
        keys[kid] = key
    if unfit:
        _log.info("%d keys for %s are passed over: %s", len(unfit), algorithm, unfit[0])
    # There is no telling which of the two is meant.
    usable = {kid: key for kid, key in keys.items() if kid not in twice}
    if twice:
        return _KeySet(usable, f"two keys have the kid {min(twice, key=str)!r}")
    if not usable:
        why = f": {unfit[0]}" if unfit else ""
        return _KeySet(usable, f"it has no key for the algorithm {algorithm}{why}")
    return _KeySet(usable, None)


def _key(entry: dict[str, Any], algorithm: Algorithm) -> VerificationKey:
    """Raises `ConfigError`."""
    try:
        key = jwt.PyJWK(entry, algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError, UnsupportedAlgorithm):
        raise ConfigError("a key in it cannot be read") from None
    # A set that holds private keys is used for what is public of them.
    public = getattr(key, "public_key", None)
    return checked_key(key if public is None else public(), algorithm, "keys")


def key_source(issuer: JwtKey, clock: Clock, field: str) -> KeySource:
    """The keys of an issuer. Raises `ConfigError`, also when a file is missing or unfit."""
    if issuer.jwks_file is not None:
        return KeySetFile(issuer.jwks_file, issuer.algorithm, clock, f"{field}.jwks_file")
    if issuer.public_key_file is not None:
        place = f"{field}.public_key_file"
        content = _read_file(issuer.public_key_file, place)
        try:
            key = load_pem_public_key(content)
        except (ValueError, UnsupportedAlgorithm):
            reason = "it holds no public key in PEM format"
            raise _unreadable(issuer.public_key_file, reason, place) from None
        return SingleKey(checked_key(key, issuer.algorithm, place))
    secret = (issuer.secret or "").encode()
    return SingleKey(checked_key(secret, issuer.algorithm, f"{field}.secret"))


def checked_key(key: object, algorithm: Algorithm, field: str) -> VerificationKey:
    """The key, if it is one for the algorithm and strong enough; else a `ConfigError`."""
    fault = f"the key is not for the algorithm {algorithm}"
    if algorithm in SECRET_BYTES:
        if isinstance(key, bytes):
            if len(key) >= SECRET_BYTES[algorithm]:
                return key
            fault = f"a secret of {len(key)} bytes is too short for {algorithm}"
    elif algorithm.startswith(("RS", "PS")):
        if isinstance(key, RSAPublicKey):
            if key.key_size >= MIN_RSA_BITS:
                return key
            fault = f"an RSA key of {key.key_size} bits is too short"
    elif algorithm == "EdDSA":
        if isinstance(key, Ed25519PublicKey | Ed448PublicKey):
            return key
    elif isinstance(key, EllipticCurvePublicKey) and key.curve.name == _CURVES[algorithm]:
        return key
    raise ConfigError(
        fault, hint="Name the algorithm that the issuer signs with, and its key.", field=field
    )


def _is_for(entry: dict[str, Any], algorithm: Algorithm) -> bool:
    """Whether an entry of a set is a key for verifying tokens of the algorithm."""
    return (
        entry.get("kty") == _KEY_TYPES[algorithm[:2]]
        and entry.get("alg", algorithm) == algorithm
        and entry.get("use", "sig") == "sig"
    )


def _read_file(path: Path, field: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_KEY_FILE_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error.strerror or "unknown", field) from None
    if len(content) > MAX_KEY_FILE_BYTES:
        raise _unreadable(path, f"it has more than {MAX_KEY_FILE_BYTES} bytes", field)
    return content


def _unreadable(path: Path, reason: str, field: str) -> ConfigError:
    return ConfigError(
        f"the file {path} cannot be used: {reason}",
        hint="It is what the tokens of this issuer are verified with.",
        field=field,
    )
