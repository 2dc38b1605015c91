"""Forgets what the log of changes need not keep any more, and gives its room back."""

from __future__ import annotations

import msgspec

from tidemark.app.pipeline import prune_changes
from tidemark.config import Config
from tidemark.views.opening import open_views


class Compacted(msgspec.Struct, frozen=True, rename="camel"):
    """How many changes were forgotten, and what the views take."""

    forgotten: int
    bytes_before: int
    bytes_after: int


async def compact_views(config: Config) -> Compacted:
    """As the pipeline forgets: by `pipeline.change_retention`, and never what a trigger needs."""
    views = await open_views(config)
    try:
        forgotten = await prune_changes(config, views)
        return Compacted(forgotten, *await views.compact())
    finally:
        await views.close()
