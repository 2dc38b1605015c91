"""What is counted among the views is in `/metrics` as soon as these have moved on."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec
import pytest

from tests.integration.filled_views import FilledViews
from tests.integration.http_client import Api
from tests.integration.test_http_health import metric
from tests.integration.usage import metered
from tests.services.tidemark_server import TidemarkServer
from tidemark.clock import SystemClock
from tidemark.config import load_config
from tidemark.ledger.opening import open_ledger
from tidemark.pipeline.output.batch import Frontier, ViewBatch
from tidemark.pipeline.time.plans import EVENTTIME
from tidemark.pipeline.time.stage import STATE_NAME, StreamMetrics, TimeState
from tidemark.views.opening import open_views

CONFIG: Final = """
streams:
  trades:
    fields: {trade_id: string, executed_at: timestamp}
    identity: [trade_id]
    eventtime: {column: executed_at, type: iso8601}
pipeline:
  eventtime: {enabled: true}
views:
  trades: {stream: trades, key: [trade_id]}
"""
SEEN_WITHIN_S: Final = 20.0


async def keep(server: TidemarkServer, metrics: StreamMetrics) -> None:
    """Takes the views to the end of the ledger, with these numbers in the state."""
    config = load_config(server.config_path, dict(server.env))
    ledger, views = await open_ledger(config, SystemClock()), await open_views(config)
    try:
        head = await ledger.head()
        end = Frontier(head.last_sequence, head.received_at, head.chain, ledger.ledger_id)
        kept = TimeState(EVENTTIME, {}, head.received_at, b"", {"trades": metrics}, {})
        state = {STATE_NAME: msgspec.msgpack.encode(kept)}
        assert await views.commit(ViewBatch(await views.frontier(), end, state=state))
    finally:
        await views.close()
        await ledger.close()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_numbers_of_the_time_stage_are_shown_once(workers: str) -> None:
    with TidemarkServer(CONFIG, env={"TIDEMARK_HTTP__WORKERS": workers}) as server:
        api = Api(server.base_url, "acme")
        for number, waiting in enumerate((3, 4)):
            data = {"trade_id": f"t-{number}", "executed_at": "2025-01-31T12:00:00Z"}
            api.accept({"stream": "trades", "tenantId": "acme", "data": data})
            numbers = StreamMetrics(waiting, 2, 5, 1, 1_738_324_800_000_000)
            asyncio.run(keep(server, numbers))
            deadline = time.monotonic() + SEEN_WITHIN_S
            name = "tidemark_eventtime_buffer_size"
            while metric(api, name, stream="trades") != waiting:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert metric(api, "tidemark_eventtime_late_dropped_total", stream="trades") == 2
        assert metric(api, "tidemark_eventtime_watermark_emitted_total", stream="trades") == 5
        assert metric(api, "tidemark_eventtime_wild_total", stream="trades") == 1
        name = "tidemark_eventtime_max_timestamp_seen_seconds"
        assert metric(api, name, stream="trades") == 1_738_324_800


@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_the_pipeline_has_set_aside_is_counted_once(workers: str) -> None:
    with TidemarkServer(metered.CONFIG, env={"TIDEMARK_HTTP__WORKERS": workers}) as server:
        api = Api(server.base_url, "acme")
        views = FilledViews(server.config_path, server.env)
        error = {"stage": "decode", "code": "too_large", "message": "m", "tenant_id": "acme"}
        for sequence in (1, 2):
            metered.commit(
                api,
                views,
                adjustments=[metered.late(api, sequence)],
                errors=[
                    {
                        **error,
                        "ingress_sequence": sequence,
                        "stream": "usage",
                        "idempotency_key": "k",
                    }
                ],
            )
            deadline = time.monotonic() + SEEN_WITHIN_S
            while (
                metric(api, "tidemark_pipeline_adjustments_total", meter="bytes_month"),
                metric(api, "tidemark_pipeline_errors_total", code="too_large"),
            ) != (sequence, sequence):
                assert time.monotonic() < deadline
                time.sleep(0.05)
