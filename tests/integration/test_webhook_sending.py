"""One attempt against receivers of every kind: it ends in time, with a result, whatever they do."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from standardwebhooks import Webhook

from tests.services.ports import free_port
from tests.services.webhook_receiver import (
    Received,
    WebhookReceiver,
    answering,
    reply,
    silent,
)
from tidemark import __version__
from tidemark.clock import SystemClock
from tidemark.live.webhooks.addresses import Allowance
from tidemark.live.webhooks.outbox import Delivery
from tidemark.live.webhooks.schedule import Answer, NoAnswer, Outcome, judge
from tidemark.live.webhooks.sender import MAX_EXCERPT_CHARACTERS, Sender
from tidemark.live.webhooks.signing import Signer, new_secret
from tidemark.live.webhooks.targets import check_url

SECRET = new_secret()
LOCAL = Allowance(["127.0.0.0/8"])
TIMEOUT_S = 1.0
PAYLOAD = '{"event_id":"e1","data":{"name":"Zoë"}}'.encode()


def to(url: str) -> Delivery:
    return Delivery(1, "e1", "t", url, "k", PAYLOAD, 0, None, 0)


@pytest.fixture
async def receiver() -> AsyncIterator[WebhookReceiver]:
    async with WebhookReceiver() as running:
        yield running


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    async with Sender(Signer([SECRET]), SystemClock(), allow=LOCAL, timeout_s=TIMEOUT_S) as ready:
        yield ready


async def test_a_receiver_can_verify_what_it_gets(
    receiver: WebhookReceiver, sender: Sender
) -> None:
    assert await sender.send(to(receiver.url + "?a=%20b")) == Answer(200)
    (request,) = receiver.received
    assert Webhook(SECRET).verify(request.body, request.headers) == json.loads(PAYLOAD)
    assert request.body == PAYLOAD
    assert request.path == "/hook?a=%20b"
    assert request.headers["webhook-id"] == "e1"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"] == f"tidemark-webhooks/{__version__}"


async def test_connections_are_kept(receiver: WebhookReceiver, sender: Sender) -> None:
    for _ in range(5):
        assert await sender.send(to(receiver.url)) == Answer(200)
    assert receiver.connections == 1


@pytest.mark.parametrize("status", [204, 301, 400, 410, 500])
async def test_the_status_is_what_was_answered(
    receiver: WebhookReceiver, sender: Sender, status: int
) -> None:
    receiver.behave = answering(status)
    assert await sender.send(to(receiver.url)) == Answer(status)


async def test_a_redirect_is_not_followed(receiver: WebhookReceiver, sender: Sender) -> None:
    async with WebhookReceiver() as elsewhere:
        receiver.behave = answering(307, location=elsewhere.url)
        assert await sender.send(to(receiver.url)) == Answer(307)
        assert elsewhere.received == []


async def test_retry_after_is_read(receiver: WebhookReceiver, sender: Sender) -> None:
    receiver.behave = answering(429, b"slow down", retry_after="7")
    assert await sender.send(to(receiver.url)) == Answer(429, "slow down", 7_000_000)


async def test_the_beginning_of_a_huge_body_is_enough(
    receiver: WebhookReceiver, sender: Sender
) -> None:
    async def flood(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 Oh\r\ncontent-length: 100000000000\r\n\r\n")
        while True:
            writer.write(b"<b>no\x00</b>\n" * 6_000)
            await writer.drain()

    receiver.behave = flood
    started = time.monotonic()
    answer = await sender.send(to(receiver.url))
    assert isinstance(answer, Answer)
    assert answer.status == 500
    assert answer.excerpt.startswith("<b>no </b> <b>no </b>")
    assert len(answer.excerpt) <= MAX_EXCERPT_CHARACTERS
    assert time.monotonic() - started < TIMEOUT_S


async def test_a_compressed_body_is_not_unpacked(receiver: WebhookReceiver, sender: Sender) -> None:
    receiver.behave = answering(500, gzip.compress(bytes(10**6)), content_encoding="gzip")
    answer = await sender.send(to(receiver.url))
    assert isinstance(answer, Answer)
    assert (answer.status, receiver.received[0].headers["accept-encoding"]) == (500, "identity")


async def test_a_body_that_drips_does_not_change_the_status(
    receiver: WebhookReceiver, sender: Sender
) -> None:
    async def drip(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1\r\nx\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)

    receiver.behave = drip
    started = time.monotonic()
    result = await sender.send(to(receiver.url))
    assert judge(result).outcome is Outcome.DELIVERED
    assert time.monotonic() - started < TIMEOUT_S + 1


async def test_a_silent_receiver_is_left_at_the_timeout(
    receiver: WebhookReceiver, sender: Sender
) -> None:
    receiver.behave = silent()
    started = time.monotonic()
    assert await sender.send(to(receiver.url)) == NoAnswer("no answer within 1 s")
    assert time.monotonic() - started < TIMEOUT_S + 1


@pytest.mark.parametrize("drop", [b"x", b"HTTP/1.1 100 Continue\r\n\r\n", b"a: b\r\n"])
async def test_a_receiver_that_drips_something_else_is_left_at_the_timeout(
    receiver: WebhookReceiver, sender: Sender, drop: bytes
) -> None:
    async def drip(request: Received, writer: asyncio.StreamWriter) -> None:
        if drop.startswith(b"a"):
            writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(0.05)

    receiver.behave = drip
    started = time.monotonic()
    assert isinstance(await sender.send(to(receiver.url)), NoAnswer)
    assert time.monotonic() - started < TIMEOUT_S + 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\xff\x00\xff" * 100 + b"\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
        b"",
    ],
    ids=["bytes", "ssh", "status", "length", "lengths", "header", "nothing"],
)
async def test_garbage_is_no_answer(
    receiver: WebhookReceiver, sender: Sender, garbage: bytes
) -> None:
    async def babble(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(garbage)
        await writer.drain()
        writer.close()

    receiver.behave = babble
    result = await sender.send(to(receiver.url))
    assert isinstance(result, NoAnswer)
    assert result.error.isprintable()
    assert 0 < len(result.error) <= MAX_EXCERPT_CHARACTERS
    # It was not a kept connection, so nothing is sent again behind the schedule's back.
    assert len(receiver.received) == 1


async def test_a_kept_connection_that_the_receiver_closed_is_no_failure(
    receiver: WebhookReceiver, sender: Sender
) -> None:
    async def hang_up_on_the_second(request: Received, writer: asyncio.StreamWriter) -> None:
        first_here = [r.connection for r in receiver.received].count(request.connection) == 1
        if first_here:
            writer.write(reply(200))
        else:
            writer.close()

    receiver.behave = hang_up_on_the_second
    assert await sender.send(to(receiver.url)) == Answer(200)
    assert await sender.send(to(receiver.url)) == Answer(200)
    assert receiver.connections == 2


async def test_a_refused_connection_says_so(sender: Sender) -> None:
    result = await sender.send(to(f"http://127.0.0.1:{free_port()}/"))
    assert isinstance(result, NoAnswer)
    assert "Cannot connect to host" in result.error


async def test_plain_http_on_a_tls_port_is_no_answer(
    receiver: WebhookReceiver, sender: Sender
) -> None:
    result = await sender.send(to(receiver.url.replace("http:", "https:")))
    assert isinstance(result, NoAnswer)
    assert receiver.received == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/", "http://[::ffff:127.0.0.1]:{port}/"])
async def test_a_private_address_is_refused_without_a_connection(
    receiver: WebhookReceiver, url: str
) -> None:
    async with Sender(Signer([SECRET]), SystemClock(), timeout_s=TIMEOUT_S) as sender:
        result = await sender.send(to(url.format(port=receiver.port)))
    assert isinstance(result, NoAnswer)
    assert "is not public: loopback" in result.error
    assert receiver.connections == 0


class Rebinding(AbstractResolver):
    """A name server in the hands of an attacker: public when asked first, private from then on."""

    def __init__(self) -> None:
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.asked += 1
        address = "93.184.216.34" if self.asked == 1 else "127.0.0.1"
        return [
            ResolveResult(
                hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0
            )
        ]

    async def close(self) -> None:
        pass


async def test_a_name_that_turns_private_after_it_was_checked_is_refused_at_connect(
    receiver: WebhookReceiver,
) -> None:
    resolver = Rebinding()
    url = f"http://rebinding.example:{receiver.port}/"
    assert check_url(url, Allowance()).raw_host == "rebinding.example"
    assert (await resolver.resolve("rebinding.example"))[0]["host"] == "93.184.216.34"
    async with Sender(
        Signer([SECRET]), SystemClock(), timeout_s=TIMEOUT_S, resolver=resolver
    ) as sender:
        result = await sender.send(to(url))
    assert isinstance(result, NoAnswer)
    assert "rebinding.example does not resolve to a public address" in result.error
    assert "127.0.0.1" not in result.error
    assert "webhooks.allow" in result.error
    assert receiver.connections == 0


async def test_a_proxy_of_the_environment_is_not_used(
    receiver: WebhookReceiver, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with WebhookReceiver(answering(502)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert await sender.send(to(receiver.url)) == Answer(200)
        assert proxy.received == []


async def test_names_that_do_not_resolve_keep_no_other_waiting(
    receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    ask = socket.getaddrinfo

    def hang(host: str, *arguments: Any, **options: Any) -> Any:
        if host.endswith(".example"):
            released.wait()
        return ask("localhost" if host == "hooks.internal" else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    allow = Allowance(["hooks.internal"])
    async with Sender(Signer([SECRET]), SystemClock(), allow=allow, timeout_s=5) as sender:
        stuck = [
            asyncio.create_task(sender.send(to(f"http://{number}.stuck.example/")))
            for number in range(40)
        ]
        try:
            await asyncio.sleep(0.1)
            started = time.monotonic()
            good = await sender.send(to(f"http://hooks.internal:{receiver.port}/"))
            assert good == Answer(200)
            assert time.monotonic() - started < 2
            # The loop's own threads are free, too.
            await asyncio.wait_for(asyncio.to_thread(time.monotonic), 2)
        finally:
            released.set()
            for task in stuck:
                task.cancel()
            await asyncio.gather(*stuck, return_exceptions=True)


async def test_a_name_that_does_not_exist_says_so(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(host: str, *arguments: Any, **options: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    result = await sender.send(to("http://no-such-name.invalid/"))
    assert isinstance(result, NoAnswer)
    assert "no-such-name.invalid" in result.error
    assert "Name or service not known" in result.error
