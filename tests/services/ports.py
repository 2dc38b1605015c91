"""Ports for servers that tests stop and start again."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path


def free_port() -> int:
    """A port of 127.0.0.1 that nothing uses and that no outgoing connection will be given.

    Otherwise, while the server is down, the port could be taken by any connection, or a client that
    knocks at it could even be connected to itself.
    """
    for port in _ports_for_listening():
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                listener.bind(("127.0.0.1", port))
                return port
    raise OSError("no free port on 127.0.0.1")


def _ports_for_listening() -> Iterator[int]:
    lowest_outgoing = 32768
    with contextlib.suppress(OSError):
        lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = list(range(15000, max(lowest_outgoing, 16000)))
    random.SystemRandom().shuffle(candidates)
    yield from candidates
