"""`python -m benchmarks.mirror`: measures, prints the report, and writes JSON if asked to."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Final

import msgspec

from benchmarks.command import options_parser, run
from benchmarks.ingest.machine import describe_machine
from benchmarks.mirror.away import measure_away
from benchmarks.mirror.report import report
from benchmarks.mirror.results import Results
from benchmarks.mirror.rig import FULL, QUICK, STORES, Rig, Scale
from benchmarks.mirror.sources import measure_sources
from benchmarks.mirror.throughput import measure_throughput
from benchmarks.pipeline.workload import COMMIT_EVENTS
from tests.services.kafka import JARS

PARTS: Final = ("throughput", "away", "pipeline")
DESCRIPTION: Final = "Measures the mirror beside a plain producer that sends the same messages."
KAFKA_ARCHIVE: Final = "kafka-clients-"


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    return run(options, lambda: asyncio.run(_measure(options, arguments)), report)


def _parser() -> argparse.ArgumentParser:
    parser = options_parser("mirror", DESCRIPTION, PARTS)
    parser.add_argument(
        "--store", action="append", choices=STORES, help="where ledgers are, for `throughput`"
    )
    parser.add_argument("--events", type=_whole_commits, help="how many, for `throughput`")
    parser.add_argument("--pipeline-events", type=_whole_commits, help="how many, for `pipeline`")
    parser.add_argument(
        "--away-seconds", action="append", type=float, help="how long the broker is away"
    )
    parser.add_argument("--repetitions", type=int, help="how often each is measured")
    return parser


def _whole_commits(text: str) -> int:
    count = int(text)
    if count <= 0 or count % COMMIT_EVENTS:
        raise argparse.ArgumentTypeError(f"a multiple of {COMMIT_EVENTS}, such as 100000")
    return count


def _scale(options: argparse.Namespace) -> Scale:
    given = {
        "stores": options.store and tuple(options.store),
        "events": options.events,
        "pipeline_events": options.pipeline_events,
        "away_seconds": options.away_seconds and tuple(options.away_seconds),
        "repetitions": options.repetitions,
    }
    changed = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(QUICK if options.quick else FULL, **changed)


async def _measure(options: argparse.Namespace, arguments: list[str]) -> Results:
    parts = options.only or list(PARTS)
    began = time.monotonic()
    with Rig(_scale(options)) as rig:
        return Results(
            command=" ".join(["python -m benchmarks.mirror", *arguments]),
            machine=describe_machine(rig.postgres),
            kafka=_kafka_version(),
            throughput=await measure_throughput(rig) if "throughput" in parts else None,
            away=await measure_away(rig) if "away" in parts else None,
            pipeline=await measure_sources(rig) if "pipeline" in parts else None,
            seconds=time.monotonic() - began,
        )


def _kafka_version() -> str:
    [archive] = JARS.glob(f"{KAFKA_ARCHIVE}*.jar")
    return archive.stem.removeprefix(KAFKA_ARCHIVE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
