"""One hash over the content of the views, whatever store holds it and however it came there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from tidemark.decimals import plain_decimal
from tidemark.pipeline.output.batch import Adjustment
from tidemark.pipeline.output.encoding import json_values
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import Column
from tidemark.views.scanning import Row

_encode = msgspec.json.Encoder().encode


class Fingerprint:
    """Takes lines in their order; each is a JSON array that begins with what it is."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add_row(self, view: str, columns: Sequence[Column], row: ViewRow) -> None:
        values = [
            value
            for column, stored in zip(columns, row.values, strict=True)
            for value in json_values(column, [stored])
        ]
        self._add("row", view, row.row_key, row.received_at, values)

    def add_change(self, row: Row) -> None:
        self._add("change", *row)

    def add_adjustment(self, adjustment: Adjustment) -> None:
        values = msgspec.structs.asdict(adjustment) | {"amount": plain_decimal(adjustment.amount)}
        self._add("adjustment", *values.values())

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def _add(self, *line: object) -> None:
        self._hash.update(_encode(line))
        self._hash.update(b"\n")
