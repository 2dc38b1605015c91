"""Folds that depend on how the ledger is cut into batches, to see that somebody notices.

They run in the processes that Spark starts, so what is changed is changed there.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark import cloudpickle

from tidemark.pipeline.fold import meters_plain
from tidemark.pipeline.fold.parts import Part
from tidemark.pipeline.fold.rules import late_reason
from tidemark.pipeline.fold.task import FoldedView, FoldTask


class JudgesLateByTheBatch(FoldTask):
    """The watermark that a fact must not lie behind is that of before the batch."""

    def _fold(self, view: FoldedView, own: pa.Table, read: Any) -> list[Part]:
        fold_commit = meters_plain._fold_commit
        before: dict[Any, int | None] = {}

        def planted(rows: Any, counters: Any, received_at: int, commit: Any) -> None:
            for slot, counter in counters.items():
                before.setdefault(slot, counter.watermark)
            judged = iter([before[fact.slot] for fact in commit if fact.kind == "fact"])

            def reason(meter: Any, *, watermark: int | None, **rest: Any) -> str | None:
                return late_reason(meter, watermark=next(judged), **rest)

            with mock.patch.object(meters_plain, "late_reason", reason):
                fold_commit(rows, counters, received_at, commit)

        with mock.patch.object(meters_plain, "_fold_commit", planted):
            return super()._fold(view, own, read)


class ClosesByTheBatch(FoldTask):
    """A period is closed for a batch, by the commit before it, and not for each commit."""

    def _fold(self, view: FoldedView, own: pa.Table, read: Any) -> list[Part]:
        name = "previous_received_at"
        first = own.sort_by("received_at").column(name)[0]
        place = own.schema.get_field_index(name)
        own = own.set_column(place, own.schema.field(place), pa.repeat(first, own.num_rows))
        return super()._fold(view, own, read)


def let_spark_have_them() -> None:
    """The processes that Spark starts cannot import tests."""
    import tests.folding.planted as module

    cloudpickle.register_pickle_by_value(module)
