"""Is the process alive, can it take events, and how far is everything that follows the ledger?"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.config import Config
from tidemark.errors import ClockLeap, TidemarkError
from tidemark.ledger.port import CopyState, LedgerStore
from tidemark.ledger.sequencer import Head
from tidemark.live.triggers.port import TriggerStore
from tidemark.mirror.telling import MIRROR
from tidemark.ops.copies import COPY_NAMES, Copies, landing_part, untold
from tidemark.ops.delivery import Delivering, Delivery
from tidemark.ops.frontier import FrontierWatch, Progress, sequence_of_frontier
from tidemark.ops.lag import Lags
from tidemark.ops.metrics import Metrics
from tidemark.ops.opened_views import OpenedViews
from tidemark.ops.parts import UNMEASURED, Part, reason_of, worst_state
from tidemark.ops.pipeline_status import PIPELINE, PipelineStatus, reason_told
from tidemark.pipeline.output.batch import Frontier
from tidemark.timestamps import format_timestamp
from tidemark.web.messages import Request, Response, json_response

log = logging.getLogger(__name__)

ANSWER_TIMEOUT_S: Final = 5.0
SCRAPE_TIMEOUT_S: Final = 0.2
LISTEN_EVERY_S: Final = 5.0
# A pipeline that has something to do and does not move on for so long does not run.
STALLED_AFTER_S: Final = 60.0
_NUMBERS: Final = re.compile(r"\d+(?:[.,]\d+)*")
_ASK_WITH_A_KEY: Final = "a key with the scope read is told why"
_FOLLOWERS: Final = (
    *("ledger", "clock", "sequence", MIRROR, "pipeline"),
    *COPY_NAMES[1:],
    *("live", "delivery"),
)

T = TypeVar("T")


class Health:
    """Answers `/healthz` (alive), `/readyz` (can take events; 503 if not), and event-health."""

    def __init__(
        self,
        config: Config,
        store: LedgerStore,
        views: OpenedViews,
        watch: FrontierWatch,
        metrics: Metrics,
        clock: Clock,
        *,
        live: Callable[[], Part] | None = None,
        triggering: Callable[[], Part] | None = None,
        triggers: Callable[[], TriggerStore | None] = lambda: None,
    ) -> None:
        lags = Lags(store, clock)
        self._store = store
        self._views = views
        self._watch = watch
        self._status = PipelineStatus(config.state_dir)
        self._metrics = metrics
        self._clock = clock
        self._live = live
        self._copies = Copies(config, lags, clock)
        self._delivery = Delivery(store, lags, clock, triggering, triggers)
        self._look: asyncio.Task[dict[str, Part]] | None = None
        self._logged: dict[str, str] = {}

    async def healthz(self, request: Request) -> Response:
        return json_response({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        found = await self._all_parts()
        names = ("ledger", "clock", "sequence", "pipeline", MIRROR)
        parts = {name: found[name] for name in names}
        parts |= {"landing": landing_part(found)}
        parts |= {name: found[name] for name in ("live", "delivery")}
        worst = worst_state(parts.values())
        if "read" not in request.caller.scopes:
            self._log_reasons(parts)
            parts = {name: _for_strangers(part) for name, part in parts.items()}
        return json_response(
            {"status": worst, "parts": parts}, 503 if worst == "unavailable" else 200
        )

    def _log_reasons(self, parts: dict[str, Part]) -> None:
        """Of what is wrong, once: a probe may come every second, and its answer has no reason."""
        for name, part in parts.items():
            reason = "" if part.state == "disabled" else part.reason
            # Seconds and counts are other ones each time.
            kind = _NUMBERS.sub("", reason)
            if kind and kind != self._logged.get(name):
                log.warning("%s is %s: %s", name, part.state, reason)
            self._logged[name] = kind

    async def event_health(self, request: Request) -> Response:
        """How far everything is that follows the ledger. It is an answer also if all is bad."""
        request.query(())
        found = await self._all_parts()
        parts = {name: found[name] for name in _FOLLOWERS}
        return json_response(
            {
                "status": worst_state(parts.values()),
                "checkedAt": format_timestamp(self._clock.wall_us()),
                "parts": parts,
            }
        )

    async def measured(self) -> dict[str, Part]:
        """Every part, for metrics. Whether the clock is held is left out if it is not known soon:
        whoever writes to the ledger just then is not waited for."""
        parts, clock = await asyncio.gather(
            self._followed(), _outcome(self._store.check_clock(), SCRAPE_TIMEOUT_S)
        )
        is_known = clock is None or isinstance(clock, ClockLeap)
        return {**parts, "clock": _clock_part(clock)} if is_known else parts

    async def _all_parts(self) -> dict[str, Part]:
        parts, clock = await asyncio.gather(self._followed(), _outcome(self._store.check_clock()))
        return {**parts, "clock": _clock_part(clock)}

    async def _followed(self) -> dict[str, Part]:
        """Every part but the clock; one look is the answer for all who ask meanwhile."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._asked())
            # Whoever asked may have gone by the time it fails.
            self._look.add_done_callback(lambda look: look.cancelled() or look.exception())
        return await asyncio.shield(self._look)

    async def listen(self) -> None:
        """To be run all the time: a copy is silent for as long as nothing was heard of it here."""
        while self._copies.are_wanted:
            told = await _outcome(self._store.copies())
            if not isinstance(told, TidemarkError):
                self._copies.hear(told)
            await asyncio.sleep(LISTEN_EVERY_S)

    async def close(self) -> None:
        """Ask the stores no more, so that they can be closed."""
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)

    async def _asked(self) -> dict[str, Part]:
        # Where each follower is comes before how far there is to go: none is ahead of the ledger.
        told, frontier, delivering, _ = await asyncio.gather(
            _outcome(self._store.copies()),
            _outcome(self._frontier()),
            _outcome(self._delivery.look()),
            # A process that has nothing to store would not know for how long it was away.
            _outcome(self._store.global_numbers.check()),
        )
        if isinstance(told, TidemarkError):
            # It did not answer, so it is not waited for again.
            followers = await self._without_ledger(told, frontier, delivering)
            return self._own_parts(told) | followers
        head = await _outcome(self._store.head())
        measured = (
            head
            if isinstance(head, TidemarkError)
            else await _outcome(self._followers(told, frontier, delivering, head))
        )
        if isinstance(measured, TidemarkError):
            measured = await self._without_ledger(measured, frontier, delivering)
        return self._own_parts(head) | measured

    def _own_parts(self, head: Head | TidemarkError) -> dict[str, Part]:
        state, reason = self._store.global_numbers.state
        return {
            "ledger": self._ledger_part(head),
            "sequence": Part(state, reason),
            "live": self._live_part(),
        }

    async def _followers(
        self,
        told: dict[str, CopyState],
        frontier: Frontier | TidemarkError | None,
        delivering: Delivering | TidemarkError | None,
        head: Head,
    ) -> dict[str, Part]:
        return {
            **await self._copies.parts(told, head),
            "pipeline": await self._pipeline_part(frontier, head, told.get(PIPELINE)),
            "delivery": await self._delivery.part(delivering, head),
        }

    async def _without_ledger(
        self,
        error: TidemarkError,
        frontier: Frontier | TidemarkError | None,
        delivering: Delivering | TidemarkError | None,
    ) -> dict[str, Part]:
        """Only what other stores know is known."""
        return {
            **self._copies.unknown(untold(error)),
            "pipeline": await self._pipeline_part(frontier, None, None),
            "delivery": await self._delivery.part(delivering, None),
        }

    async def _frontier(self) -> Frontier | None:
        return await self._watch.look() if self._views.has_any else None

    def _ledger_part(self, head: Head | TidemarkError) -> Part:
        if isinstance(head, TidemarkError):
            return Part("unavailable", head.message)
        self._metrics.saw_sequence(head.last_sequence)
        received_at = format_timestamp(head.received_at) if head.received_at else None
        return Part("ready", "", str(head.last_sequence), received_at)

    def _live_part(self) -> Part:
        """Never the reason for a 503 either."""
        if self._live is None:
            return Part("disabled", "there is nothing to subscribe to, or live.enabled is false")
        return self._live()

    async def _pipeline_part(
        self,
        frontier: Frontier | TidemarkError | None,
        head: Head | None,
        said: CopyState | None,
    ) -> Part:
        """How far the views are. Events can be taken without them, so they are never the reason
        for a 503. `said` is what the pipeline has told the ledger."""
        if not self._views.has_any:
            return Part("disabled", "there are no meters and no views")
        if isinstance(frontier, TidemarkError):
            return Part("degraded", frontier.message)
        received_at = None if frontier is None else format_timestamp(frontier.received_at)
        sequence = str(sequence_of_frontier(frontier))
        if head is None:
            return Part("degraded", UNMEASURED, sequence, received_at)
        progress = await self._watch.behind(frontier, head)
        self._metrics.saw_pipeline(progress)
        reason = stalled(progress, self._watch.unmoved_us)
        if frontier is not None and frontier.ledger_id != self._store.ledger_id:
            reason = "the views were made from another ledger"
        told = self._status.error()
        told_reason = reason_told(said, self._clock.wall_us()) if told is None else reason_of(told)
        reason = told_reason or reason
        return Part(
            "degraded" if reason else "ready",
            reason,
            sequence,
            received_at,
            str(progress.lag_events),
            round(progress.lag_seconds, 3),
        )


