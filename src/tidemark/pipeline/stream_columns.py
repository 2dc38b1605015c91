"""The columns that come from streams: the tenant, and the fields that are declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidemark.pipeline.output.schema import Column

if TYPE_CHECKING:
    from tidemark.config.model import StreamConfig

TENANT_ID: Final = "tenant_id"


def stream_columns(stream: StreamConfig) -> tuple[Column, ...]:
    return tuple(
        Column(name, declared.type, tuple(declared.values or ()))
        for name, declared in stream.fields.items()
    )
