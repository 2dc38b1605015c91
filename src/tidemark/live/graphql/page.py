"""GraphiQL, served from our own files: the page names no other host and may load from none."""

from __future__ import annotations

import gzip
from importlib.resources import files
from typing import Final

from tidemark.errors import NotFound
from tidemark.web.messages import Headers, Request, Response

_PLACE: Final = files("tidemark.live.graphql")
_TYPES: Final = {
    "page.css": b"text/css; charset=utf-8",
    "page.js": b"text/javascript; charset=utf-8",
    "graphiql.min.css": b"text/css; charset=utf-8",
    "graphiql.min.js": b"text/javascript; charset=utf-8",
    "graphql-ws.min.js": b"text/javascript; charset=utf-8",
    "react.min.js": b"text/javascript; charset=utf-8",
    "react-dom.min.js": b"text/javascript; charset=utf-8",
    "LICENSES": b"text/plain; charset=utf-8",
}
# The rest is stored compressed, as it is sent.
_OURS: Final = frozenset(("page.css", "page.js", "LICENSES"))
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        # Its parts put style elements into the page while it runs.
        "style-src 'self' 'unsafe-inline'",
        "font-src data:",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_SAFETY: Final[Headers] = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
_A_WEEK: Final = (b"cache-control", b"public, max-age=604800")


class GraphiqlPage:
    """The page and its files, each read once."""

    def __init__(self) -> None:
        self._html = (_PLACE / "graphiql.html").read_bytes()
        self._files: dict[str, bytes] = {}

    def page(self) -> Response:
        headers: Headers = [
            (b"content-security-policy", _POLICY.encode()),
            (b"cache-control", b"no-cache"),
            (b"vary", b"accept"),
            *_SAFETY,
        ]
        return Response(200, self._html, b"text/html; charset=utf-8", headers)

    def asset(self, request: Request) -> Response:
        """The file that the last part of the path names."""
        [name] = request.path_values
        if name not in _TYPES:
            raise NotFound(
                "the page has no such file", hint="GET /graphql in a browser shows the page."
            )
        # Files of ours may change with every version, and are small.
        headers = [*_SAFETY, (b"cache-control", b"no-cache") if name in _OURS else _A_WEEK]
        content = self._content(name)
        if name not in _OURS:
            headers.append((b"vary", b"accept-encoding"))
            if "gzip" in (request.header(b"accept-encoding") or ""):
                headers.append((b"content-encoding", b"gzip"))
            else:
                content = gzip.decompress(content)
        return Response(200, content, _TYPES[name], headers)

    def _content(self, name: str) -> bytes:
        if name not in self._files:
            stored = name if name in _OURS else f"{name}.gz"
            self._files[name] = (_PLACE / "assets" / stored).read_bytes()
        return self._files[name]
