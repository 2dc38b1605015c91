"""How far the views have been, kept apart from them: so that older ones are noticed.

Views that were restored from an old backup are whole in themselves, and what they lack is folded
again. But whoever reads them sees the past meanwhile, and should know why.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Final

import msgspec

from tidemark.config import Config, redact
from tidemark.pipeline.output.batch import Frontier
from tidemark.views.opening import views_place

log = logging.getLogger(__name__)

FILE_NAME: Final = "pipeline-reached.json"


class _Mark(msgspec.Struct):
    views: str
    ledger_id: str
    ingress_sequence: int
    received_at: int


_decode = msgspec.json.Decoder(_Mark).decode


class HighWater:
    """The furthest frontier of the configured views that this state directory has seen."""

    def __init__(self, config: Config) -> None:
        self._path = config.state_dir / FILE_NAME
        place = views_place(config)
        # Relative: a state directory may be moved with everything in it.
        self._views = (
            redact(place)
            if isinstance(place, str)
            else os.path.relpath(place.absolute(), config.state_dir.absolute())
        )
        self._kept: Frontier | None = None

    def compare(self, frontier: Frontier | None) -> None:
        """Says so, if the views were further once."""
        try:
            mark = _decode(self._path.read_bytes())
        except (OSError, msgspec.MsgspecError):
            return
        sequence, received_at = 0, 0
        if frontier is not None:
            if frontier.ledger_id != mark.ledger_id:
                return
            sequence, received_at = frontier.ingress_sequence, frontier.received_at
        if mark.views == self._views and received_at < mark.received_at:
            log.warning(
                "the views are at sequence %d and have been at %d: they were restored from an old"
                " backup, or removed. What they lack is folded again from the ledger",
                sequence,
                mark.ingress_sequence,
            )

    def reached(self, frontier: Frontier | None) -> None:
        """Called after the commit, so the mark is never ahead of views that are whole."""
        if frontier is None or frontier == self._kept:
            return
        self._kept = frontier
        mark = _Mark(
            self._views, frontier.ledger_id, frontier.ingress_sequence, frontier.received_at
        )
        with contextlib.suppress(OSError):
            aside = self._path.with_suffix(f".{os.getpid()}")
            aside.write_bytes(msgspec.json.encode(mark))
            aside.replace(self._path)
