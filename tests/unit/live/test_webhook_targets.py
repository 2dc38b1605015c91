"""A webhook is a request that strangers make us send: it must not reach what they cannot reach."""

from __future__ import annotations

import json
import pickle
import socket
from ipaddress import ip_address

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from hypothesis import given
from hypothesis import strategies as st

from tidemark.errors import ConfigError
from tidemark.live.errors import WebhookRefused
from tidemark.live.webhooks.addresses import Allowance, why_not_public
from tidemark.live.webhooks.targets import GuardedResolver, check_url, host_of

NOTHING = Allowance()


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com/hooks?id=1&x=%20",
        "http://example.com:8080/",
        "https://93.184.216.34/",
        "https://[2606:4700:4700::1111]/",
        "https://[64:ff9b::5db8:d822]/",
        "https://[::ffff:93.184.216.34]/",
        "https://bücher.example/",
        "HTTPS://EXAMPLE.COM/",
        "https://under_score.example/",
    ],
)
def test_a_public_target_is_taken(url: str) -> None:
    check_url(url, NOTHING)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://127.0.0.1./",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://127.0.0.0x1/",
        "http://0/",
        "http://0.0.0.0/",
        "http://10.1.2.3/",
        "http://100.64.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://172.16.0.1/",
        "http://172.31.255.255/",
        "http://192.168.1.1/",
        "http://192.0.0.192/",
        "http://198.18.0.1/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://[::]/",
        "http://[::1]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://[::127.0.0.1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::ffff:0:127.0.0.1]/",
        "http://[64:ff9b::127.0.0.1]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[64:ff9b:1::1]/",
        "http://[2002:7f00:1::]/",
        "http://[2001::1]/",
        "http://[2001:db8::1]/",
        "http://[fc00::1]/",
        "http://[fd00:ec2::254]/",
        "http://[fe80::1]/",
        "http://[fe80::1%25eth0]/",
        "http://[fec0::1]/",
        "http://[ff02::1]/",
        "http://localhost/",
        "http://LOCALHOST:80/",
        "http://localhost./",
        "http://a.localhost/",
        "http://①②⑦.⓪.⓪.①/",
        "http://127。0。0。1/",
    ],
)
def test_an_address_that_is_not_public_is_refused_however_it_is_spelled(url: str) -> None:
    with pytest.raises(WebhookRefused) as refused:
        check_url(url, NOTHING)
    assert refused.value.code == "webhook_refused"
    assert refused.value.field == "webhook"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com/",
        "/hooks",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "javascript:alert(1)",
        "http:example.com",
        "http://",
        "http:///path",
        "http://user@example.com/",
        "http://user:password@example.com/",
        "http://example.com@127.0.0.1/",
        "http://example.com/#part",
        "http://example.com#@127.0.0.1/",
        "http://example.com\\@127.0.0.1/",
        "http://exam ple.com/",
        "http://example.com/\r\nHost: other",
        "http://example.com/\x00",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:port/",
        "http://[::1/",
        "http://[not-an-address]/",
        "http://exa%6dple.com/",
        "https://example.com/" + "a" * 2_048,
    ],
)
def test_what_is_no_proper_url_is_refused(url: str) -> None:
    with pytest.raises(WebhookRefused):
        check_url(url, NOTHING)


@given(st.text(max_size=60))
def test_any_text_is_taken_or_refused_and_breaks_nothing(text: str) -> None:
    for url in (text, f"http://{text}/", f"http://example.com{text}"):
        try:
            check_url(url, NOTHING)
        except WebhookRefused:
            continue
        assert host_of(url)


@given(st.ip_addresses())
def test_an_address_is_taken_as_a_literal_only_if_it_is_public(address: object) -> None:
    host = f"[{address}]" if ":" in str(address) else str(address)
    is_taken = True
    try:
        check_url(f"https://{host}/", NOTHING)
    except WebhookRefused:
        is_taken = False
    public = why_not_public(ip_address(str(address))) is None
    assert is_taken == public
    # Ours is the stricter list: nothing passes that the standard library calls private.
    assert not (public and ip_address(str(address)).is_private)


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("hooks.internal", "http://hooks.internal/"),
        ("Hooks.Internal", "http://HOOKS.internal./"),
        ("localhost", "http://localhost:9000/"),
        ("127.0.0.1", "http://127.0.0.1/"),
        ("10.0.0.0/8", "http://10.255.0.1/"),
        ("10.0.0.0/8", "http://[::ffff:10.0.0.1]/"),
        ("fd00::/8", "http://[fd00::1]/"),
    ],
)
def test_what_the_configuration_allows_is_taken(entry: str, url: str) -> None:
    check_url(url, Allowance([entry]))
    with pytest.raises(WebhookRefused):
        check_url("http://192.168.0.1/", Allowance([entry]))


def test_an_allowed_network_allows_no_odd_spelling() -> None:
    with pytest.raises(WebhookRefused):
        check_url("http://2130706433/", Allowance(["127.0.0.0/8"]))


@pytest.mark.parametrize(
    "entry", ["10.0.0.1/8", "10.0.0", "http://a.example", "a b", "*.example", "", "300.1.1.1", "/8"]
)
def test_an_allowance_that_cannot_be_read_is_refused_by_name(entry: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Allowance(["a.example", entry])
    assert refused.value.field == "webhooks.allow[1]"


class Names(AbstractResolver):
    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=a, port=port, family=family, proto=0, flags=0)
            for a in self.addresses
        ]

    async def close(self) -> None:
        pass


async def test_a_name_is_given_only_its_public_addresses() -> None:
    resolver = GuardedResolver(Names("10.0.0.1", "93.184.216.34", "::1"), NOTHING)
    assert [found["host"] for found in await resolver.resolve("a.example", 80)] == ["93.184.216.34"]


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "fe80::1%eth0", "nonsense"]
)
async def test_a_name_with_no_public_address_is_refused_and_only_the_log_says_what_it_has(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(WebhookRefused, match=r"a\.example does not resolve to") as refused:
        await GuardedResolver(Names(address), NOTHING).resolve("a.example", 80)
    assert address not in json.dumps(refused.value.as_dict())
    assert f"a.example, which resolves to {address}" in caplog.text
    assert pickle.loads(pickle.dumps(refused.value)).code == "webhook_refused"


async def test_an_allowed_name_and_an_allowed_network_may_be_private() -> None:
    by_name = GuardedResolver(Names("10.0.0.1"), Allowance(["a.example"]))
    by_network = GuardedResolver(Names("10.0.0.1"), Allowance(["10.0.0.0/24"]))
    for resolver in (by_name, by_network):
        assert len(await resolver.resolve("a.example", 80)) == 1
    with pytest.raises(WebhookRefused):
        await by_name.resolve("b.example", 80)


def test_a_host_is_its_name_and_port() -> None:
    assert host_of("https://A.example/x") == host_of("https://a.example:443/y") == "a.example:443"
    assert host_of("http://a.example/x") == "a.example:80"
    assert host_of("http://[::1/") == "http://[::1/"
