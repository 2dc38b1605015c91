"""What programs that strike at random moments have in common: command line and words."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, TypeAlias

Store: TypeAlias = Literal["sqlite", "postgres"]
STORES: Final[tuple[Store, ...]] = ("sqlite", "postgres")

# Of a seed, how often to strike, and on what stores; the exit code.
Torture: TypeAlias = Callable[[int, int, Sequence[Store]], Awaitable[int] | int]


class Broken(Exception):
    """A rule is broken; the message is the evidence."""


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def summary(tally: Counter[str], counted: str, seed: int, seconds: float) -> str:
    return "\n".join(
        [
            f"seed {seed}: {tally[counted]} {counted} in {seconds:.0f} s, nothing broken",
            *(f"  {times:6} {what}" for what, times in sorted(tally.items())),
        ]
    )


def run(
    torture: Torture, argv: Sequence[str] | None, *, module: str, does: str, strikes: int
) -> int:
    """The command of one such program; the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=does)
    parser.add_argument("--seed", type=int, default=1, help="decides what happens, and when")
    parser.add_argument("--count", type=int, default=strikes, help="how many times to strike")
    parser.add_argument("--store", choices=[*STORES, "both"], default="both")
    given = parser.parse_args(argv)
    stores = STORES if given.store == "both" else (given.store,)

    async def awaited(struck: Awaitable[int]) -> int:
        return await struck

    try:
        struck = torture(given.seed, given.count, stores)
        return struck if isinstance(struck, int) else asyncio.run(awaited(struck))
    except KeyboardInterrupt:
        say("interrupted")
        return 130
