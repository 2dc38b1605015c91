"""The command that every benchmark is: its options, and what becomes of its results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

Results = TypeVar("Results", bound=msgspec.Struct)


def options_parser(name: str, description: str, parts: Sequence[str]) -> argparse.ArgumentParser:
    """For `python -m benchmarks.<name>`, which measures these parts."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=f"{description} Leave the machine alone meanwhile.",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=parts,
        metavar="PART",
        help=f"measure this part: {', '.join(parts)}; may be given several times",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a run of seconds that shows that everything works; its figures mean nothing",
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything to this file")
    return parser


def run(
    options: argparse.Namespace,
    measure: Callable[[], Results],
    report: Callable[[Results], str],
    more: Callable[[Results], dict[str, Any]] = lambda results: {},
) -> int:
    """Measures, prints the report, and writes JSON if asked to, with more that follows from it.

    The exit code is 1 if `errors` are among that. How fast it was is no error.
    """
    if not Path("/proc/self/stat").exists():
        print("This benchmark reads /proc, which only Linux has.", file=sys.stderr)
        return 2
    results = measure()
    follows = more(results)
    sys.stdout.write(report(results))
    if options.json is not None:
        document = msgspec.to_builtins(results) | msgspec.to_builtins(follows)
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
    return 1 if follows.get("errors") else 0
