"""`GET /admin/explain`: what became of one event, and why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidemark.clock import Clock
from tidemark.config import Config
from tidemark.errors import TidemarkError
from tidemark.ingress.identity import Identity
from tidemark.ledger.event_json import event_view, reject_view
from tidemark.ledger.port import EventRow, LedgerStore, RejectRow
from tidemark.live.access import RowRules, session_of
from tidemark.live.triggers.desk import may_see, rule_of
from tidemark.live.triggers.port import TriggerStore
from tidemark.ops.explaining.answering import answer_of, answer_of_reject
from tidemark.ops.explaining.contents import content_of
from tidemark.ops.explaining.event_times import Reached
from tidemark.ops.explaining.finding import EXPLAIN_PARAMETERS, find
from tidemark.ops.explaining.gathering import (
    MOST_ADJUSTMENTS,
    MOST_WINDOWS,
    InViews,
    holds,
    look_into_views,
    windows_of,
)
from tidemark.ops.explaining.in_ledger import (
    MOST_CORRECTIONS,
    MOST_REFUSALS,
    InLedger,
    look_at_time,
    look_into_ledger,
)
from tidemark.ops.explaining.origins import key_origin
from tidemark.ops.explaining.shape import (
    EventExplained,
    PipelineShown,
    RejectExplained,
    TimeShown,
    adjustments_shown,
    commit_shown,
    corrections_shown,
    identity_shown,
    meter_shown,
    mirrored_shown,
    table_shown,
    trigger_shown,
    view_shown,
)
from tidemark.ops.explaining.triggering import (
    MovedRow,
    Telling,
    TriggerFinding,
    look_into_triggers,
    moved_rows,
)
from tidemark.ops.explaining.window_shape import window_shown
from tidemark.ops.frontier import sequence_of_frontier
from tidemark.ops.opened_views import OpenedViews
from tidemark.ops.pipeline_errors import error_entry
from tidemark.pipeline.output.errors import ViewsError
from tidemark.pipeline.time.messages import record_streams
from tidemark.pipeline.time.plans import plan_of
from tidemark.timestamps import format_timestamp
from tidemark.web.access import Caller
from tidemark.web.messages import Request, Response, json_response


class Explain:
    """The handler, over ledger, views and triggers; None where triggers are not served."""

    def __init__(
        self,
        config: Config,
        ledger: LedgerStore,
        views: OpenedViews,
        triggers: Callable[[], Awaitable[TriggerStore]] | None,
        clock: Clock,
    ) -> None:
        self._config = config
        self._triggers = triggers
        self._clock = clock
        self._streams = config.streams
        self._plan = plan_of(config)
        self._has_records = bool(record_streams(config))
        self._identity = Identity(ledger.salt)
        self._ledger = ledger
        self._views = views

    async def explain(self, request: Request) -> Response:
        query = request.query(EXPLAIN_PARAMETERS)
        found = await find(self._ledger, query, request.caller)
        if isinstance(found, RejectRow):
            return json_response(await self._explain_reject(found))
        return json_response(await self._explain_event(found, request.caller))

    async def _explain_reject(self, reject: RejectRow) -> RejectExplained:
        original = None
        if reject.tenant_id is not None and reject.idempotency_key is not None:
            original = await self._ledger.find_event(reject.tenant_id, reject.idempotency_key)
        return RejectExplained(
            answer=answer_of_reject(reject),
            reject=reject_view(reject),
            original=None if original is None else event_view(original),
        )

    async def _explain_event(self, event: EventRow, caller: Caller) -> EventExplained:
        found = await look_into_ledger(self._ledger, event)
        pipeline, views = await self._look_into_views(found)
        frontier = None if pipeline.frontier is None else int(pipeline.frontier)
        rows = [] if views is None else moved_rows(views)
        triggers, untold = await self._look_into_triggers(rows, caller)
        explained = EventExplained(
            answer=answer_of(found, views, pipeline.reason, triggers),
            event=event_view(event),
            identity=identity_shown(key_origin(event, self._identity, self._streams)),
            commit=commit_shown(found),
            pipeline=pipeline,
            time=self._time_of(event),
            mirrored=mirrored_shown(found, self._config.mirror.topic_prefix),
            original=None if found.original is None else event_view(found.original),
            corrections=corrections_shown(found.corrections, frontier),
            refusals=[reject_view(row) for row in found.refusals],
            views=[view_shown(row) for row in rows],
            triggers=[trigger_shown(finding) for finding in triggers],
            notes=[*_cut_off(found, views), *untold],
        )
        if views is not None:
            explained.errors = [error_entry(row) for row in views.errors]
            explained.meters = [meter_shown(finding) for finding in views.meters]
            explained.tables = [table_shown(finding) for finding in views.tables]
            explained.windows = [window_shown(finding) for finding in views.windows]
            explained.adjustments = adjustments_shown(views)
        return explained

    async def _look_into_views(self, found: InLedger) -> tuple[PipelineShown, InViews | None]:
        """What the ledger knows is answered also while the views are away."""
        if not self._views.has_any:
            return PipelineShown(None, reason="There are no meters and no views."), None
        try:
            store = await self._views.store()
            frontier = await store.frontier()
            sequence = sequence_of_frontier(frontier)
            if frontier is not None and frontier.ledger_id != self._ledger.ledger_id:
                return PipelineShown(None, reason="The views were made from another ledger."), None
            if not holds(frontier, found.event):
                waits = f"The pipeline has not come to it: the views are at {sequence}."
                return PipelineShown(False, str(sequence), waits), None
            reached = await self._reached(found)
            views = await look_into_views(store, self._views.definitions, found, reached)
        except ViewsError as error:
            return PipelineShown(None, reason=_told(error)), None
        return PipelineShown(True, str(sequence)), views

    async def _reached(self, found: InLedger) -> Reached:
        """How far time had come before the event's commit, where some window goes by it."""
        time = self._plan.streams.get(found.event.stream)
        if time is None or not windows_of(self._views.definitions, found.event):
            return Reached(None, is_exact=False)
        reached = await look_at_time(self._ledger, found, time)
        if time.column is not None and self._has_records:
            # They may stand in the time of this stream, too.
            return Reached(reached.watermark, is_exact=False)
        return reached

    async def _look_into_triggers(
        self, rows: list[MovedRow], caller: Caller
    ) -> tuple[list[TriggerFinding], list[str]]:
        """What triggers made of the rows; or why that is not told."""
        if not rows or self._triggers is None:
            return [], []
        if "triggers" not in caller.scopes:
            return [], ["Of triggers only keys with the scope `triggers` are told."]
        schemas = {row.schema.name: row.schema for row in rows}
        session = session_of(caller)
        try:
            rules = RowRules(self._config, list(schemas.values()))
            rule = rule_of(rules, schemas)
            telling = Telling(
                may_see=lambda trigger: may_see(session, trigger, rule),
                rule_of=rule,
                id_prefix=self._config.webhooks.id_prefix or "",
                kept_since=self._clock.wall_us() - self._config.webhooks.history_us,
            )
            return await look_into_triggers(await self._triggers(), rows, telling), []
        except TidemarkError as error:
            return [], [f"Nothing is known of triggers: {error.message}."]

    def _time_of(self, event: EventRow) -> TimeShown:
        time = self._plan.streams.get(event.stream)
        shown = TimeShown(self._plan.name, format_timestamp(event.occurred_at))
        content = content_of(event)
        if time is not None and time.column is not None:
            shown.column, shown.type = time.column, time.type
            shown.value = None if content is None else content.members.get(time.column)
        return shown


def _told(error: TidemarkError) -> str:
    return f"The views cannot be read: {error.message}."


def _cut_off(found: InLedger, views: InViews | None) -> list[str]:
    """Where a search ended at its bound."""
    notes = []
    if len(found.corrections) == MOST_CORRECTIONS:
        notes.append(f"Only the first {MOST_CORRECTIONS} corrections are looked at.")
    if len(found.refusals) == MOST_REFUSALS:
        notes.append(f"Only the last {MOST_REFUSALS} refusals with its key are listed.")
    if not found.neighbours_complete:
        notes.append(
            "Its commit has more events for the same customer or stream than are looked at."
        )
    if views is not None and len(views.adjustments) >= MOST_ADJUSTMENTS:
        notes.append(f"Only the first {MOST_ADJUSTMENTS} adjustments are listed.")
    if views is not None and any(finding.left_out for finding in views.windows):
        notes.append(f"Of windows that overlap only the last {MOST_WINDOWS} are looked at.")
    return notes
