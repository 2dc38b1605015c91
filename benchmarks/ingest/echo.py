"""A limit: a server that reads a request and answers as many bytes, and does nothing else.

    python -m benchmarks.ingest.echo PORT

It runs on the API's own HTTP server with the settings of `tidemark.app.server`. What the API is
slower than this is what Tidemark itself costs.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
import uvloop

from tidemark.app.server import listen


async def echo(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    chunks = []
    while True:
        message = await receive()
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            break
    body = b"".join(chunks)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    server = uvicorn.Server(
        uvicorn.Config(
            echo,
            http="httptools",
            ws="websockets-sansio",
            lifespan="on",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
        )
    )
    uvloop.run(server.serve(sockets=[listen("127.0.0.1", int(sys.argv[1]))]))


if __name__ == "__main__":
    main()
