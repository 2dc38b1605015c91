"""`python -m benchmarks.pipeline`: measures, prints the report, and writes JSON if asked to."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Final

from benchmarks.command import options_parser, run
from benchmarks.ingest.machine import describe_machine
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
    options = options_parser("pipeline", DESCRIPTION, PARTS).parse_args(arguments)
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
