"""`python -m benchmarks.ingest`: measures, prints the report, and writes JSON if asked to."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.ingest.costs import measure_costs
from benchmarks.ingest.growth import measure_growth
from benchmarks.ingest.machine import describe_machine
from benchmarks.ingest.memory import measure_memory
from benchmarks.ingest.report import report
from benchmarks.ingest.results import Results, targets
from benchmarks.ingest.rig import FULL, QUICK, Rig
from benchmarks.ingest.throughput import measure_throughput
from benchmarks.options import options_parser

PARTS: Final = ("costs", "throughput", "memory", "growth")


def main(arguments: list[str]) -> int:
    """The exit code is 1 if anything was answered with an error. How fast it was is no error."""
    options = _parser().parse_args(arguments)
    if not Path("/proc/self/stat").exists():
        print("This benchmark reads /proc, which only Linux has.", file=sys.stderr)
        return 2
    parts = options.only or list(PARTS)
    scale = QUICK if options.quick else FULL
    if options.repetitions is not None:
        scale = msgspec.structs.replace(scale, repetitions=options.repetitions)
    began = time.monotonic()
    with Rig(scale) as rig:
        machine = describe_machine(rig.postgres)
        costs = measure_costs() if "costs" in parts else None
        throughput = measure_throughput(rig) if "throughput" in parts else None
        memory = measure_memory(rig) if "memory" in parts else None
        growth = measure_growth(rig) if "growth" in parts else None
    results = Results(
        command=" ".join(["python -m benchmarks.ingest", *arguments]),
        machine=machine,
        seconds=time.monotonic() - began,
        costs=costs,
        throughput=throughput,
        memory=memory,
        growth=growth,
    )
    sys.stdout.write(report(results))
    if options.json is not None:
        document = msgspec.to_builtins(results) | {
            "targets": msgspec.to_builtins(list(targets(results))),
            "errors": results.errors,
        }
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
    return 1 if results.errors else 0


def _parser() -> argparse.ArgumentParser:
    parser = options_parser(
        "ingest",
        "Measures ingest against the limits of this machine, on a PostgreSQL of its own that"
        " flushes every commit, and on SQLite.",
        PARTS,
    )
    parser.add_argument(
        "--repetitions", type=_positive, metavar="N", help=f"by default {FULL.repetitions}"
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
