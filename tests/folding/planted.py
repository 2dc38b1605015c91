"""A fold that depends on how the ledger is cut into batches, to see that somebody notices.

It runs in the processes that Spark starts, so what is changed is changed there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark import cloudpickle

from tidemark.pipeline.definitions import MeterDefinition
from tidemark.pipeline.fold import meters_plain
from tidemark.pipeline.fold.parts import Part
from tidemark.pipeline.fold.rules import late_reason
from tidemark.pipeline.fold.task import FoldedView, FoldTask


class DependsOnTheBatch(FoldTask):
    """Meters that close do so for a batch, by the commit before it. For all others, the watermark
    that a fact must not lie behind is that of before the batch."""

    def _fold(self, view: FoldedView, own: pa.Table, read: Any) -> list[Part]:
        assert isinstance(view.definition, MeterDefinition)
        if view.definition.close_after_us is not None:
            return super()._fold(view, _of_one_commit(own), read)
        with mock.patch.object(meters_plain, "_fold_commit", _judging_by_the_batch()):
            return super()._fold(view, own, read)


def _of_one_commit(own: pa.Table) -> pa.Table:
    name = "previous_received_at"
    first = own.sort_by("received_at").column(name)[0]
    place = own.schema.get_field_index(name)
    return own.set_column(place, own.schema.field(place), pa.repeat(first, own.num_rows))


def _judging_by_the_batch() -> Callable[..., None]:
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

    return planted


def let_spark_have_it() -> None:
    """The processes that Spark starts cannot import tests."""
    import tests.folding.planted as module

    cloudpickle.register_pickle_by_value(module)
