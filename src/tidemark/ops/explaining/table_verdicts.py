"""What a table made of an event, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from tidemark.ledger.port import EventRow
from tidemark.ops.explaining.rows import RowHistory
from tidemark.pipeline.definitions import TableDefinition
from tidemark.pipeline.output.batch import DELETE, ErrorRow

TableOutcome: TypeAlias = Literal[
    "written", "deleted", "corrected", "unchanged", "not_taken", "unknown"
]


class TableVerdict(msgspec.Struct, frozen=True):
    """What became of an event in one table, and why."""

    outcome: TableOutcome
    reason: str


class TableEvidence(msgspec.Struct, frozen=True):
    """What is known of an event in one table: its row, or for a correction up to two of them."""

    event: EventRow
    table: TableDefinition
    histories: Sequence[RowHistory]
    errors: Sequence[ErrorRow]


def table_verdict_of(evidence: TableEvidence) -> TableVerdict:
    """What a table made of an event that the pipeline has folded."""
    for error in evidence.errors:
        return TableVerdict("not_taken", f"{error.code}: {error.message}")
    if evidence.event.control is not None:
        return _correction(evidence)
    [history] = evidence.histories
    sequence = evidence.event.ingress_sequence
    if history.shown_sequence == sequence:
        return TableVerdict("written", "the row that is shown comes from it")
    if history.unknown:
        return TableVerdict("unknown", history.unknown)
    if history.change is None:
        return TableVerdict(
            "unchanged", "an event that is newer by its time was there, or one that says the same"
        )
    if history.neighbours.count:
        return TableVerdict(
            "unknown",
            f"the row changed, but the commit has {history.neighbours.count} more for it: what is"
            " newest by its time is shown",
        )
    if history.change.op == DELETE:
        return TableVerdict("deleted", "its content says that the row is gone")
    return TableVerdict("written", "it was the newest of its row by its time")


def _correction(evidence: TableEvidence) -> TableVerdict:
    if any(history.change is not None for history in evidence.histories):
        return TableVerdict("corrected", "the row is what the events in effect come to")
    for history in evidence.histories:
        if history.unknown:
            return TableVerdict("unknown", history.unknown)
    return TableVerdict("unchanged", "its original is not what the row shows")
