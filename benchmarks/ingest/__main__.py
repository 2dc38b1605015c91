"""`python -m benchmarks.ingest`: measures, prints the report, and writes JSON if asked to."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

import msgspec

from benchmarks.command import options_parser, run
from benchmarks.ingest.costs import measure_costs
from benchmarks.ingest.growth import measure_growth
from benchmarks.ingest.machine import describe_machine
from benchmarks.ingest.memory import measure_memory
from benchmarks.ingest.report import report
from benchmarks.ingest.results import Results, targets
from benchmarks.ingest.rig import FULL, QUICK, Rig
from benchmarks.ingest.throughput import measure_throughput

PARTS: Final = ("costs", "throughput", "memory", "growth")


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    return run(
        options,
        lambda: _measure(options, arguments),
        report,
        lambda results: {"targets": list(targets(results)), "errors": results.errors},
    )


def _measure(options: argparse.Namespace, arguments: list[str]) -> Results:
    parts = options.only or list(PARTS)
    scale = QUICK if options.quick else FULL
    if options.repetitions is not None:
        scale = msgspec.structs.replace(scale, repetitions=options.repetitions)
    began = time.monotonic()
    with Rig(scale) as rig:
        return Results(
            command=" ".join(["python -m benchmarks.ingest", *arguments]),
            machine=describe_machine(rig.postgres),
            costs=measure_costs() if "costs" in parts else None,
            throughput=measure_throughput(rig) if "throughput" in parts else None,
            memory=measure_memory(rig) if "memory" in parts else None,
            growth=measure_growth(rig) if "growth" in parts else None,
            seconds=time.monotonic() - began,
        )


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
