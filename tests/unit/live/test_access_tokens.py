"""Which tokens are believed: signed with the one algorithm of their issuer, in time, for us."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from tests.unit.live.signed_tokens import (
    NOW_S,
    SECRET,
    StillClock,
    claims,
    ec_key,
    ed_key,
    forged,
    issuer,
    jwk,
    public_pem,
    rsa_key,
    signed,
)
from tidemark.config import JwtKey
from tidemark.errors import AccessDenied, ConfigError
from tidemark.live.access.tokens import MAX_TOKEN_CHARACTERS, TokenVerifier, VerifiedToken


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


def verify(token: str, *issuers: JwtKey, clock: StillClock | None = None) -> VerifiedToken:
    return TokenVerifier(issuers or [issuer()], clock or StillClock()).verify(token)


def refused(token: str, *issuers: JwtKey) -> str:
    with pytest.raises(AccessDenied) as caught:
        verify(token, *issuers)
    assert (caught.value.status, caught.value.code) == (401, "unauthorized")
    return caught.value.message


def test_a_signed_token_gives_its_claims() -> None:
    token = verify(signed(claims(tenant="acme", org={"id": 7})))
    assert token.claims == {"sub": "ada", "exp": NOW_S + 60, "tenant": "acme", "org": {"id": 7}}
    assert token.expires_at == (NOW_S + 60) * 1_000_000
    assert token.issuer.name == "app"


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_secrets_sign_with_every_digest(algorithm: Any) -> None:
    assert verify(signed(claims(), SECRET, algorithm), issuer(algorithm=algorithm))


@pytest.mark.parametrize(
    ("algorithm", "make"),
    [("RS256", rsa_key), ("PS512", rsa_key), ("ES256", ec_key), ("EdDSA", ed_key)],
)
def test_public_keys_verify_from_a_file_and_from_a_set(
    tmp_path: Path, algorithm: Any, make: Callable[[], Any]
) -> None:
    key = make()
    pem, key_set = tmp_path / "key.pem", tmp_path / "keys.json"
    pem.write_bytes(public_pem(key))
    key_set.write_text(json.dumps({"keys": [jwk(key, algorithm, kid="one")]}))
    token = signed(claims(), key, algorithm, kid="one")
    assert verify(token, issuer(algorithm=algorithm, public_key_file=pem)).claims["sub"] == "ada"
    assert verify(token, issuer(algorithm=algorithm, jwks_file=key_set)).claims["sub"] == "ada"


def test_a_changed_letter_breaks_the_signature() -> None:
    head, body, signature = signed(claims(tenant="acme")).split(".")
    other = signed(claims(tenant="other")).split(".")[1]
    assert refused(f"{head}.{other}.{signature}")
    assert refused(f"{head}.{body}.{'A' * len(signature)}")
    assert refused(f"{head}.{body}.")


def test_a_token_without_a_signature_is_refused() -> None:
    for name in ("none", "None", "NONE", "nOnE", ""):
        assert refused(forged({"alg": name, "typ": "JWT"}, claims()))
    assert refused(forged({"typ": "JWT"}, claims(), SECRET.encode()))


def test_a_public_key_is_never_a_secret(tmp_path: Path) -> None:
    pem = tmp_path / "key.pem"
    pem.write_bytes(public_pem(rsa_key()))
    mine = issuer(algorithm="RS256", public_key_file=pem)
    for secret in (pem.read_bytes(), pem.read_bytes().strip(), public_pem(rsa_key())):
        assert refused(forged({"alg": "HS256"}, claims(), secret), mine)
        # The header may lie the other way round as well.
        assert refused(forged({"alg": "RS256"}, claims(), secret), mine)


def test_a_key_of_a_set_is_never_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    entry = jwk(rsa_key(), "RS256", kid="one")
    path.write_text(json.dumps({"keys": [entry]}))
    mine = issuer(algorithm="RS256", jwks_file=path)
    for secret in (public_pem(rsa_key()), entry["n"].encode(), json.dumps(entry).encode()):
        assert refused(forged({"alg": "HS256", "kid": "one"}, claims(), secret), mine)


def test_another_algorithm_of_the_same_key_is_refused(tmp_path: Path) -> None:
    pem = tmp_path / "key.pem"
    pem.write_bytes(public_pem(rsa_key()))
    mine = issuer(algorithm="PS256", public_key_file=pem)
    assert refused(signed(claims(), rsa_key(), "RS256"), mine)
    assert refused(signed(claims(), SECRET, "HS384"), issuer(algorithm="HS256"))


def test_a_key_that_the_token_brings_along_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [jwk(rsa_key(), "RS256", kid="one")]}))
    own = jwk(rsa_key(1), "RS256", kid="one")
    token = signed(claims(), rsa_key(1), "RS256", kid="one", jwk=own, jku="https://evil.example")
    assert refused(token, issuer(algorithm="RS256", jwks_file=path))


def test_a_header_that_must_be_understood_and_is_not_refuses() -> None:
    for critical in (["exp"], ["b64"], [], "b64", None):
        header = {"alg": "HS256", "crit": critical, "b64": False}
        assert refused(forged(header, claims(), SECRET.encode()))


@pytest.mark.parametrize(
    "token",
    [
        ".",
        "..",
        "a.b.c",
        "é.é.é",
        "e30.e30.",
        "W10.W10.W10",
        "\udce9.a.b",
        base64.urlsafe_b64encode(b"[" * 6000).decode() + ".e30.e30",
        base64.urlsafe_b64encode(b'{"alg":"HS256","kid":7}').decode().rstrip("=") + ".e30.e30",
        base64.urlsafe_b64encode(b'{"alg":["HS256"]}').decode().rstrip("=") + ".e30.e30",
        "a" * MAX_TOKEN_CHARACTERS + ".b.c",
    ],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    assert refused(token)


@pytest.mark.parametrize("payload", [b"[]", b"null", b'"text"', b"{", b'{"exp":NaN}', b"[" * 5000])
def test_a_signed_body_that_is_no_object_is_refused(payload: bytes) -> None:
    assert refused(jwt.api_jws.encode(payload, SECRET, "HS256"))


def test_a_token_ends_with_its_last_moment(clock: StillClock) -> None:
    token = signed(claims(exp=NOW_S + 10))
    verifier = TokenVerifier([issuer()], clock)
    clock.wall = (NOW_S + 10) * 1_000_000 - 1
    assert verifier.verify(token).expires_at == (NOW_S + 10) * 1_000_000
    clock.wall += 1
    with pytest.raises(AccessDenied, match="expired"):
        verifier.verify(token)


def test_the_leeway_moves_both_ends(clock: StillClock) -> None:
    lenient = TokenVerifier([issuer(leeway_us=5_000_000)], clock)
    assert lenient.verify(signed(claims(exp=NOW_S - 4))).expires_at == (NOW_S + 1) * 1_000_000
    assert lenient.verify(signed(claims(nbf=NOW_S + 5)))
    with pytest.raises(AccessDenied, match="expired"):
        lenient.verify(signed(claims(exp=NOW_S - 5)))
    with pytest.raises(AccessDenied, match="not valid yet"):
        lenient.verify(signed(claims(nbf=NOW_S + 6)))


def test_a_token_is_not_valid_before_its_time() -> None:
    assert "not valid yet" in refused(signed(claims(nbf=NOW_S + 1)))
    assert verify(signed(claims(nbf=NOW_S)))


def test_a_token_that_never_expires_is_refused_unless_allowed() -> None:
    token = signed({"sub": "ada"})
    assert "never expires" in refused(token)
    assert verify(token, issuer(require_expiry=False)).expires_at is None


@pytest.mark.parametrize("moment", [None, "", "9999999999", True, [NOW_S], {}, 1e300, 10**30])
@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
def test_a_time_that_is_none_refuses(name: str, moment: object) -> None:
    payload = {**claims(), name: moment}
    lenient = issuer(require_expiry=False)
    assert "not a time" in refused(forged({"alg": "HS256"}, payload, SECRET.encode()), lenient)


def test_fractions_of_seconds_count() -> None:
    assert verify(signed(claims(exp=NOW_S + 0.5))).expires_at == NOW_S * 1_000_000 + 500_000


def test_the_issuer_is_the_one_that_is_configured() -> None:
    mine = issuer(issuer="https://id.example.com")
    assert verify(signed(claims(iss="https://id.example.com")), mine)
    for wrong in ("https://id.example.com/", "", None, ["https://id.example.com"]):
        payload = claims(iss=wrong)
        token = forged({"alg": "HS256"}, payload, SECRET.encode())
        assert "another issuer" in refused(token, mine)
    assert "another issuer" in refused(signed(claims()), mine)


def test_the_audience_is_among_those_of_the_token() -> None:
    mine = issuer(audience="tidemark")
    assert verify(signed(claims(aud="tidemark")), mine)
    assert verify(signed(claims(aud=["other", "tidemark"])), mine)
    for wrong in ("other", ["other"], [], "", "tidemark2", {"tidemark": 1}, [["tidemark"]]):
        token = forged({"alg": "HS256"}, claims(aud=wrong), SECRET.encode())
        assert "meant for others" in refused(token, mine)
    assert "meant for others" in refused(signed(claims()), mine)


def test_a_token_for_others_is_refused_also_without_an_audience_of_our_own() -> None:
    assert "meant for others" in refused(signed(claims(aud="other")))
    assert verify(forged({"alg": "HS256"}, claims(aud=[]), SECRET.encode()))


def test_of_several_issuers_the_one_that_signed_decides() -> None:
    first = issuer(name="first", audience="one")
    second = issuer(name="second", audience="two")
    third = issuer(name="third", secret=SECRET[::-1])
    everyone = (first, second, third)
    assert verify(signed(claims(aud="two")), *everyone).issuer.name == "second"
    assert verify(signed(claims(), SECRET[::-1]), *everyone).issuer.name == "third"
    assert "meant for others" in refused(signed(claims(aud="three")), *everyone)
    assert "expired" in refused(signed(claims(exp=NOW_S - 1), SECRET[::-1]), *everyone)


def write_set(path: Path, *keys: dict[str, Any]) -> None:
    path.write_text(json.dumps({"keys": keys}))
    # Two writes within one tick of the file system's clock have the same time.
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def test_an_unknown_kid_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    write_set(path, jwk(rsa_key(), "RS256", kid="one"), jwk(rsa_key(1), "RS256", kid="two"))
    mine = issuer(algorithm="RS256", jwks_file=path)
    assert verify(signed(claims(), rsa_key(1), "RS256", kid="two"), mine)
    assert refused(signed(claims(), rsa_key(), "RS256", kid="three"), mine)
    assert refused(signed(claims(), rsa_key(), "RS256", kid="two"), mine)


def test_a_token_without_kid_needs_a_set_with_one_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    mine = issuer(algorithm="RS256", jwks_file=path)
    token = signed(claims(), rsa_key(), "RS256")
    write_set(path, jwk(rsa_key(), "RS256", kid="one"))
    assert verify(token, mine)
    write_set(path, jwk(rsa_key(), "RS256", kid="one"), jwk(rsa_key(1), "RS256", kid="two"))
    assert refused(token, mine)


def test_a_kid_that_stands_twice_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    write_set(path, jwk(rsa_key(), "RS256", kid="one"), jwk(rsa_key(1), "RS256", kid="one"))
    with pytest.raises(ConfigError, match="two keys have the kid 'one'") as caught:
        TokenVerifier([issuer(algorithm="RS256", jwks_file=path)], StillClock())
    assert caught.value.field == "auth.jwt[0].jwks_file"


def test_keys_for_other_purposes_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    write_set(
        path,
        jwk(rsa_key(1), "RS256", kid="one", use="enc"),
        jwk(rsa_key(1), "RS256", kid="one", alg="PS256"),
        jwk(ec_key(), "ES256", kid="one"),
        {"kty": "oct", "kid": "one", "k": "c2VjcmV0"},
        {"kty": "unheard-of"},
        jwk(rsa_key(), "RS256", kid="one", alg="RS256", use="sig"),
    )
    mine = issuer(algorithm="RS256", jwks_file=path)
    assert verify(signed(claims(), rsa_key(), "RS256", kid="one"), mine)
    assert refused(signed(claims(), rsa_key(1), "RS256", kid="one"), mine)


def test_a_changed_set_is_read_again_once_a_second(tmp_path: Path, clock: StillClock) -> None:
    path = tmp_path / "keys.json"
    write_set(path, jwk(rsa_key(), "RS256", kid="one"))
    verifier = TokenVerifier([issuer(algorithm="RS256", jwks_file=path)], clock)
    old = signed(claims(), rsa_key(), "RS256", kid="one")
    new = signed(claims(), rsa_key(1), "RS256", kid="two")
    write_set(path, jwk(rsa_key(1), "RS256", kid="two"))
    clock.elapsed += 999_999
    with pytest.raises(AccessDenied):
        verifier.verify(new)
    assert verifier.verify(old)
    clock.elapsed += 1
    assert verifier.verify(new)
    with pytest.raises(AccessDenied):
        verifier.verify(old)


def test_a_set_that_cannot_be_read_again_leaves_the_keys_as_they_were(
    tmp_path: Path, clock: StillClock, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.json"
    write_set(path, jwk(rsa_key(), "RS256", kid="one"))
    verifier = TokenVerifier([issuer(algorithm="RS256", jwks_file=path)], clock)
    token = signed(claims(), rsa_key(), "RS256", kid="one")
    for broken in (
        lambda: path.write_text("{"),
        lambda: path.write_text("{}"),
        path.unlink,
    ):
        broken()
        clock.elapsed += 1_000_000
        assert verifier.verify(token)
        assert "stay as they were" in caplog.text
        caplog.clear()
    write_set(path, jwk(rsa_key(1), "RS256", kid="one"))
    clock.elapsed += 1_000_000
    with pytest.raises(AccessDenied):
        verifier.verify(token)


UNFIT: dict[str, Callable[[], dict[str, Any]]] = {
    "another curve": lambda: jwk(ec.generate_private_key(ec.SECP384R1()), "ES384"),
    "X25519": lambda: {"kty": "OKP", "crv": "X25519", "x": "A" * 43},
    "a short RSA key": lambda: jwk(
        rsa.generate_private_key(public_exponent=65537, key_size=1024), "RS256"
    ),
    "an unknown type": lambda: {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA"},
    "for encryption": lambda: jwk(rsa_key(1), "RS256", use="enc"),
    "no numbers": lambda: {"kty": "RSA", "n": 1, "e": [2]},
    "half an EC key": lambda: {"kty": "EC", "crv": "P-256", "x": "AAAA"},
    "a name that is none": lambda: jwk(rsa_key(1), "RS256", kid=7),
}


@pytest.mark.parametrize("unfit", UNFIT)
@pytest.mark.parametrize(
    ("algorithm", "key"), [("RS256", rsa_key), ("ES256", ec_key), ("EdDSA", ed_key)]
)
def test_one_unfit_entry_of_a_set_keeps_no_other_from_being_used(
    tmp_path: Path, algorithm: Any, key: Callable[[], Any], unfit: str
) -> None:
    path = tmp_path / "keys.json"
    write_set(path, {"kid": "odd", **UNFIT[unfit]()}, jwk(key(), algorithm, kid="one"))
    token = signed(claims(), key(), algorithm, kid="one")
    assert verify(token, issuer(algorithm=algorithm, jwks_file=path)).claims["sub"] == "ada"


@pytest.mark.parametrize("unfit", UNFIT)
def test_a_key_that_was_taken_from_a_set_is_refused_whatever_else_the_set_has(
    tmp_path: Path, clock: StillClock, caplog: pytest.LogCaptureFixture, unfit: str
) -> None:
    path = tmp_path / "keys.json"
    write_set(path, jwk(rsa_key(), "RS256", kid="one"), jwk(rsa_key(1), "RS256", kid="two"))
    verifier = TokenVerifier([issuer(algorithm="RS256", jwks_file=path)], clock)
    token = signed(claims(), rsa_key(), "RS256", kid="one")
    assert verifier.verify(token)
    write_set(path, {"kid": "odd", **UNFIT[unfit]()}, jwk(rsa_key(1), "RS256", kid="two"))
    clock.elapsed += 1_000_000
    with pytest.raises(AccessDenied):
        verifier.verify(token)
    assert verifier.verify(signed(claims(), rsa_key(1), "RS256", kid="two"))


@pytest.mark.parametrize("left", ["nothing", "an unfit key", "two keys of one name"])
def test_a_set_that_has_no_usable_key_any_more_accepts_no_token(
    tmp_path: Path, clock: StillClock, caplog: pytest.LogCaptureFixture, left: str
) -> None:
    path = tmp_path / "keys.json"
    write_set(path, jwk(rsa_key(), "RS256", kid="one"))
    verifier = TokenVerifier([issuer(algorithm="RS256", jwks_file=path)], clock)
    token = signed(claims(), rsa_key(), "RS256", kid="one")
    entries: dict[str, list[dict[str, Any]]] = {
        "nothing": [],
        "an unfit key": [UNFIT["a short RSA key"]()],
        "two keys of one name": [jwk(rsa_key(n), "RS256", kid="one") for n in (0, 1)],
    }
    write_set(path, *entries[left])
    clock.elapsed += 1_000_000
    with pytest.raises(AccessDenied):
        verifier.verify(token)
    assert "tokens are refused because of" in caplog.text
    write_set(path, jwk(rsa_key(), "RS256", kid="one"))
    clock.elapsed += 1_000_000
    assert verifier.verify(token)


def private_pem(key: Any) -> bytes:
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


@pytest.mark.parametrize(
    ("algorithm", "holds"),
    [
        ("RS256", "no key"),
        ("RS256", "nothing"),
        ("RS256", "P-256"),
        ("ES256", "RSA"),
        ("ES384", "P-256"),
        ("EdDSA", "P-256"),
        ("ES256", "P-384"),
        ("RS256", "RSA of 1024 bits"),
        ("RS256", "a private key"),
        ("HS256", "RSA"),
    ],
)
def test_a_file_without_a_key_for_the_algorithm_is_refused_at_the_start(
    tmp_path: Path, algorithm: Any, holds: str
) -> None:
    contents: dict[str, Callable[[], bytes]] = {
        "no key": lambda: b"no key",
        "nothing": lambda: b"",
        "P-256": lambda: public_pem(ec_key()),
        "P-384": lambda: public_pem(ec.generate_private_key(ec.SECP384R1())),
        "RSA": lambda: public_pem(rsa_key()),
        "RSA of 1024 bits": lambda: public_pem(
            rsa.generate_private_key(public_exponent=65537, key_size=1024)
        ),
        "a private key": lambda: private_pem(rsa_key()),
    }
    pem = tmp_path / "key.pem"
    pem.write_bytes(contents[holds]())
    with pytest.raises(ConfigError) as caught:
        TokenVerifier([issuer(algorithm=algorithm, public_key_file=pem)], StillClock())
    assert caught.value.field == "auth.jwt[0].public_key_file"


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"keys": {}}', '{"keys": []}', '{"keys": [7]}', "[" * 100_000],
)
def test_a_set_without_keys_is_refused_at_the_start(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="cannot be used"):
        TokenVerifier([issuer(algorithm="RS256", jwks_file=path)], StillClock())


def test_a_key_of_a_set_that_cannot_be_read_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    for entry in ({"kty": "RSA", "kid": "one"}, {"kty": "RSA", "n": 1, "e": 2}):
        path.write_text(json.dumps({"keys": [entry]}))
        with pytest.raises(ConfigError, match="a key in it cannot be read"):
            TokenVerifier([issuer(algorithm="RS256", jwks_file=path)], StillClock())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.json cannot be used: No such file"):
        TokenVerifier([issuer(algorithm="RS256", jwks_file=tmp_path / "gone.json")], StillClock())


def test_a_secret_that_python_code_made_too_short_is_refused() -> None:
    for settings in ({"secret": "short"}, {"algorithm": "HS512", "secret": SECRET[:63]}):
        with pytest.raises(ConfigError, match="too short"):
            TokenVerifier([issuer(**settings)], StillClock())


def test_no_refusal_repeats_what_the_token_holds() -> None:
    token = signed(claims(exp=NOW_S - 1, iss="https://private.example", name="private"))
    assert "private" not in refused(token, issuer(issuer="https://id.example.com"))
    assert SECRET not in refused(token)
