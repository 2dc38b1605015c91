"""What happens to buffered events when a process ends, forks or is interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest

from tests.unit.client_peer import Peer, wait_until

WAIT_S = 30
PREAMBLE = """
import asyncio, multiprocessing, os, sys
from tidemark.client import AsyncClient, Client

URL = sys.argv[1]

def usage(number):
    return {"tenantId": "t1", "metric": "m", "customerRef": f"c{number}", "quantity": number}

"""


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as running:
        yield running


def start(peer: Peer, program: str) -> subprocess.Popen[str]:
    # Development mode shows each socket, session and task that is left open.
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", PREAMBLE + textwrap.dedent(program), peer.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(peer: Peer, program: str) -> str:
    """Run a program to its good end and give what it wrote to stderr."""
    process = start(peer, program)
    _, stderr = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, stderr
    return stderr


def quantities(peer: Peer) -> list[int]:
    return sorted(stored.event["quantity"] for stored in peer.stored.values())


def test_a_program_that_ends_without_closing_still_delivers(peer: Peer) -> None:
    program = """
        client = Client(URL, linger_s=3600)
        for number in range(5):
            client.submit(usage(number))
    """
    assert run(peer, program) == ""
    assert quantities(peer) == list(range(5))


def test_a_client_that_nobody_holds_any_more_still_delivers(peer: Peer) -> None:
    program = """
        Client(URL, linger_s=3600).submit(usage(1))
        import gc; gc.collect()
    """
    assert run(peer, program) == ""
    assert quantities(peer) == [1]


def test_a_program_that_ends_while_the_server_is_away_says_what_was_lost(peer: Peer) -> None:
    program = """
        client = Client("http://127.0.0.1:1", retry_for_s=0.1)
        client.submit(usage(1))
    """
    stderr = run(peer, program)
    assert "1 submitted events were not delivered" in stderr
    assert "Traceback" not in stderr


def test_a_loop_that_ends_without_closing_still_delivers(peer: Peer) -> None:
    program = """
        async def main():
            client = AsyncClient(URL, linger_s=3600)
            for number in range(5):
                await client.submit(usage(number))

        asyncio.run(main())
    """
    assert run(peer, program) == ""
    assert quantities(peer) == list(range(5))


def test_a_loop_that_ends_while_the_server_is_away_says_what_was_lost(peer: Peer) -> None:
    program = """
        async def main():
            away = "http://127.0.0.1:1"
            client = AsyncClient(away, retry_for_s=1, linger_s=3600, batch_events=2)
            for number in range(5):
                await client.submit(usage(number))

        asyncio.run(main())
    """
    stderr = run(peer, program)
    assert "5 of 5 events were not delivered" in stderr
    assert "Traceback" not in stderr


def test_a_loop_that_ends_in_the_middle_of_a_request_delivers_it_once(peer: Peer) -> None:
    peer.script[:] = ["slow"]
    peer.slow_s = 0.5
    program = """
        async def main():
            client = AsyncClient(URL, linger_s=0)
            await client.submit(usage(1))
            await asyncio.sleep(0.2)

        asyncio.run(main())
    """
    assert run(peer, program) == ""
    assert quantities(peer) == [1]
    assert len(set(peer.bodies)) == 1


def test_sending_without_closing_leaves_no_warning(peer: Peer) -> None:
    program = """
        async def main():
            await AsyncClient(URL).send(usage(1))

        asyncio.run(main())
        Client(URL).send(usage(2))
    """
    assert run(peer, program) == ""
    assert quantities(peer) == [1, 2]


def test_a_fork_begins_anew_and_what_was_buffered_is_the_parents(peer: Peer) -> None:
    program = """
        client = Client(URL, linger_s=3600)
        client.send(usage(0))
        client.submit(usage(1))
        pid = os.fork()
        if pid == 0:
            client.submit(usage(2))
            client.send(usage(3))
            client.flush()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        client.submit(usage(4))
        client.close()
    """
    run(peer, program)
    assert quantities(peer) == [0, 1, 2, 3, 4]
    # One request each for the child's events, one for both of the parent's.
    assert len(peer.bodies) == 4


def test_a_fork_while_another_thread_is_in_the_client_does_not_hang_the_child(peer: Peer) -> None:
    program = """
        import threading
        client = Client(URL, linger_s=0, max_queued=5)
        stop = threading.Event()

        def submit():
            number = 1000
            while not stop.is_set():
                client.submit(usage(number))
                number += 1

        thread = threading.Thread(target=submit)
        thread.start()
        children = []
        for number in range(10):
            pid = os.fork()
            if pid == 0:
                client.submit(usage(number))
                client.flush()
                os._exit(0)
            children.append(pid)
        assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
        stop.set()
        thread.join()
        client.close()
    """
    run(peer, program)
    assert [number for number in quantities(peer) if number < 1000] == list(range(10))


def test_a_child_of_multiprocessing_delivers_when_it_ends(peer: Peer) -> None:
    program = """
        client = Client(URL, linger_s=3600)

        def work(number):
            client.submit(usage(number))

        context = multiprocessing.get_context("fork")
        work(1)
        children = [context.Process(target=work, args=(number,)) for number in (2, 3)]
        for child in children:
            child.start()
        for child in children:
            child.join()
            assert child.exitcode == 0
        client.close()
    """
    run(peer, program)
    assert quantities(peer) == [1, 2, 3]


def test_an_async_client_begins_anew_in_a_forked_child(peer: Peer) -> None:
    program = """
        client = AsyncClient(URL, linger_s=3600)

        async def child():
            await client.submit(usage(2))
            await client.send(usage(3))
            await client.close()

        async def main():
            await client.send(usage(0))
            await client.submit(usage(1))
            pid = os.fork()
            if pid == 0:
                return True
            assert os.waitpid(pid, 0)[1] == 0
            await client.close()
            return False

        # A loop does not survive a fork, so the child leaves it behind and makes its own.
        loop = asyncio.new_event_loop()
        is_child = loop.run_until_complete(main())
        if is_child:
            asyncio.run(child())
            os._exit(0)
        loop.close()
    """
    run(peer, program)
    assert quantities(peer) == [0, 1, 2, 3]


INTERRUPTED = {
    "threads": """
        import time
        with Client(URL, linger_s=3600, timeout_s=60) as client:
            for number in range(5):
                client.submit(usage(number))
            print("ready", flush=True)
            time.sleep(60)
    """,
    "tasks": """
        async def main():
            async with AsyncClient(URL, linger_s=3600, timeout_s=60) as client:
                for number in range(5):
                    await client.submit(usage(number))
                print("ready", flush=True)
                await asyncio.sleep(60)

        asyncio.run(main())
    """,
}


def interrupt_when_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)


@pytest.mark.parametrize("program", INTERRUPTED.values(), ids=list(INTERRUPTED))
def test_an_interrupt_delivers_what_is_buffered_and_ends(peer: Peer, program: str) -> None:
    process = start(peer, program)
    interrupt_when_ready(process)
    _, stderr = process.communicate(timeout=WAIT_S)
    assert process.returncode == -signal.SIGINT
    assert quantities(peer) == list(range(5))
    assert "KeyboardInterrupt" in stderr
    assert "Warning" not in stderr


@pytest.mark.parametrize("program", INTERRUPTED.values(), ids=list(INTERRUPTED))
def test_a_second_interrupt_ends_at_once_and_says_what_was_left(peer: Peer, program: str) -> None:
    peer.hold()
    process = start(peer, program)
    interrupt_when_ready(process)
    wait_until(lambda: peer.waiting == 1)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=WAIT_S)
    assert process.returncode == -signal.SIGINT
    assert "5 of 5 events were not stored: delivery_failed × 5" in stderr
    assert "Warning" not in stderr
