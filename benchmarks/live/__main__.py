"""`python -m benchmarks.live`: measures, prints the report, and writes JSON if asked to."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Final

from benchmarks.command import options_parser, run
from benchmarks.ingest.machine import describe_machine
from benchmarks.live.delivery import measure_delivery
from benchmarks.live.engine import measure_engine
from benchmarks.live.many import measure_many
from benchmarks.live.report import report
from benchmarks.live.results import Results, targets
from benchmarks.live.rig import FULL, QUICK, Rig
from benchmarks.live.webhooks import WebhookRate, measure_webhooks

PARTS: Final = ("engine", "delivery", "many", "webhooks")
DESCRIPTION: Final = "Measures subscriptions and webhooks, from the engine to the sockets."


def main(arguments: list[str]) -> int:
    options = options_parser("live", DESCRIPTION, PARTS).parse_args(arguments)
    return run(
        options,
        lambda: asyncio.run(_measure(options, arguments)),
        report,
        lambda results: {"targets": list(targets(results))},
    )


async def _measure(options: argparse.Namespace, arguments: list[str]) -> Results:
    parts = options.only or list(PARTS)
    began = time.monotonic()
    with Rig(QUICK if options.quick else FULL) as rig:
        return Results(
            command=" ".join(["python -m benchmarks.live", *arguments]),
            machine=describe_machine(rig.postgres),
            engine=measure_engine(rig.scale.engine) if "engine" in parts else None,
            delivery=await measure_delivery(rig) if "delivery" in parts else None,
            many=await measure_many(rig) if "many" in parts else None,
            webhooks=await _webhooks(rig) if "webhooks" in parts else None,
            seconds=time.monotonic() - began,
        )


async def _webhooks(rig: Rig) -> list[WebhookRate]:
    places: dict[str, str] = {
        store: rig.postgres.create_database()
        if store == "postgres"
        else f"sqlite:///{rig.home / 'triggers.db'}"
        for store in rig.scale.stores
    }
    scale = rig.scale
    return await measure_webhooks(places, events=scale.webhooks, rows=scale.webhook_rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
