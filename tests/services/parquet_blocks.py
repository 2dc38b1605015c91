"""Blocks of landed events as somebody might leave them who changes what is in them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def rewrite(path: Path, table: pa.Table) -> None:
    """Puts other events into a block; what it says of itself is as before."""
    kept = {
        name: value
        for name, value in pq.read_metadata(path).metadata.items()
        if name.startswith(b"tidemark.")
    }
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(kept)
