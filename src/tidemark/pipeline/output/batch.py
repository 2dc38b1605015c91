"""What one step of the pipeline writes, and the rule that says whether it is its turn.

A batch takes the views from one commit of the ledger to a later one. It is applied only where the
views stand at its start, so a batch that is repeated, overtaken or out of place changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

import msgspec

from tidemark.pipeline.output.errors import BatchRefused, FrontierGap, LedgerRewound, UnknownView
from tidemark.pipeline.output.schema import Value, ViewSchema

INSERT: Final = "insert"
UPDATE: Final = "update"
DELETE: Final = "delete"


class Frontier(msgspec.Struct, frozen=True):
    """A commit of a ledger: everything up to and with it is in the views, nothing after it."""

    ingress_sequence: int
    received_at: int
    chain: bytes
    ledger_id: str


class RowWrites(msgspec.Struct, frozen=True):
    """Rows of one view as they are at the end of the batch, column by column.

    `received_at[i]` is the commit that last changed what readers see of row i. `columns` holds all
    columns of the view, hidden ones too, in the declared order. `deleted` are keys whose row goes.
    """

    view: str
    row_keys: Sequence[str]
    received_at: Sequence[int]
    columns: Sequence[Sequence[Value]]
    deleted: Sequence[str] = ()


class Changes(msgspec.Struct, frozen=True):
    """Net changes of one view, column by column: at most one per key and commit.

    Rows are what `encoding.encode_rows` gives: `old_rows[i]` is None for an insert, `rows[i]` for a
    delete. `changed[i]` is what `encoding.encode_names` gives for an update, else None: all.
    """

    view: str
    received_at: Sequence[int]
    row_keys: Sequence[str]
    operations: Sequence[str]
    old_rows: Sequence[str | None]
    rows: Sequence[str | None]
    changed: Sequence[str | None]


class Adjustment(msgspec.Struct, frozen=True, gc=False):
    """An amount that is shown apart from a counter, and the event it is due to.

    `view` is the meter's view and `group_values` a canonical JSON object. A late amend has two:
    `part` 0 takes the old value away, `part` 1 adds the new one; any other has only `part` 0.
    """

    ingress_sequence: int
    view: str
    part: int
    received_at: int
    tenant_id: str
    metric: str
    customer_ref: str
    group_values: str
    period_start: int
    amount: Decimal
    reason: str
    idempotency_key: str
    original_key: str | None = None
    original_sequence: int | None = None


class ErrorRow(msgspec.Struct, frozen=True, gc=False):
    """An event that a stage of the pipeline could not take, and why."""

    ingress_sequence: int
    stage: str
    received_at: int
    code: str
    message: str
    tenant_id: str
    stream: str
    idempotency_key: str


class ViewBatch(msgspec.Struct, frozen=True):
    """Everything that is written between two commits, in one transaction.

    `start` is None for the beginning of the ledger. `state` are small things the pipeline needs
    when it goes on, by name; None removes one.
    """

    start: Frontier | None
    end: Frontier
    rows: Sequence[RowWrites] = ()
    changes: Sequence[Changes] = ()
    adjustments: Sequence[Adjustment] = ()
    errors: Sequence[ErrorRow] = ()
    state: Mapping[str, bytes | None] = {}

    @property
    def views(self) -> set[str]:
        """The views it writes to."""
        return {writes.view for writes in self.rows} | {changes.view for changes in self.changes}


def is_next(frontier: Frontier | None, batch: ViewBatch) -> bool:
    """Whether to apply a batch to views that stand at `frontier`: True to apply, False to skip it.

    Raises `FrontierGap` for one out of place and `LedgerRewound` for one of another history.
    """
    if frontier is None:
        if batch.start is None:
            return True
        raise _gap(frontier, batch)
    for position in (batch.start, batch.end):
        if position is not None and _contradict(frontier, position):
            raise LedgerRewound(
                f"the views hold {_shown(frontier)}, but the ledger has {_shown(position)}",
                hint="Ledger and views are of different histories: one of them was restored from a "
                "backup or replaced. Restore the other too, or rebuild the views from the ledger.",
            )
    if batch.start is not None and batch.start.received_at == frontier.received_at:
        return True
    if batch.end.received_at <= frontier.received_at:
        return False
    raise _gap(frontier, batch)


def check_batch(batch: ViewBatch, schemas: Mapping[str, ViewSchema]) -> None:
    """Refuses a batch that contradicts itself, before anything of it is written."""
    start, end = batch.start, batch.end
    if start is not None and (
        start.received_at >= end.received_at
        or start.ingress_sequence > end.ingress_sequence
        or start.ledger_id != end.ledger_id
    ):
        raise _refused(f"a batch cannot lead from {_shown(start)} to {_shown(end)}")
    for writes in batch.rows:
        _check_rows(writes, _schema(schemas, writes.view))
    for changes in batch.changes:
        _check_changes(changes, _schema(schemas, changes.view))
    for parts in ([writes.view for writes in batch.rows], [part.view for part in batch.changes]):
        if len(set(parts)) < len(parts):
            raise _refused("the rows or the changes of one view are in two parts")
    for what, times in (
        *((f"change of {changes.view}", changes.received_at) for changes in batch.changes),
        ("adjustment", [adjustment.received_at for adjustment in batch.adjustments]),
        ("error", [error.received_at for error in batch.errors]),
    ):
        first = 0 if start is None else start.received_at + 1
        if times and not first <= min(times) <= max(times) <= end.received_at:
            raise _refused(f"a {what} is not of a commit of this batch")


def _check_rows(writes: RowWrites, schema: ViewSchema) -> None:
    lengths = {len(writes.received_at), *(len(column) for column in writes.columns)}
    if len(writes.columns) != len(schema.columns) or lengths - {len(writes.row_keys)}:
        raise _refused(f"the columns of {schema.name} are not complete")
    keys = {*writes.row_keys, *writes.deleted}
    if len(keys) < len(writes.row_keys) + len(writes.deleted):
        raise _refused(f"a row of {schema.name} is written twice")


def _check_changes(changes: Changes, schema: ViewSchema) -> None:
    columns: tuple[Sequence[object], ...] = (
        changes.row_keys,
        changes.operations,
        changes.old_rows,
        changes.rows,
        changes.changed,
    )
    count = len(changes.received_at)
    if any(len(column) != count for column in columns):
        raise _refused(f"the changes of {schema.name} are not complete")
    if count and not schema.logged:
        raise _refused(f"{schema.name} is declared without a log of changes")
    # With the frontier this is what makes a change unique: no other batch holds these commits.
    if len(set(zip(changes.received_at, changes.row_keys, strict=True))) < count:
        raise _refused(f"a row of {schema.name} changes twice at one commit")


def _contradict(frontier: Frontier, position: Frontier) -> bool:
    """Whether the two cannot be commits of one ledger."""
    if position.ledger_id != frontier.ledger_id:
        return True
    if position.received_at == frontier.received_at:
        return position != frontier
    later = position.received_at > frontier.received_at
    if later:
        return position.ingress_sequence < frontier.ingress_sequence
    return position.ingress_sequence > frontier.ingress_sequence


def _schema(schemas: Mapping[str, ViewSchema], view: str) -> ViewSchema:
    if view not in schemas:
        raise UnknownView(f"{view} is not declared", hint="Declare a view before writing to it.")
    return schemas[view]


def _refused(message: str) -> BatchRefused:
    return BatchRefused(message, hint="This is a fault of the pipeline; nothing was written.")


def _gap(frontier: Frontier | None, batch: ViewBatch) -> FrontierGap:
    return FrontierGap(
        f"the views stand at {_shown(frontier)}, the batch leads from {_shown(batch.start)} to "
        f"{_shown(batch.end)}",
        hint="Another pipeline writes to these views: run one for each store. Started again, it"
        " goes on from where they are.",
    )


def _shown(position: Frontier | None) -> str:
    if position is None:
        return "the beginning"
    return (
        f"sequence {position.ingress_sequence} of {position.ledger_id} at {position.received_at} "
        f"(chain {position.chain.hex()[:12]})"
    )
