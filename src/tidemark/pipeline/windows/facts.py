"""What the tasks hand to the driver of the events of a window."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidemark.pipeline.fold.parts import ARROW_TYPES, DECIMAL
from tidemark.pipeline.windows.definition import WindowDefinition

GROUPS: Final = "groups"
# What a task finds; the groups stand beside it as a struct.
FACTS_FIELDS: Final[dict[str, pa.DataType]] = {
    "tenant_id": pa.string(),
    "received_at": pa.int64(),
    "ingress_sequence": pa.int64(),
    "idempotency_key": pa.string(),
    "ts": pa.int64(),
    "value": DECIMAL,
}


def no_facts(window: WindowDefinition) -> pa.Table:
    """What a batch without facts of it hands over."""
    groups = [pa.field(group.name, ARROW_TYPES[group.type]) for group in window.groups]
    fields = [*FACTS_FIELDS.items(), ("slot", pa.int64()), (GROUPS, pa.struct(groups))]
    return pa.schema(fields).empty_table()
