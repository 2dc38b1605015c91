"""The receivers in `docs/howto/webhooks.md`, run as they stand there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from tests.services.node import node_command, node_project
from tests.services.ports import free_port
from tidemark.clock import SystemClock
from tidemark.config.live_model import WebhooksConfig
from tidemark.live.webhooks.addresses import Allowance
from tidemark.live.webhooks.outbox import Delivery
from tidemark.live.webhooks.schedule import Answer, Result
from tidemark.live.webhooks.sender import Sender
from tidemark.live.webhooks.signing import Signer, new_secret

PAGE = (Path(__file__).parents[2] / "docs/howto/webhooks.md").read_text()
OLD, NEW = new_secret(), new_secret()


def example(language: str) -> str:
    [code] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(code)


def test_the_settings_of_the_page_are_settings() -> None:
    examples = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    for text in examples:
        config = WebhooksConfig.model_validate(yaml.safe_load(text)["webhooks"])
        assert Signer(config.secrets or [NEW])
        assert Allowance(config.allow)


@asynccontextmanager
async def running(
    command: list[str], directory: Path, port: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    env = {**os.environ, "WEBHOOK_SECRET": NEW, "PORT": str(port), "PYTHONUNBUFFERED": "1"}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=directory, env=env, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(30):
            while not await is_open(port):
                assert process.returncode is None
                await asyncio.sleep(0.05)
        yield process
    finally:
        process.kill()
        await process.communicate()


async def is_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def send(port: int, *secrets: str, number: int) -> Result:
    event_id = f"{number:032x}"
    event = {"event_id": event_id, "event_type": "MATCH", "data": {"name": f"Zoë {number}"}}
    payload = json.dumps(event, ensure_ascii=False).encode()
    url = f"http://127.0.0.1:{port}/hook"
    delivery = Delivery(1, event_id, "t", url, "k", payload, 0, None, 0)
    async with Sender(
        Signer(secrets), SystemClock(), allow=Allowance(["127.0.0.1"]), timeout_s=10
    ) as sender:
        return await sender.send(delivery)


async def send_all(port: int) -> None:
    """Two events, one of them twice and by both secrets, and one that nobody has signed."""
    assert await send(port, NEW, number=1) == Answer(204)
    assert await send(port, NEW, OLD, number=1) == Answer(204)
    assert await send(port, OLD, NEW, number=2) == Answer(204)
    assert await send(port, OLD, number=3) == Answer(401)


async def test_the_receiver_in_python_keeps_each_event_once(tmp_path: Path) -> None:
    (tmp_path / "receiver.py").write_text(example("python"))
    port = free_port()
    async with running([sys.executable, "receiver.py"], tmp_path, port):
        await send_all(port)
    connection = sqlite3.connect(tmp_path / "inbox.db")
    kept = connection.execute("SELECT event_id, event FROM inbox ORDER BY 1").fetchall()
    connection.close()
    assert [int(event_id, 16) for event_id, _ in kept] == [1, 2]
    assert [json.loads(event)["data"]["name"] for _, event in kept] == ["Zoë 1", "Zoë 2"]


async def test_the_receiver_in_javascript_acts_on_each_event_once(tmp_path: Path) -> None:
    script = tmp_path / "receiver.mjs"
    script.write_text(example("javascript"))
    port = free_port()
    async with running(node_command(script), node_project(), port) as receiver:
        await send_all(port)
        assert receiver.stdout is not None
        async with asyncio.timeout(10):
            said = [await receiver.stdout.readline() for _ in range(2)]
    assert [int(line.split()[1], 16) for line in said] == [1, 2]
