"""What keeps the pipeline from going on, told by its process to those that answer for it.

It is one small file in the state directory, there for as long as something is wrong. The ledger is
told too, for servers that work in another directory, mostly on another machine.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from tidemark.clock import MICROS_PER_SECOND
from tidemark.errors import TidemarkError
from tidemark.ledger.port import CopyState
from tidemark.ops.parts import reason_of

PIPELINE: Final = "pipeline"
"""As it calls itself where the ledger is told."""
# It tells at each attempt, and every 30 s while one lasts: at most as much lies between two, and a
# start of Spark.
SILENT_AFTER_US: Final = 120 * MICROS_PER_SECOND
FILE_NAME: Final = "pipeline-error.json"


class _Told(msgspec.Struct):
    code: str
    message: str
    hint: str = ""
    field: str | None = None


_decode = msgspec.json.Decoder(_Told).decode


class PipelineStatus:
    """The last error of a pipeline that works in this state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE_NAME

    def failed(self, error: TidemarkError) -> None:
        # Who cannot even say what is wrong has said it in its log.
        with contextlib.suppress(OSError):
            aside = self._path.with_suffix(f".{os.getpid()}")
            aside.write_bytes(msgspec.json.encode(error.as_dict()))
            aside.replace(self._path)

    def clear(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def error(self) -> TidemarkError | None:
        """What is wrong, if something is."""
        try:
            told = _decode(self._path.read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None
        return TidemarkError(told.message, hint=told.hint, field=told.field, code=told.code)


def reason_told(said: CopyState | None, now_us: int) -> str:
    """What keeps a pipeline from going on, as the ledger was told; empty if nothing does."""
    if said is None or said.error is None:
        return ""
    silent_us = now_us - said.told_at
    if silent_us <= SILENT_AFTER_US:
        return reason_of(said.error)
    silent_s = silent_us // MICROS_PER_SECOND
    return f"its process was last heard of {silent_s} s ago. It said: {reason_of(said.error)}"
