"""Triggers as callers of GraphQL manage them: each caller its own, an operator all of them.

A trigger keeps the session of whoever made it, and sees no more rows than that session does. So a
caller who is held to some rows may manage only triggers that it made and that are held to the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tidemark.clock import Clock
from tidemark.errors import AccessDenied, NotFound
from tidemark.live.access import RowRules, Session, session_from_json, session_to_json
from tidemark.live.errors import InvalidTrigger, UnknownTrigger
from tidemark.live.filters import Filter, parse_filter
from tidemark.live.graphql import triggers_port as shown
from tidemark.live.triggers.conditions import RuleOf
from tidemark.live.triggers.definition import NewTrigger, Trigger, read_where, where_text
from tidemark.live.triggers.port import AttemptRecord, DeliveryRecord, TriggerStore
from tidemark.live.triggers.registration import SWITCHED_OFF, TriggerRegistry
from tidemark.pipeline.output.schema import ViewSchema

OF_CONFIGURATION: Final = "Change it in the configuration, under `triggers`."


def rule_of(rules: RowRules, schemas: Mapping[str, ViewSchema]) -> RuleOf:
    """Which rows a trigger sees: those of its creator, all if the configuration declares it."""

    def rule(trigger: Trigger | NewTrigger) -> Filter:
        schema = schemas.get(trigger.view)
        if schema is None:
            raise InvalidTrigger(f"there is no view {trigger.view}", field="view")
        if trigger.creator is None:
            return parse_filter(schema, {})
        return rules.rule(trigger.view, session_from_json(trigger.creator))

    return rule


class TriggerDesk:
    """The `TriggersPort` of a deployment."""

    def __init__(self, registry: TriggerRegistry, store: TriggerStore, clock: Clock) -> None:
        self._registry = registry
        self._store = store
        self._clock = clock

    async def create(self, session: Session, view: str, trigger: shown.NewTrigger) -> shown.Trigger:
        unmatch = None if trigger.unmatch is None else where_text(trigger.unmatch)
        made = await self._registry.create(
            NewTrigger(
                trigger.name,
                view,
                trigger.webhook,
                where_text(trigger.match),
                unmatch,
                session_to_json(session),
            )
        )
        return _shown(made)

    async def delete(self, session: Session, view: str | None, name: str) -> shown.Trigger:
        trigger = await self._own(session, view, name)
        return _shown(await self._store.remove(name, lineage=trigger.lineage))

    async def enable(self, session: Session, view: str, name: str) -> shown.Trigger:
        trigger = await self._not_switched_off(session, view, name)
        return _shown(await self._store.set_enabled(name, True, lineage=trigger.lineage))

    async def disable(self, session: Session, view: str, name: str) -> shown.Trigger:
        trigger = await self._own(session, view, name)
        return _shown(await self._store.set_enabled(name, False, lineage=trigger.lineage))

    async def restart(self, session: Session, view: str, name: str) -> shown.Trigger:
        trigger = await self._not_switched_off(session, view, name)
        return _shown(await self._registry.restart(name, lineage=trigger.lineage))

    async def listed(self, session: Session, view: str | None) -> list[shown.Trigger]:
        found = await self._store.listed(view=view)
        rule_of = self._registry.rule_of
        return [_shown(trigger) for trigger in found if may_see(session, trigger, rule_of)]

    async def find(self, session: Session, view: str | None, name: str) -> shown.Trigger | None:
        try:
            return _shown(await self._visible(session, view, name))
        except NotFound:
            return None

    async def deliveries(
        self,
        session: Session,
        view: str,
        name: str,
        *,
        status: shown.DeliveryStatus | None,
        limit: int,
        after: str | None,
        with_attempts: bool,
    ) -> shown.DeliveryPage:
        trigger = await self._visible_with_rows(session, view, name)
        page = await self._store.deliveries(
            name, status=status, after=_cursor(after), limit=limit, lineage=trigger.lineage
        )
        ids = [record.outbox_id for record in page.deliveries]
        attempts = await self._store.attempts(ids) if with_attempts else {}
        return shown.DeliveryPage(
            [_delivery(one, attempts.get(one.outbox_id, [])) for one in page.deliveries],
            None if page.next_cursor is None else str(page.next_cursor),
        )

    async def redeliver(self, session: Session, view: str, name: str, event_id: str | None) -> int:
        trigger = await self._visible_with_rows(session, view, name)
        now = self._clock.wall_us()
        return await self._store.redeliver(name, event_id, now, lineage=trigger.lineage)

    async def _visible(self, session: Session, view: str | None, name: str) -> Trigger:
        try:
            trigger = await self._store.get(name)
        except UnknownTrigger:
            trigger = None
        # One that is not theirs to see is as if it were not there.
        if (
            trigger is None
            or view not in (None, trigger.view)
            or not may_see(session, trigger, self._registry.rule_of)
        ):
            raise NotFound(
                "there is no trigger of this name"
                if view is None
                else f"the view {view} has no trigger of this name",
                field="name",
                hint=f"`{'triggers' if view is None else f'{view}_triggers'}` lists those there"
                " are.",
            )
        return trigger

    async def _visible_with_rows(self, session: Session, view: str, name: str) -> Trigger:
        """One whose events, which have rows of the view, may be seen by those who see the view."""
        trigger = await self._visible(session, view, name)
        self._registry.rule_of(as_made_by(session, trigger))
        return trigger

    async def _own(self, session: Session, view: str | None, name: str) -> Trigger:
        """One that is to be changed."""
        trigger = await self._visible(session, view, name)
        if trigger.origin == "config":
            raise _of_configuration(name)
        return trigger

    async def _not_switched_off(self, session: Session, view: str, name: str) -> Trigger:
        """One that may go on, as far as the configuration is concerned."""
        trigger = await self._visible(session, view, name)
        if trigger.origin == "config" and trigger.disabled_reason == SWITCHED_OFF:
            raise _of_configuration(name)
        return trigger


def may_see(session: Session, trigger: Trigger, rule_of: RuleOf) -> bool:
    """Whether a trigger is theirs to know of: they made it and see the same rows, or see all."""
    if not session.by_token and session.tenants is None:
        return True
    if trigger.creator is None or not session.is_somebody:
        return False
    creator = session_from_json(trigger.creator)
    if (creator.name, creator.by_token, creator.tenants) != (
        session.name,
        session.by_token,
        session.tenants,
    ):
        return False
    return _rows_of(trigger, rule_of) == _rows_of(as_made_by(session, trigger), rule_of)


def as_made_by(session: Session, trigger: Trigger) -> Trigger:
    """The trigger as it would be if this session had made it."""
    return msgspec.structs.replace(trigger, creator=session_to_json(session))


def _rows_of(trigger: Trigger, rule_of: RuleOf) -> str | None:
    """Which rows it is held to; None if it sees none, for its view is gone or not shown."""
    try:
        return rule_of(trigger).key
    except (InvalidTrigger, AccessDenied):
        return None


def _of_configuration(name: str) -> InvalidTrigger:
    return InvalidTrigger(
        f"the trigger {name} is declared in the configuration", hint=OF_CONFIGURATION, field="name"
    )


def _cursor(after: str | None) -> int | None:
    if after is None:
        return None
    if not after.isascii() or not after.isdecimal() or len(after) > 18:
        raise InvalidTrigger(
            "`after` is no cursor of this list",
            hint="Pass the `next_cursor` of the page before.",
            field="after",
        )
    return int(after)


def _shown(trigger: Trigger) -> shown.Trigger:
    return shown.Trigger(
        name=trigger.name,
        view=trigger.view,
        webhook=trigger.webhook,
        match=read_where(trigger.match),
        unmatch=None if trigger.unmatch is None else read_where(trigger.unmatch),
        since=trigger.since,
        until=trigger.until,
        enabled=trigger.enabled,
        disabled_reason=trigger.disabled_reason,
    )


def _delivery(record: DeliveryRecord, attempts: Sequence[AttemptRecord]) -> shown.Delivery:
    return shown.Delivery(
        event_id=record.event_id,
        trigger_name=record.trigger,
        event_type=record.event_type,
        row_key=record.row_key,
        source_timestamp=record.received_at,
        status=record.status,
        attempts=record.attempts,
        created_at=record.created_at,
        next_attempt_at=record.next_attempt_at,
        delivered_at=record.settled_at if record.status == "delivered" else None,
        response_status=record.last_status,
        last_error=record.last_error,
        payload=msgspec.Raw(record.payload),
        last_attempts=[
            shown.Attempt(one.attempted_at, one.status, one.http_status, one.error)
            for one in attempts
        ],
    )
