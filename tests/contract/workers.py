"""Processes of their own that wait for a word before they begin, and say at last what they did."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import msgspec

DONE_WITHIN_S: Final = 60.0


class Worker:
    """`python -m MODULE ARGUMENTS`: says `ready`, waits for a line, and answers with JSON."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, module: str, *arguments: str) -> Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        if (await process.stdout.readline()).strip() != b"ready":
            raise AssertionError((await process.stderr.read()).decode())
        return cls(process)

    async def finish(self) -> Any:
        """Gives the word, and what the process says in the end."""
        async with asyncio.timeout(DONE_WITHIN_S):
            out, err = await self._process.communicate(b"go\n")
        assert self._process.returncode == 0, err.decode()
        return msgspec.json.decode(out)
