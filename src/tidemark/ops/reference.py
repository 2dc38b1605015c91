"""The API's own description: `/openapi.json` for programs, `/docs` for people."""

from __future__ import annotations

from tidemark.config import Config
from tidemark.web.messages import Request, Response, json_response


class Reference:
    """Serves the OpenAPI document and the page made from it."""

    def __init__(self, config: Config) -> None:
        self._config = config

    async def openapi(self, request: Request) -> Response:
        return json_response({})

    async def page(self, request: Request) -> Response:
        return Response(200, b"", b"text/html; charset=utf-8")

    async def to_page(self, request: Request) -> Response:
        return Response(307, b"", headers=[(b"location", b"/docs")])
