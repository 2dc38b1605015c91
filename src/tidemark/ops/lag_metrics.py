"""How far everything is that follows the ledger, in the metrics of a server.

It is looked up when the metrics are read, so every process of a server shows the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidemark.ops.copies import COPY_NAMES
from tidemark.ops.delivery import DeliveryPart
from tidemark.ops.parts import Part

_COPIES: Final = (*COPY_NAMES, "pipeline", "delivery")


class LagNumbers(Collector):
    """Shows what was seen last. What is disabled has no samples, nor has what is not known."""

    def __init__(self) -> None:
        self._parts: Mapping[str, Part] = {}

    def saw(self, parts: Mapping[str, Part]) -> None:
        self._parts = parts

    def collect(self) -> Iterable[Metric]:
        ledger_up = GaugeMetricFamily(
            "tidemark_ledger_up", "Whether the ledger answers: 1 if it does, 0 if not."
        )
        clock_held = GaugeMetricFamily(
            "tidemark_clock_held", "Whether a leap of the clock holds ingest: 1 if it does."
        )
        sequence_up = GaugeMetricFamily(
            "tidemark_sequence_up",
            "Whether the sequence database gives numbers: 1, or 0 if it is away.",
        )
        up = _of_copies("up", "Whether it is kept up to date: 1, or 0 if something is wrong.")
        sequence = _of_copies("last_sequence", "The highest ingress_sequence that is in it.")
        events = _of_copies("lag_events", "Events of the ledger that are not in it yet.")
        seconds = _of_copies(
            "lag_seconds", "Seconds that the oldest commit which is not in it has waited."
        )
        triggers = GaugeMetricFamily(
            "tidemark_trigger_lag_seconds",
            "Seconds that the oldest commit which not every enabled trigger has seen has waited.",
        )
        parts = self._parts
        if parts:
            if parts["sequence"].state != "disabled":
                sequence_up.add_metric([], parts["sequence"].is_up)
            is_up = parts["ledger"].state == "ready"
            ledger_up.add_metric([], is_up)
            if is_up:
                if "clock" in parts:
                    clock_held.add_metric([], parts["clock"].state == "unavailable")
                for name in _COPIES:
                    part = parts[name]
                    if part.state != "disabled":
                        up.add_metric([name], part.is_up)
                    _add(sequence, name, part.last_sequence)
                    _add(events, name, part.lag_events)
                    _add(seconds, name, part.lag_seconds)
                delivery = parts["delivery"]
                if (
                    isinstance(delivery, DeliveryPart)
                    and delivery.evaluation_lag_seconds is not None
                ):
                    triggers.add_metric([], delivery.evaluation_lag_seconds)
        return [ledger_up, clock_held, sequence_up, up, sequence, events, seconds, triggers]


def _of_copies(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tidemark_copy_{name}", text, labels=("copy",))


def _add(family: GaugeMetricFamily, copy: str, value: str | float | None) -> None:
    if value is not None:
        family.add_metric([copy], float(value))
