"""Follows the log of changes and fills the outbox.

Each trigger has a position of its own. Those of one view that stand at the same place share what is
read, and one that lags catches up page by page without keeping the others waiting. Whatever comes
of a page is committed with the new position, or not at all: a crash anywhere repeats the page and
finds the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from tidemark.clock import Clock
from tidemark.errors import TidemarkError
from tidemark.live.errors import TriggersRefused, TriggersUnavailable
from tidemark.live.filters import FilterLimits
from tidemark.live.triggers.conditions import RuleOf, condition_of
from tidemark.live.triggers.definition import Trigger
from tidemark.live.triggers.event_ids import event_id, primary_key
from tidemark.live.triggers.payloads import payload
from tidemark.live.triggers.port import Advance, NewEvent, TriggerStore
from tidemark.live.triggers.transitions import Change, Condition, Transition, keys_in_doubt, step
from tidemark.pipeline.output.errors import ChangesForgotten, ViewsUnavailable
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.views.port import ViewsStore

log = logging.getLogger(__name__)

PAGE_CHANGES = 1_000
POLL_S = 0.1
# How soon the first trigger is noticed where there was none.
IDLE_POLL_S = 0.25
RETRY_S = 1.0


class TriggerEvaluator:
    """To be run by the process that leads. `events` counts what was enqueued, by trigger and type.

    `trouble` is why it stands still at the moment, if a store is away. `on_events` is called when
    there is something new in the outbox. `configured` names the views that the pipeline makes; a
    trigger on any other is disabled, and without it each waits for its view.
    """

    def __init__(
        self,
        views: ViewsStore,
        triggers: TriggerStore,
        rule_of: RuleOf,
        clock: Clock,
        *,
        id_prefix: str = "",
        limits: FilterLimits | None = None,
        page_changes: int = PAGE_CHANGES,
        poll_s: float = POLL_S,
        on_events: Callable[[], None] = lambda: None,
        configured: Collection[str] | None = None,
    ) -> None:
        self.events: Counter[tuple[str, str]] = Counter()
        self.changes_count = 0
        self.trouble: TidemarkError | None = None
        self._views = views
        self._triggers = triggers
        self._rule_of = rule_of
        self._clock = clock
        self._id_prefix = id_prefix
        self._limits = limits
        self._page_changes = page_changes
        self._poll_s = poll_s
        self._on_events = on_events
        self._configured = configured
        self._conditions: dict[int, tuple[ViewSchema, Condition]] = {}
        self._has_triggers = False

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            while True:
                pause_s = await self._patient_round()
                await asyncio.sleep(pause_s)
        finally:
            # Who does not follow any more has no trouble with it.
            self.trouble = None

    async def _patient_round(self) -> float:
        """Seconds until the next round, which begins at once while there is more to read."""
        try:
            has_more = await self.round()
        except (ViewsUnavailable, TriggersUnavailable) as error:
            if self.trouble is None:
                log.warning("triggers stand still: %s", error.message)
            self.trouble = error
            return RETRY_S
        self.trouble = None
        if has_more:
            return 0.0
        return self._poll_s if self._has_triggers else max(self._poll_s, IDLE_POLL_S)

    async def round(self) -> bool:
        """Move each trigger on by a page at most; says whether there is more to read."""
        triggers = _first_of_each_name(await self._triggers.unfinished())
        self._has_triggers = bool(triggers)
        self._forget_others(triggers)
        if not triggers:
            return False
        frontier = await self._views.frontier()
        if frontier is None:
            return False
        schemas = {schema.name: schema for schema in await self._views.declared()}
        groups: dict[tuple[str, int, int | None], list[Trigger]] = defaultdict(list)
        for trigger in triggers:
            if trigger.view not in schemas:
                # One that is configured will be made; any other would hold the log for ever.
                if self._configured is not None and trigger.view not in self._configured:
                    await self._halt(trigger, f"its view {trigger.view} is configured no more")
            # Views that are being rebuilt from the ledger come back to where the trigger was.
            elif trigger.position < frontier.received_at:
                groups[trigger.view, trigger.position, trigger.until].append(trigger)
        more = False
        for (view, _, _), group in groups.items():
            more = await self._follow(schemas[view], group) or more
        return more

    async def _follow(self, schema: ViewSchema, group: Sequence[Trigger]) -> bool:
        watching = [
            (trigger, condition)
            for trigger in group
            if (condition := await self._condition(schema, trigger)) is not None
        ]
        if not watching:
            return False
        start, until = group[0].position, group[0].until
        try:
            page = await self._views.read_changes(
                schema.name, start, until, limit=self._page_changes
            )
        except ChangesForgotten as error:
            for trigger, _ in watching:
                await self._halt(trigger, f"it lost its place: {error.message}")
            return False
        if page.scanned_to <= start:
            return False
        changes = [Change(schema, line) for line in page.changes]
        self.changes_count += len(changes)
        advances = []
        for trigger, condition in watching:
            advances.append(
                await self._advance(trigger, schema, condition, changes, page.scanned_to)
            )
            # Others that share the loop get their turn however many triggers there are.
            await asyncio.sleep(0)
        await self._commit(advances, {trigger.id: trigger for trigger, _ in watching})
        return not page.complete or page.scanned_to == until

    async def _advance(
        self,
        trigger: Trigger,
        schema: ViewSchema,
        condition: Condition,
        changes: Sequence[Change],
        end: int,
    ) -> Advance:
        doubtful = keys_in_doubt(condition, changes)
        done = step(condition, changes, await self._triggers.held(trigger.id, doubtful))
        now = self._clock.wall_us()
        return Advance(
            trigger.id,
            trigger.position,
            end,
            done.held,
            done.released,
            [
                new_event(trigger.name, schema, one, now, self._id_prefix)
                for one in done.transitions
            ],
        )

    async def _commit(self, advances: Sequence[Advance], triggers: dict[int, Trigger]) -> None:
        try:
            moved = await self._triggers.advance(advances)
        except TriggersRefused as error:
            if len(advances) == 1:
                await self._halt(triggers[advances[0].trigger_id], error.message)
                return
            # One of them is at fault, and the others shall not suffer for it.
            for one in advances:
                await self._commit([one], triggers)
            return
        for one in advances:
            if one.trigger_id in moved:
                name = triggers[one.trigger_id].name
                self.events.update((name, event.event_type) for event in one.events)
        if any(one.events for one in advances):
            self._on_events()

    async def _condition(self, schema: ViewSchema, trigger: Trigger) -> Condition | None:
        known = self._conditions.get(trigger.id)
        if known is not None and known[0] == schema:
            return known[1]
        try:
            condition = condition_of(schema, trigger, self._rule_of, self._limits)
        except TidemarkError as error:
            await self._halt(trigger, f"its condition cannot be used any more: {error.message}")
            return None
        self._conditions[trigger.id] = schema, condition
        return condition

    async def _halt(self, trigger: Trigger, reason: str) -> None:
        left = await self._triggers.halt(trigger.id, reason)
        if left is None or left.until is None:
            log.warning("trigger %s is disabled: %s", trigger.name, reason)
        else:
            log.warning(
                "trigger %s was replaced and ends early, at %d: %s",
                trigger.name,
                left.position,
                reason,
            )

    def _forget_others(self, triggers: Iterable[Trigger]) -> None:
        """What was compiled for triggers that are no more."""
        present = {trigger.id for trigger in triggers}
        for trigger_id in self._conditions.keys() - present:
            del self._conditions[trigger_id]


def new_event(
    trigger: str, schema: ViewSchema, transition: Transition, now: int, id_prefix: str = ""
) -> NewEvent:
    """What goes into the outbox for a transition."""
    identity = event_id(
        trigger, primary_key(schema, transition.row), transition.received_at, id_prefix
    )
    return NewEvent(
        identity,
        transition.event_type,
        transition.row_key,
        transition.received_at,
        payload(identity, trigger, transition, now),
        now,
    )


def _first_of_each_name(triggers: Iterable[Trigger]) -> list[Trigger]:
    """A trigger that has replaced another waits for it: their events are in order in the outbox."""
    first: dict[str, Trigger] = {}
    for trigger in triggers:
        first.setdefault(trigger.name, trigger)
    return list(first.values())
