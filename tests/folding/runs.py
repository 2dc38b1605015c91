"""The pipeline run by a test: on real Spark, over a real ledger, into a real views store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.folding.memory import reference_adjustment
from tests.reference.fingerprint import Change, MeterResult
from tests.services.spark import shared_session
from tidemark.config import Config
from tidemark.ledger.port import LedgerStore
from tidemark.pipeline.reading import FromLedger, ReadStream
from tidemark.pipeline.running import Pipeline
from tidemark.pipeline.source.frames import ledger_address, ledger_stream
from tidemark.views.opening import views_at
from tidemark.views.port import AdjustmentFilter, RowFilter, ViewsStore

EVERYTHING = 1_000_000


async def run_pipeline(
    config: Config,
    ledger: LedgerStore,
    views: ViewsStore,
    place: Path | str,
    *,
    read_stream: ReadStream = ledger_stream,
    **options: Any,
) -> Pipeline:
    """Runs until everything that is in the ledger now is in the views."""
    options.setdefault("source", FromLedger(ledger_address(config), read_stream))
    loop = asyncio.get_running_loop()

    def run() -> Pipeline:
        pipeline = Pipeline(
            shared_session(), config, ledger, views, partial(views_at, place), loop=loop, **options
        )
        pipeline.prepare()
        pipeline.run(until_caught_up=True)
        return pipeline

    return await asyncio.to_thread(run)


async def meter_results(views: ViewsStore, names: Sequence[str]) -> dict[str, MeterResult]:
    """What the views hold of meters, in the shape of the reference."""
    import msgspec

    from tidemark.pipeline.output.encoding import encode_row

    results = {name: MeterResult() for name in names}
    schemas = {schema.name: schema for schema in await views.declared()}
    for name, result in results.items():
        schema = schemas[name]
        page = await views.read_rows(name, RowFilter(), limit=EVERYTHING)
        assert page.next_cursor is None
        rows = {}
        for row in page.rows:
            text = encode_row(schema, dict(zip(page.columns, row.values, strict=True)))
            shown = _row(text)
            assert shown is not None
            rows[tuple(shown[column] for column in schema.key)] = shown
        result.rows_after.append(rows)
        changes = await views.read_changes(name, 0, limit=EVERYTHING)
        assert changes.complete
        result.changes += (
            Change(
                change.received_at,
                tuple(msgspec.json.decode(change.row_key)),
                change.op.upper(),  # type: ignore[arg-type]
                _row(change.old_row),
                _row(change.row),
            )
            for change in changes.changes
        )
    page_of = await views.read_adjustments(AdjustmentFilter(), limit=EVERYTHING)
    for adjustment in page_of.adjustments:
        results[adjustment.view].adjustments.append(reference_adjustment(adjustment))
    return results


def _row(text: str | None) -> dict[str, Any] | None:
    import msgspec

    if text is None:
        return None
    row: dict[str, Any] = msgspec.json.decode(text)
    return {**row, "agg_count": int(row["agg_count"])}
