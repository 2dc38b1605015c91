"""The declared streams, by name."""

from __future__ import annotations

from tidemark.config.model import Config
from tidemark.errors import EventRejected
from tidemark.ingress.identity import Identity
from tidemark.ingress.members import suggestion
from tidemark.ingress.rejections import shown
from tidemark.ingress.streams import EventStream
from tidemark.ingress.usage import UsageStream


class Catalogue:
    """Finds the reader of a stream; `usage` is that of the usage stream, if one is declared."""

    def __init__(self, config: Config, identity: Identity) -> None:
        self.by_name: dict[str, EventStream | UsageStream] = {}
        self.usage: UsageStream | None = None
        for name, stream in config.streams.items():
            if stream.kind == "usage":
                self.usage = UsageStream(name, stream, config.ingest, identity)
                self.by_name[name] = self.usage
            else:
                self.by_name[name] = EventStream(name, stream, config.ingest, identity)

    def find(self, name: str, path: str) -> EventStream | UsageStream:
        """The stream that the field at `path` names."""
        stream = self.by_name.get(name)
        if stream is None:
            raise EventRejected(
                f"the stream {shown(name)} is not declared",
                code="unknown_stream",
                field=path,
                hint=suggestion(name, self.by_name) or "Declare it under `streams`.",
            )
        return stream

    def require_usage(self) -> UsageStream:
        """The usage stream, for events that do not name theirs."""
        if self.usage is None:
            raise EventRejected(
                "no usage stream is declared, and the event names no stream",
                code="unknown_stream",
                field="stream",
                hint=(
                    "Name the event's `stream`, or declare a stream of kind `usage`. "
                    + suggestion("", self.by_name)
                ).strip(),
            )
        return self.usage
