"""Receivers check signatures with libraries that others wrote; these must be content with ours."""

from __future__ import annotations

import base64
import json
import pickle
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from tests.services.node import SOURCE, run_script
from tidemark.errors import ConfigError
from tidemark.live.webhooks.signing import Signer, new_secret, secret_key

EVENT_ID = "0f" * 16
PAYLOAD = '{"event_id":"x","data":{"name":"Zoë ☃","amount":"1.50"}}'.encode()


def whsec(size: int) -> str:
    return "whsec_" + base64.b64encode(bytes(range(size))).decode()


def signed(*secrets: str, payload: bytes = PAYLOAD) -> dict[str, str]:
    return Signer(secrets).headers(EVENT_ID, int(time.time()), payload)


@given(st.binary(min_size=24, max_size=64), st.text())
def test_the_python_library_accepts_any_payload(key: bytes, text: str) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    payload = json.dumps({"text": text}, ensure_ascii=False).encode(errors="replace")
    headers = signed(secret, payload=payload)
    assert Webhook(secret).verify(payload, headers) == json.loads(payload)


def test_the_python_library_refuses_a_changed_payload() -> None:
    secret = new_secret()
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(PAYLOAD.replace(b"1.50", b"9.50"), signed(secret))


def test_while_secrets_rotate_each_of_both_is_enough() -> None:
    new, old, foreign = new_secret(), new_secret(), new_secret()
    headers = signed(new, old)
    assert Webhook(new).verify(PAYLOAD, headers) == Webhook(old).verify(PAYLOAD, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(foreign).verify(PAYLOAD, headers)


def test_the_javascript_library_accepts_what_is_signed_and_nothing_else() -> None:
    new, old = new_secret(), new_secret()
    headers = signed(new, old)
    for secret, body, is_good in (
        (new, PAYLOAD, True),
        (old, PAYLOAD, True),
        (new_secret(), PAYLOAD, False),
        (new, PAYLOAD.replace(b"1.50", b"9.50"), False),
    ):
        asked = json.dumps({"secret": secret, "headers": headers, "body": body.decode()})
        ran = run_script(SOURCE / "verify_webhook.mjs", stdin=asked)
        assert ran.returncode == 0, ran.stderr
        said = json.loads(ran.stdout)
        assert said == ({"verified": json.loads(PAYLOAD)} if is_good else said)
        assert ("verified" in said) is is_good


def test_the_headers_are_those_of_the_standard() -> None:
    headers = Signer([whsec(24)]).headers("event-1", 1_700_000_000, b"{}")
    assert headers == {
        "webhook-id": "event-1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": headers["webhook-signature"],
    }
    assert headers["webhook-signature"].startswith("v1,")


@pytest.mark.parametrize("size", [24, 64])
def test_a_key_may_have_24_to_64_bytes(size: int) -> None:
    assert secret_key(whsec(size)) == bytes(range(size))


@pytest.mark.parametrize(
    ("secrets", "field", "says"),
    [
        ([], "webhooks.secrets", "no secret"),
        ([whsec(24)] * 3, "webhooks.secrets", "3 secrets"),
        ([whsec(24), whsec(23)], "webhooks.secrets[1]", "23 bytes"),
        ([whsec(65)], "webhooks.secrets[0]", "65 bytes"),
        ([whsec(32).removeprefix("whsec_")], "webhooks.secrets[0]", "begin with whsec_"),
        (["whsec_not base64 at all!"], "webhooks.secrets[0]", "not base64"),
        (["whsec_ÄÖÜ"], "webhooks.secrets[0]", "not base64"),
        ([""], "webhooks.secrets[0]", "begin with whsec_"),
    ],
)
def test_a_secret_that_cannot_be_used_is_refused_by_name(
    secrets: list[str], field: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        Signer(secrets)
    assert refused.value.field == field
    assert pickle.loads(pickle.dumps(refused.value)).field == field


def test_no_message_repeats_a_secret() -> None:
    with pytest.raises(ConfigError) as refused:
        Signer(["whsec_c2VjcmV0"])
    assert "c2VjcmV0" not in json.dumps(refused.value.as_dict())


def test_a_new_secret_is_long_enough_and_never_the_same() -> None:
    assert len({new_secret() for _ in range(20)}) == 20
    assert len(secret_key(new_secret())) == 32
