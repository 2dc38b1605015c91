"""The options that every benchmark has."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


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
