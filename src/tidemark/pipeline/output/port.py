"""What the pipeline needs of a store of views; `tidemark.views` has two that can do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tidemark.pipeline.output.batch import Frontier, ViewBatch
from tidemark.pipeline.output.schema import Value, ViewSchema


class ViewRow(msgspec.Struct, frozen=True, gc=False):
    """One row; `received_at` is the commit that last changed what readers see of it."""

    row_key: str
    received_at: int
    values: tuple[Value, ...]


class ViewsSink(Protocol):
    """Where batches go. Every method may raise `ViewsUnavailable`; retrying is then safe."""

    async def declare(self, views: Sequence[ViewSchema]) -> None:
        """Make the tables of new views. All or nothing: a changed definition changes nothing."""

    async def frontier(self) -> Frontier | None:
        """How far the views have come; None if nothing was ever committed."""

    async def commit(self, batch: ViewBatch) -> bool:
        """Apply a batch in one transaction; False if the views have it already.

        Raises `FrontierGap`, `LedgerRewound` or `BatchRefused`; nothing is written then.
        """

    async def read_state(self, view: str, row_keys: Sequence[str]) -> list[ViewRow]:
        """The rows there are under these keys, hidden columns too, in no particular order.

        `values` are aligned with the view's columns. The work grows with the keys asked for only.
        """

    async def scan_state(self, view: str, *, after: str | None, limit: int) -> list[ViewRow]:
        """The first rows by key, hidden columns too, that come after a key."""

    async def read_pipeline_state(self) -> dict[str, bytes]: ...

    async def close(self) -> None: ...
