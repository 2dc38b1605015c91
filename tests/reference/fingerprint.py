"""What a meter comes to, and one hash of it.

The hash is the SHA-256, in hex, of lines of UTF-8 text, each ended by a line feed. A line is a JSON
array `[kind, meter, object]`. JSON is compact (no white space), object members are sorted by name,
and of the characters only those that JSON demands are escaped (`"`, `\\`, and control characters as
`\\n`, `\\t`, `\\b`, `\\f`, `\\r` or `\\u00xx`).

Meters come in the order of their names, and for each meter:

- `"row"`: every row after the last commit, ordered by the JSON text of its key;
- `"adjustment"`: every adjustment, ordered by its sequence as a number, then by its JSON text;
- `"change"`: every change, ordered by `received_at`, then by the JSON text of its key, as
  `{"received_at", "key", "op", "old_row", "row"}`.

Texts are compared by code point (which is the order of their UTF-8 bytes). A key is the array
`[tenant_id, metric, customer_ref, group values …, period_start]`.

| column | as |
|---|---|
| `tenant_id`, `metric`, `customer_ref`, `reason`, `idempotency_key`, `original_key` | string |
| a group value, in a column of its own name | string or null |
| `period_start`, `watermark_ts`, `received_at` | `"2025-11-01T00:00:00.000000Z"` |
| `agg_sum`, `agg_max`, `agg_min`, `agg_last`, `counted`, `adjusted`, `total`, `amount` | string: \
plain decimal without trailing zeros, no `-0`; or null |
| `agg_count` | number |
| `ingress_sequence`, `original_sequence` | string |

A row has the key's columns, the `agg_` columns, `watermark_ts`, `counted`, `adjusted` and `total`.
An adjustment has the key's columns, `amount`, `reason`, `idempotency_key`, `ingress_sequence`,
`original_key`, `original_sequence` and `received_at`. No column is left out: what there is not, is
null.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tests.reference.instants import format_instant

Row = dict[str, Any]
Key = tuple[str | None, ...]
Op = Literal["INSERT", "UPDATE", "DELETE"]


class Change(NamedTuple):
    """The net change of one row at one commit."""

    received_at: int
    key: Key
    op: Op
    old_row: Row | None
    row: Row | None


@dataclass
class MeterResult:
    """What a meter came to: `rows_after[n]` are the rows after commit n, by key."""

    rows_after: list[dict[Key, Row]] = field(default_factory=list)
    adjustments: list[Row] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    @property
    def rows(self) -> dict[Key, Row]:
        """The rows after the last commit."""
        return self.rows_after[-1] if self.rows_after else {}


def canonical_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def fingerprint_lines(results: Mapping[str, MeterResult]) -> Iterator[str]:
    """The lines of the hash, without their line feeds. The order of the given lists plays no
    part, so what was read from a store in any order can be given."""
    for name, result in sorted(results.items()):
        for key in sorted(result.rows, key=canonical_json):
            yield canonical_json(["row", name, result.rows[key]])
        for row in sorted(result.adjustments, key=adjustment_order):
            yield canonical_json(["adjustment", name, row])
        for change in sorted(result.changes, key=change_order):
            shown = {**change._asdict(), "received_at": format_instant(change.received_at)}
            yield canonical_json(["change", name, shown])


def fingerprint(results: Mapping[str, MeterResult]) -> str:
    digest = hashlib.sha256()
    for line in fingerprint_lines(results):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def adjustment_order(row: Row) -> tuple[int, str]:
    return int(row["ingress_sequence"]), canonical_json(row)


def change_order(change: Change) -> tuple[int, str]:
    return change.received_at, canonical_json(change.key)
