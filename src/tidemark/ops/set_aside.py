"""What the pipeline did not fold but set aside, adjustments and errors, for a server's metrics.

They are counted among the views and from the beginning of the ledger, so every process of a server
shows the same, whichever is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from tidemark.ops.opened_views import OpenedViews
from tidemark.pipeline.output.batch import Frontier
from tidemark.views.swapping import OldView


class SetAsideNumbers(Collector):
    """Shows what was counted last."""

    def __init__(self) -> None:
        self.adjustments: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def collect(self) -> Iterable[Metric]:
        adjustments = CounterMetricFamily(
            "tidemark_pipeline_adjustments",
            "Adjustments: what came too late to be counted.",
            labels=("meter",),
        )
        errors = CounterMetricFamily(
            "tidemark_pipeline_errors", "Events that the pipeline could not take.", labels=("code",)
        )
        for family, counts in ((adjustments, self.adjustments), (errors, self.errors)):
            for name, count in sorted(counts.items()):
                family.add_metric([name], count)
        return [adjustments, errors]


class SetAsideWatch:
    """Counts on whenever the views have moved on: what was counted once never changes.

    Only views that are put in the place of others have other adjustments than those had.
    """

    def __init__(self, views: OpenedViews, numbers: SetAsideNumbers) -> None:
        self._views = views
        self._numbers = numbers
        self._counted_to = 0
        self._replaced: list[OldView] = []

    async def look(self, frontier: Frontier | None) -> None:
        """`frontier` is where the views stand."""
        reached = 0 if frontier is None else frontier.ingress_sequence
        if reached == self._counted_to:
            return
        store = await self._views.store()
        replaced = await store.old_views()
        begin = self._counted_to
        if replaced != self._replaced or reached < begin:
            begin = 0
        found = await store.count_set_aside(begin, reached)
        if begin == 0:
            self._numbers.adjustments, self._numbers.errors = Counter(), Counter()
        self._numbers.adjustments.update(found.adjustments)
        self._numbers.errors.update(found.errors)
        self._counted_to, self._replaced = reached, replaced
