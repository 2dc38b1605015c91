"""The API's own description: `/openapi.json` for programs, `/docs` for people."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

import msgspec

from tidemark.config import Config
from tidemark.ops.openapi import openapi_document
from tidemark.web.messages import Headers, Request, Response


class Reference:
    """Serves the OpenAPI document and the page that shows it. Both are made once."""

    def __init__(self, config: Config) -> None:
        self._document = msgspec.json.encode(openapi_document(config))
        self._page, self._page_headers = documentation_page()

    async def openapi(self, request: Request) -> Response:
        return Response(200, self._document)

    async def page(self, request: Request) -> Response:
        return Response(200, self._page, b"text/html; charset=utf-8", list(self._page_headers))

    async def to_page(self, request: Request) -> Response:
        return Response(307, b"", headers=[(b"location", b"docs")])


def documentation_page() -> tuple[bytes, Headers]:
    """One page with its style and script inside, and headers that let nothing else in.

    The script and the style are allowed by their hashes, so that whatever the page comes to show
    (an event is anybody's text) cannot run.
    """
    place = files("tidemark.ops") / "docs"
    style = (place / "docs.css").read_text(encoding="utf-8")
    script = (place / "docs.js").read_text(encoding="utf-8")
    page = (place / "docs.html").read_text(encoding="utf-8")
    page = page.replace("/* docs.css */", style).replace("/* docs.js */", script)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_hash(style)}'",
            f"script-src '{_hash(script)}'",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    headers = [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cache-control", b"no-cache"),
    ]
    return page.encode(), headers


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
