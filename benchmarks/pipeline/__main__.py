"""`python -m benchmarks.pipeline`: measures, prints the report, and writes JSON if asked to."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.ingest.machine import describe_machine
from benchmarks.options import options_parser
from benchmarks.pipeline.catch_up import measure_catch_up
from benchmarks.pipeline.growth import measure_growth
from benchmarks.pipeline.landing import measure_landing
from benchmarks.pipeline.latency import measure_latency
from benchmarks.pipeline.replay import measure_replay
from benchmarks.pipeline.report import report
from benchmarks.pipeline.results import Results, targets
from benchmarks.pipeline.rig import FULL, QUICK, Rig
from benchmarks.pipeline.windows import measure_windows

PARTS: Final = ("catch-up", "windows", "landing", "replay", "growth", "latency")
DESCRIPTION: Final = "Measures the pipeline beside what plain Spark and DuckDB take for less."


def main(arguments: list[str]) -> int:
    """How fast it was is no error."""
    options = options_parser("pipeline", DESCRIPTION, PARTS).parse_args(arguments)
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
            command=" ".join(["python -m benchmarks.pipeline", *arguments]),
            machine=describe_machine(rig.postgres),
            catch_up=await measure_catch_up(rig) if "catch-up" in parts else None,
            windows=await measure_windows(rig) if "windows" in parts else None,
            landing=await measure_landing(rig) if "landing" in parts else None,
            replay=await measure_replay(rig) if "replay" in parts else None,
            growth=await measure_growth(rig) if "growth" in parts else None,
            latency=await measure_latency(rig) if "latency" in parts else None,
            seconds=time.monotonic() - began,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
