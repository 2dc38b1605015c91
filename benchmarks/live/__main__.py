"""`python -m benchmarks.live`: measures, prints the report, and writes JSON if asked to."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.ingest.machine import describe_machine
from benchmarks.live.delivery import measure_delivery
from benchmarks.live.engine import measure_engine
from benchmarks.live.many import measure_many
from benchmarks.live.report import report
from benchmarks.live.results import Results, targets
from benchmarks.live.rig import FULL, QUICK, Rig
from benchmarks.live.webhooks import WebhookRate, measure_webhooks
from benchmarks.options import options_parser

PARTS: Final = ("engine", "delivery", "many", "webhooks")
DESCRIPTION: Final = "Measures subscriptions and webhooks, from the engine to the sockets."


def main(arguments: list[str]) -> int:
    """How fast it was is no error."""
    options = options_parser("live", DESCRIPTION, PARTS).parse_args(arguments)
    if not Path("/proc/self/stat").exists():
        print("This benchmark reads /proc, which only Linux has.", file=sys.stderr)
        return 2
    results = asyncio.run(_measure(options, arguments))
    sys.stdout.write(report(results))
    if options.json is not None:
        document = msgspec.to_builtins(results) | {
            "targets": msgspec.to_builtins(list(targets(results))),
        }
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
    return 0


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
