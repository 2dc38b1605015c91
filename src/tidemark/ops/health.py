"""Is the process alive, and can it take events?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from tidemark.errors import TidemarkError
from tidemark.ledger.port import LedgerStore
from tidemark.ops.frontier import FrontierWatch
from tidemark.ops.metrics import Metrics
from tidemark.ops.opened_views import OpenedViews
from tidemark.ops.pipeline_status import PipelineStatus
from tidemark.timestamps import format_timestamp
from tidemark.web.messages import Request, Response, json_response

log = logging.getLogger(__name__)

LEDGER_TIMEOUT_S = 5.0
_NO_ANSWER = f"no answer within {LEDGER_TIMEOUT_S:.0f} s"
_ASK_WITH_A_KEY = "a key with the scope read is told why"
_WORST_FIRST = ("unavailable", "degraded", "ready", "disabled")


class Part(msgspec.Struct, rename="camel", omit_defaults=True):
    """The state of one part: `ready`, `degraded`, `unavailable` or `disabled`, and why."""

    state: str
    reason: str = ""
    last_sequence: str | None = None
    received_at: str | None = None
    lag_events: str | None = None
    lag_seconds: float | None = None


class Health:
    """Answers `/healthz` (alive) and `/readyz` (can take events; 503 if not)."""

    def __init__(
        self,
        store: LedgerStore,
        views: OpenedViews,
        watch: FrontierWatch,
        status: PipelineStatus,
        metrics: Metrics,
        live: Callable[[], Part] | None = None,
    ) -> None:
        self._store = store
        self._views = views
        self._watch = watch
        self._status = status
        self._metrics = metrics
        self._live = live

    async def healthz(self, request: Request) -> Response:
        return json_response({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        sequence_state, sequence_reason = self._store.global_numbers.state
        parts = {
            "ledger": await self._ledger(),
            "clock": await self._clock_part(),
            "sequence": Part(sequence_state, sequence_reason),
            "pipeline": await self._pipeline(),
            "live": self._live_part(),
        }
        states = {part.state for part in parts.values()}
        worst = next(state for state in _WORST_FIRST if state in states)
        if "read" not in request.caller.scopes:
            parts = {name: _for_strangers(name, part) for name, part in parts.items()}
        return json_response(
            {"status": worst, "parts": parts}, 503 if worst == "unavailable" else 200
        )

    async def _ledger(self) -> Part:
        try:
            async with asyncio.timeout(LEDGER_TIMEOUT_S):
                head = await self._store.head()
        except TidemarkError as error:
            return Part("unavailable", error.message)
        except TimeoutError:
            return Part("unavailable", _NO_ANSWER)
        self._metrics.saw_sequence(head.last_sequence)
        received_at = format_timestamp(head.received_at) if head.received_at else None
        return Part("ready", "", str(head.last_sequence), received_at)

    async def _clock_part(self) -> Part:
        try:
            async with asyncio.timeout(LEDGER_TIMEOUT_S):
                await self._store.check_clock()
        except TidemarkError as error:
            return Part("unavailable", f"{error.message}. {error.hint}")
        except TimeoutError:
            return Part("unavailable", _NO_ANSWER)
        return Part("ready")

    def _live_part(self) -> Part:
        """Never the reason for a 503 either."""
        if self._live is None:
            return Part("disabled", "there is nothing to subscribe to, or live.enabled is false")
        return self._live()

    async def _pipeline(self) -> Part:
        """How far the views are. Events can be taken without them, so they are never the reason
        for a 503."""
        if not self._views.has_any:
            return Part("disabled", "there are no meters and no views")
        try:
            async with asyncio.timeout(LEDGER_TIMEOUT_S):
                progress = await self._watch.progress()
        except TidemarkError as error:
            return Part("degraded", error.message)
        except TimeoutError:
            return Part("degraded", _NO_ANSWER)
        self._metrics.saw_pipeline(progress)
        frontier = progress.frontier
        state, reason = "ready", ""
        if frontier is not None and frontier.ledger_id != self._store.ledger_id:
            state, reason = "degraded", "the views were made from another ledger"
        told = self._status.error()
        if told is not None:
            state, reason = "degraded", f"{told.message}. {told.hint}"
        return Part(
            state,
            reason,
            str(progress.sequence),
            None if frontier is None else format_timestamp(frontier.received_at),
            str(progress.lag_events),
            round(progress.lag_seconds, 3),
        )


def _for_strangers(name: str, part: Part) -> Part:
    """The state without its reason, which may name the database, its host or its user."""
    if part.reason and part.state != "disabled":
        log.warning("%s is %s: %s", name, part.state, part.reason)
    return Part(part.state, _ASK_WITH_A_KEY if part.reason else "")