def stalled(progress: Progress, unmoved_us: int) -> str:
    """Why a pipeline that says nothing must be taken to stand still; empty if it need not."""
    unmoved_s = unmoved_us // MICROS_PER_SECOND
    if min(progress.lag_seconds, unmoved_s) < STALLED_AFTER_S:
        return ""
    return (
        f"it has not moved on for {unmoved_s} s, though there is something to fold. See whether"
        " `tidemark pipeline` runs; `tidemark up` runs it beside the server."
    )


async def _outcome(work: Awaitable[T], within_s: float = ANSWER_TIMEOUT_S) -> T | TidemarkError:
    """What comes of a question to a store, in time or not.

    Its end is not waited for then: a driver whose server hangs takes long to be cancelled.
    """
    asked = asyncio.ensure_future(work)
    try:
        await asyncio.wait((asked,), timeout=within_s)
        return asked.result() if asked.done() else TidemarkError(f"no answer within {within_s:g} s")
    except TidemarkError as error:
        return error
    finally:
        # Nobody is left who would take an error of it.
        asked.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        asked.cancel()


def _clock_part(outcome: TidemarkError | None) -> Part:
    return Part("ready") if outcome is None else Part("unavailable", reason_of(outcome))


def _for_strangers(part: Part) -> Part:
    """The state without its reason, which may name the database, its host or its user."""
    return Part(part.state, _ASK_WITH_A_KEY if part.reason else "")
