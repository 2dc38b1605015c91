"""The three folds of meters against the plain reference, over generated ledgers and any cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folding.facts import definition_of, facts_of
from tests.folding.memory import MemoryViews
from tests.generated.ledgers import Shape, ledgers, random_ledger
from tests.generated.meters import meters, random_meter
from tests.reference.definitions import Meter
from tests.reference.fingerprint import fingerprint_lines
from tests.reference.history import Commit
from tests.reference.meters import fold_meters
from tidemark.pipeline.definitions import members_schema, meter_schema
from tidemark.pipeline.fold.meters_corrected import fold_corrected
from tidemark.pipeline.fold.meters_plain import fold_plain
from tidemark.pipeline.fold.meters_vectorised import fold_vectorised

FOLDS = {"plain": fold_plain, "vectorised": fold_vectorised}


def fold(
    commits: Sequence[Commit], meter: Meter, cuts: Sequence[int], plain: Callable[..., list]
) -> MemoryViews:
    """What the product makes of a ledger that is cut at these times.

    As in the pipeline, owners with a correction in a batch are folded anew, the others go on.
    """
    definition = definition_of(meter)
    views = MemoryViews([meter_schema(definition), members_schema(definition)])
    table, whole = facts_of(commits, meter), facts_of(commits, meter, whole=True)
    start = -1
    for end in [*cuts, commits[-1][0] if commits else 0]:
        batch = between(table, start, end)
        corrected = {
            (row["tenant_id"], row["customer_ref"])
            for row in batch.to_pylist()
            if row["target_key"] is not None
        }
        rest = of_owners(batch, corrected, inside=False)
        if rest.num_rows:
            views.apply(plain(definition, rest, views.read, logged=True))
        if corrected:
            history = of_owners(between(whole, -1, end), corrected, inside=True)
            views.apply(fold_corrected(definition, history, start, views.read, logged=True))
        start = end
    return views


def between(table: pa.Table, after: int, up_to: int) -> pa.Table:
    at = table.column("received_at")
    return table.filter(pc.and_(pc.greater(at, after), pc.less_equal(at, up_to)))


def of_owners(table: pa.Table, owners: set[tuple[str, str]], *, inside: bool) -> pa.Table:
    mask = [
        ((tenant, customer) in owners) is inside
        for tenant, customer in zip(
            table.column("tenant_id").to_pylist(),
            table.column("customer_ref").to_pylist(),
            strict=True,
        )
    ]
    return table.filter(pa.array(mask, pa.bool_()))


def check(
    commits: Sequence[Commit], meter: Meter, cuts: Sequence[int], plain: Callable[..., list]
) -> None:
    views = fold(commits, meter, cuts, plain)
    expected = fold_meters(commits, [meter])
    found = {meter.name: views.result(meter.name)}
    assert list(fingerprint_lines(found)) == list(fingerprint_lines(expected))
    if meter.aggregate == "unique":
        check_members(views, meter)


def check_members(views: MemoryViews, meter: Meter) -> None:
    """A row counts as many members as are kept for it."""
    members = views.rows[f"{meter.name}__members"].values()
    for key, row in views.rows[meter.name].items():
        columns = dict(
            zip([c.name for c in views.schemas[meter.name].columns], row.values, strict=True)
        )
        own = [member for member in members if member.values[0] == key]
        assert columns["all_distinct"] == sum(bool(member.values[3]) for member in own)
        assert columns["counted"] == sum(bool(member.values[2]) for member in own)


@pytest.mark.parametrize("plain", FOLDS.values(), ids=FOLDS)
@settings(max_examples=settings().max_examples // 5)
@given(data=st.data())
def test_every_fold_and_every_cut_gives_what_the_reference_gives(
    data: st.DataObject, plain: Callable[..., list]
) -> None:
    commits = data.draw(ledgers(Shape(max_commits=8, max_entries=5)))
    meter = data.draw(meters())
    times = [received_at for received_at, _ in commits]
    cuts = sorted(data.draw(st.sets(st.sampled_from(times)))) if times else []
    check(commits, meter, cuts, plain)


@pytest.mark.parametrize("plain", FOLDS.values(), ids=FOLDS)
@pytest.mark.parametrize("seed", range(4))
def test_long_ledgers_give_the_same_for_several_cuts(seed: int, plain: Callable[..., list]) -> None:
    commits = random_ledger(seed, Shape(max_commits=40, max_entries=9))
    source = random.Random(seed)
    times = [received_at for received_at, _ in commits]
    for cuts in ([], times, sorted(source.sample(times, 9))):
        check(commits, random_meter(seed), cuts, plain)


@pytest.mark.parametrize("seed", range(2))
def test_the_folds_keep_the_same_state_for_the_next_batch(seed: int) -> None:
    commits = random_ledger(seed, Shape(max_commits=30, max_entries=9, controls=False))
    times = [received_at for received_at, _ in commits]
    for aggregate in ("sum", "max", "min", "count", "last", "avg", "unique"):
        meter = random_meter(seed, aggregate=aggregate)
        one, other = (fold(commits, meter, times[::7], plain) for plain in FOLDS.values())
        assert one.rows == other.rows
