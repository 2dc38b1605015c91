"""The folds of tables against the plain reference, over generated ledgers and any cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folding.memory import MemoryViews, gathered
from tests.folding.tables import definition_of, facts_of, result_of, schema_of
from tests.generated.streams import TABLES, StreamShape, random_stream, stream_ledgers
from tests.reference.tables import StreamCommit, Table, TableResult
from tests.reference.tables import fold_table as reference_table
from tidemark.pipeline.definitions import deleted_schema
from tidemark.pipeline.fold.parts import Part
from tidemark.pipeline.fold.tables import fold_table
from tidemark.pipeline.fold.tables_corrected import fold_table_corrected
from tidemark.pipeline.fold.tables_plain import fold_table_plain

Fold = Callable[..., list[Part]]
FOLDS: dict[str, Fold] = {"vectorised": fold_table, "plain": fold_table_plain}
each_fold = pytest.mark.parametrize("plain", FOLDS.values(), ids=FOLDS)


def fold(
    commits: Sequence[StreamCommit], table: Table, cuts: Sequence[int], plain: Fold
) -> TableResult:
    """What the product makes of a ledger that is cut at these times.

    As in the pipeline, all plain facts of a batch are folded on top of what there is, and then the
    slots that its corrections concern anew from the beginning of the ledger.
    """
    definition, schema = definition_of(table), schema_of(table)
    deleted = deleted_schema(definition)
    views = MemoryViews([schema, deleted])
    facts = facts_of(commits, table)
    start = -1
    for end in [*cuts, commits[-1][0] if commits else 0]:
        batch, history = between(facts, start, end), between(facts, -1, end)
        of_facts = batch.filter(pc.equal(batch.column("kind"), "fact"))
        parts: list[Part] = []
        if of_facts.num_rows:
            parts = plain(definition, schema, 0, of_facts, views.read, logged=True)
        first = gathered(parts)
        corrections = batch.filter(pc.is_valid(batch.column("target_key")))
        if corrections.num_rows:
            touched = touched_slots(history, corrections)
            first.replace(
                gathered(
                    fold_table_corrected(
                        definition, schema, 0, history, touched, start, views.read, logged=True
                    )
                )
            )
        views.write(first)
        start = end
    errors = facts.filter(pc.equal(facts.column("kind"), "error"))
    return result_of(
        table,
        schema,
        views.rows[schema.name].values(),
        views.rows[deleted.name].values(),
        views.changes[schema.name],
        [(row["ingress_sequence"], row["error_code"]) for row in errors.to_pylist()],
    )


def touched_slots(history: pa.Table, corrections: pa.Table) -> frozenset[int]:
    """Every slot that an original of these corrections is in, or ever was."""
    names = set(
        zip(*(corrections[n].to_pylist() for n in ("tenant_id", "target_key")), strict=True)
    )
    return frozenset(
        row["slot"]
        for row in history.to_pylist()
        if (row["tenant_id"], row["target_key"] or row["idempotency_key"]) in names
        and row["kind"] != "void"
    )


def between(table: pa.Table, after: int, up_to: int) -> pa.Table:
    at = table.column("received_at")
    return table.filter(pc.and_(pc.greater(at, after), pc.less_equal(at, up_to)))


def check(commits: Sequence[StreamCommit], table: Table, cuts: Sequence[int], plain: Fold) -> None:
    found, expected = fold(commits, table, cuts, plain), reference_table(commits, table)
    assert found.changes == expected.changes
    assert found.rows == expected.rows
    assert found.tombstones == expected.tombstones
    assert found.errors == expected.errors


@each_fold
@settings(max_examples=settings().max_examples // 8)
@given(data=st.data())
def test_every_cut_gives_what_the_reference_gives(data: st.DataObject, plain: Fold) -> None:
    commits = data.draw(stream_ledgers(StreamShape(max_commits=8, max_entries=5)))
    table = data.draw(st.sampled_from(TABLES))
    times = [received_at for received_at, _ in commits]
    cuts = sorted(data.draw(st.sets(st.sampled_from(times)))) if times else []
    check(commits, table, cuts, plain)


@each_fold
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@pytest.mark.parametrize("seed", range(2))
def test_long_ledgers_give_the_same_for_several_cuts(seed: int, table: Table, plain: Fold) -> None:
    commits = random_stream(seed, StreamShape(max_commits=16, max_entries=7))
    times = [received_at for received_at, _ in commits]
    for cuts in ([], sorted(random.Random(seed).sample(times, 6))):
        check(commits, table, cuts, plain)


@each_fold
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_long_ledger_without_corrections_gives_the_same_for_several_cuts(
    table: Table, plain: Fold
) -> None:
    commits = random_stream(99, StreamShape(max_commits=16, max_entries=9, controls=False))
    times = [received_at for received_at, _ in commits]
    for cuts in ([], times[::4]):
        check(commits, table, cuts, plain)
