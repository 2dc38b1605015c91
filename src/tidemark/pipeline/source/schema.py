"""The columns of the source. One schema for two kinds of record; what a kind lacks is null.

An `event` is a row of the ledger's `events`. A `commit` is a row of its `commits`, ticks included:
it has the times, the sequences and the chains. `previous_received_at` is that of the commit before
the record's own, null for the first of the ledger, before which the chain is all zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DecimalType,
    LongType,
    StringType,
    StructField,
    StructType,
)

SOURCE_NAME: Final = "tidemark_ledger"
EVENT: Final = "event"
COMMIT: Final = "commit"

QUANTITY_DIGITS: Final = 28
QUANTITY_SCALE: Final = 9

# As the ledger has them and in its order, so that a row of it is a row of ours.
EVENT_COLUMNS: Final[dict[str, DataType]] = {
    "ingress_sequence": LongType(),
    "received_at": LongType(),
    "occurred_at": LongType(),
    "tenant_id": StringType(),
    "stream": StringType(),
    "idempotency_key": StringType(),
    "metric": StringType(),
    "customer_ref": StringType(),
    "resource_id": StringType(),
    "quantity": DecimalType(QUANTITY_DIGITS, QUANTITY_SCALE),
    "data": StringType(),
    "causality_key": StringType(),
    "source": StringType(),
    "control": StringType(),
    "target_key": StringType(),
}
_COMMIT_COLUMNS: Final[dict[str, DataType]] = {
    "first_sequence": LongType(),
    "last_sequence": LongType(),
    "chain": BinaryType(),
    "previous_chain": BinaryType(),
}
_PREVIOUS: Final = "previous_received_at"
_COLUMNS: Final = {
    "record": StringType(),
    **dict(list(EVENT_COLUMNS.items())[:2]),
    _PREVIOUS: LongType(),
    **dict(list(EVENT_COLUMNS.items())[2:]),
    **_COMMIT_COLUMNS,
}
SPARK_SCHEMA: Final = StructType([StructField(name, kind) for name, kind in _COLUMNS.items()])

_ARROW_TYPES: Final[dict[type[DataType], pa.DataType]] = {
    LongType: pa.int64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DecimalType: pa.decimal128(QUANTITY_DIGITS, QUANTITY_SCALE),
}
ARROW_SCHEMA: Final = pa.schema([(n, _ARROW_TYPES[type(kind)]) for n, kind in _COLUMNS.items()])

# What is left of a negative number when each of its digits is taken from nine.
_COMPLEMENT: Final = Decimal("9" * (QUANTITY_DIGITS - QUANTITY_SCALE) + "." + "9" * QUANTITY_SCALE)

Columns: TypeAlias = dict[str, pa.Array]
CommitRow: TypeAlias = tuple[int, int, int, bytes]
"""`received_at`, `first_sequence`, `last_sequence` and `chain`."""


def arrow_type(column: str) -> pa.DataType:
    return ARROW_SCHEMA.field(column).type


def columns_of(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> Columns:
    """Turns rows of a driver into columns; a quantity is still text then."""
    values = zip(*rows, strict=True) if rows else [()] * len(names)
    return {
        name: pa.array(value, pa.string() if name == "quantity" else arrow_type(name))
        for name, value in zip(names, values, strict=True)
    }


def plain_to_decimal(text: pa.Array) -> pa.Array:
    """Quantities from plain decimal text."""
    return text.cast(arrow_type("quantity"))


def sortable_to_decimal(text: pa.Array) -> pa.Array:
    """Quantities from the text of `ledger.sortable`, whole columns at a time."""
    digits = pc.utf8_slice_codeunits(text, 1).cast(arrow_type("quantity"))
    negative = pc.starts_with(text, "n")
    if not pc.any(negative).as_py():
        return digits
    # Not made once: the first value that Arrow makes has it look for pandas, and the processes that
    # only plan what is read would load that for nothing.
    complement = pa.scalar(_COMPLEMENT, _ARROW_TYPES[DecimalType])
    below_zero = pc.subtract(digits, complement).cast(arrow_type("quantity"))
    return pc.if_else(negative, below_zero, digits)


def event_batch(columns: Columns, previous_received_at: pa.Array) -> pa.RecordBatch:
    """Events, with the columns of `EVENT_COLUMNS`."""
    return _batch(EVENT, columns | {_PREVIOUS: previous_received_at})


def commit_batch(
    commits: Sequence[CommitRow], before_received_at: int | None, before_chain: bytes
) -> pa.RecordBatch:
    """Commits that follow one another; `before_…` are those of the commit before the first."""
    received_at, first_sequence, last_sequence, chain = zip(*commits, strict=True)
    values = {
        "received_at": received_at,
        _PREVIOUS: (before_received_at, *received_at[:-1]),
        "first_sequence": first_sequence,
        "last_sequence": last_sequence,
        "chain": chain,
        "previous_chain": (before_chain, *chain[:-1]),
    }
    return _batch(COMMIT, {n: pa.array(column, arrow_type(n)) for n, column in values.items()})


def _batch(record: str, columns: Columns) -> pa.RecordBatch:
    count = len(columns["received_at"])
    columns["record"] = pa.repeat(record, count)
    return pa.RecordBatch.from_arrays(
        [
            columns[field.name] if field.name in columns else pa.nulls(count, field.type)
            for field in ARROW_SCHEMA
        ],
        schema=ARROW_SCHEMA,
    )
