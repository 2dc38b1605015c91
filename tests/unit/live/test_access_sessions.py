"""Who is speaking: by an API key or a token, in a header or in the payload of a connection."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.live.signed_tokens import (
    API_KEY,
    NOW_S,
    SECRET,
    StillClock,
    api_key,
    claims,
    config,
    forged,
    issuer,
    signed,
)
from tidemark.config import AuthConfig, Config, JwtKey
from tidemark.config.access_model import SCOPES
from tidemark.errors import AccessDenied
from tidemark.live.access import Gatekeeper, Session, session_from_json, session_to_json


def gatekeeper(*issuers: JwtKey) -> Gatekeeper:
    return Gatekeeper(config(*(issuers or (issuer(),))), StillClock())


def by_header(token: str | bytes, scheme: bytes = b"Bearer") -> dict[bytes, bytes]:
    encoded = token.encode() if isinstance(token, str) else token
    return {b"authorization": scheme + b" " + encoded}


def test_without_keys_and_issuers_everyone_may_do_everything() -> None:
    keeper = Gatekeeper(Config())
    assert keeper.open
    for headers in ({}, by_header("anything"), by_header("a.b.c")):
        session = keeper.authenticate(headers, {"authToken": "x"})
        assert (session.name, session.scopes) == ("anyone", frozenset(SCOPES))
        assert (session.tenants, session.expires_at, session.by_token) == (None, None, False)


def test_an_api_key_brings_its_scopes_and_tenants() -> None:
    keys = [api_key(scopes=["read", "triggers"], tenants=["a", "b"])]
    session = Gatekeeper(config(keys=keys)).authenticate(by_header(API_KEY), None)
    assert session == Session(
        "service", {}, frozenset(["read", "triggers"]), frozenset(["a", "b"]), None
    )


def test_a_token_brings_its_claims_and_its_end() -> None:
    payload = claims(tenant="acme")
    session = gatekeeper().authenticate(by_header(signed(payload)), None)
    end = (NOW_S + 60) * 1_000_000
    assert session == Session("app:ada", payload, frozenset(["read"]), None, end, by_token=True)


def test_no_two_callers_of_different_issuers_have_one_name() -> None:
    other = "another secret that only these tests know"
    names = set()
    for named in ("app", "app:x", "app%3Ax"):
        keeper = gatekeeper(issuer(name=named, secret=other))
        for subject in ("x:ada", "ada", ":", ""):
            session = keeper.authenticate(by_header(signed(claims(sub=subject), other)), None)
            names.add(session.name)
    assert len(names) == 12


def test_a_token_without_a_subject_goes_by_its_issuer() -> None:
    for subject in (None, 7, ["ada"]):
        token = forged({"alg": "HS256"}, claims(sub=subject), SECRET.encode())
        session = gatekeeper().authenticate(by_header(token), None)
        assert session.name == "app"
        assert not session.is_somebody
    assert gatekeeper().authenticate(by_header(signed(claims())), None).is_somebody


@pytest.mark.parametrize(
    "params",
    [
        {"Authorization": f"Bearer {API_KEY}"},
        {"authorization": f"bearer  {API_KEY} "},
        {"headers": {"Authorization": f"Bearer {API_KEY}"}},
        {"headers": {"authorization": f"Bearer {API_KEY}"}},
        {"authToken": API_KEY},
        {"Authorization": 7, "headers": [], "authToken": API_KEY},
    ],
)
def test_a_connection_introduces_itself_in_its_payload(params: dict[str, object]) -> None:
    assert gatekeeper().authenticate({}, params).name == "service"


def test_the_payload_goes_before_the_header() -> None:
    params = {"Authorization": f"Bearer {signed(claims())}"}
    assert gatekeeper().authenticate(by_header(API_KEY), params).name == "app:ada"
    # A wrong one is wrong: nobody falls back on what somebody else put in the header.
    with pytest.raises(AccessDenied):
        gatekeeper().authenticate(by_header(API_KEY), {"authToken": "wrong"})


@pytest.mark.parametrize(
    ("headers", "params"),
    [
        ({}, None),
        ({}, {}),
        ({}, {"Authorization": ""}),
        ({}, {"Authorization": "Bearer"}),
        ({}, {"Authorization": API_KEY}),
        ({}, {"Authorization": ["Bearer", API_KEY]}),
        ({}, {"authToken": ""}),
        ({}, {"authToken": "wrong"}),
        ({}, {"authToken": "\ud800"}),
        ({}, {"headers": {"Authorization": "Basic dTpw"}}),
        ({b"authorization": b""}, None),
        ({b"authorization": b"Bearer "}, None),
        ({b"authorization": b"Bearer \xff\xfe"}, None),
        ({b"authorization": b"Bearer \xff.\xfe."}, None),
        ({b"authorization": b"Basic dTpw"}, None),
        ({b"x-api-key": API_KEY.encode()}, None),
    ],
)
def test_nobody_else_is_let_in(
    headers: dict[bytes, bytes], params: dict[str, object] | None
) -> None:
    with pytest.raises(AccessDenied) as caught:
        gatekeeper().authenticate(headers, params)
    assert caught.value.status == 401


def test_an_api_key_of_other_letters_is_known_by_its_bytes() -> None:
    for key in ("schlüssel", "schlüssel.mit.punkten"):
        keeper = Gatekeeper(config(keys=[api_key(key=key)]))
        assert keeper.authenticate(by_header(key), None).name == "service"
        assert keeper.authenticate({}, {"authToken": key}).name == "service"


def test_issuers_alone_close_the_door_to_those_without_a_token() -> None:
    keeper = Gatekeeper(Config(auth=AuthConfig(jwt=[issuer()])), StillClock())
    assert not keeper.open
    assert keeper.authenticate(by_header(signed(claims())), None).name == "app:ada"
    for headers in ({}, by_header("anything"), by_header("a.b")):
        with pytest.raises(AccessDenied):
            keeper.authenticate(headers, None)


def test_a_token_has_at_most_the_scopes_of_its_issuer() -> None:
    mine = issuer(scopes=["read", "triggers"], scopes_claim="scope")
    for named, expected in [
        ("read triggers introspect admin", {"read", "triggers"}),
        ("triggers", {"triggers"}),
        (["read", "admin"], {"read"}),
        ("readtriggers", set()),
        ("", set()),
        ([], set()),
        ([["read"]], set()),
        ({"read": True}, set()),
        (True, set()),
        (None, set()),
    ]:
        token = forged({"alg": "HS256"}, claims(scope=named), SECRET.encode())
        assert gatekeeper(mine).authenticate(by_header(token), None).scopes == expected
    assert gatekeeper(mine).authenticate(by_header(signed(claims())), None).scopes == frozenset()


def test_a_session_without_the_scope_is_refused() -> None:
    session = gatekeeper().authenticate(by_header(signed(claims())), None)
    session.require("read", "admin")
    with pytest.raises(AccessDenied) as caught:
        session.require("triggers", "admin")
    assert caught.value.status == 403
    assert "triggers or admin" in caught.value.message


def test_a_claim_names_the_tenants() -> None:
    mine = issuer(tenants_claim="org.tenants")
    for named, expected in [
        ("acme", {"acme"}),
        ("acme corp", {"acme corp"}),
        (["a", "b"], {"a", "b"}),
        ([], set()),
        # The star of API keys is a name like any other here.
        ("*", {"*"}),
    ]:
        token = signed(claims(org={"tenants": named}))
        assert gatekeeper(mine).authenticate(by_header(token), None).tenants == expected


@pytest.mark.parametrize("named", [None, 7, True, {"acme": 1}, ["acme", 7], [None], [["acme"]]])
def test_a_token_that_does_not_name_its_tenants_is_refused(named: object) -> None:
    mine = issuer(tenants_claim="tenant")
    token = forged({"alg": "HS256"}, claims(tenant=named), SECRET.encode())
    with pytest.raises(AccessDenied) as caught:
        gatekeeper(mine).authenticate(by_header(token), None)
    assert caught.value.status == 403
    with pytest.raises(AccessDenied):
        gatekeeper(mine).authenticate(by_header(signed(claims())), None)


def test_a_session_survives_being_written_down() -> None:
    deep = {"org": {"ids": [1, 2.5, "x", None, True], "big": 2**63}, "ü": "\u2028"}
    for session in [
        Session("a", {}, frozenset(["read"]), None, None),
        Session("b", deep, frozenset(), frozenset(), 7, by_token=True),
        Session("c", {}, frozenset(["triggers", "read"]), frozenset(["x", "y"]), None),
    ]:
        text = session_to_json(session)
        assert session_from_json(text) == session
        assert session_to_json(session_from_json(text)) == text


def test_a_session_that_lost_a_part_is_not_read_as_a_wider_one() -> None:
    whole = msgspec.json.decode(
        session_to_json(Session("b", {}, frozenset(), frozenset(["x"]), 7, by_token=True))
    )
    for name in whole:
        part = {key: value for key, value in whole.items() if key != name}
        with pytest.raises(msgspec.ValidationError):
            session_from_json(msgspec.json.encode(part).decode())
    with pytest.raises(msgspec.ValidationError):
        session_from_json(msgspec.json.encode({**whole, "more": 1}).decode())


def test_a_scope_that_is_not_known_any_more_is_dropped() -> None:
    text = session_to_json(Session("b", {}, frozenset(["read"]), None, None))
    assert session_from_json(text.replace('"read"', '"read","fly"')).scopes == frozenset(["read"])
