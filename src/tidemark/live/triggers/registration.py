"""Makes triggers, and keeps those of the configuration as it declares them.

A trigger begins at the frontier of the views. Nothing has to be read for that: rows that match by
then are known by what they are before their next change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from tidemark.clock import Clock
from tidemark.errors import TidemarkError
from tidemark.live.errors import InvalidTrigger, TriggerExists, TriggersUnavailable
from tidemark.live.filters import FilterLimits
from tidemark.live.triggers.conditions import RuleOf, condition_of
from tidemark.live.triggers.definition import NewTrigger, Trigger
from tidemark.live.triggers.port import TriggerStore
from tidemark.pipeline.output.errors import ViewsUnavailable
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.views.port import ViewsStore

SWITCHED_OFF = "it is switched off in the configuration"


class DeclaredTrigger(msgspec.Struct, frozen=True):
    """A trigger of the configuration; its origin is `config`."""

    trigger: NewTrigger
    enabled: bool = True


class Synced(msgspec.Struct, frozen=True):
    """What has become of the triggers of the configuration, by name.

    Those in `waiting` are as they were, because their view is not there yet, and so are those in
    `faults`, with why.
    """

    added: list[str] = []
    changed: list[str] = []
    removed: list[str] = []
    waiting: list[str] = []
    faults: dict[str, TidemarkError] = {}


class TriggerRegistry:
    """`check_webhook` raises for an address that must not be called.

    `rule_of` says which rows the creator of a trigger sees.
    """

    def __init__(
        self,
        views: ViewsStore,
        triggers: TriggerStore,
        rule_of: RuleOf,
        clock: Clock,
        *,
        check_webhook: Callable[[str], object],
        limits: FilterLimits | None = None,
    ) -> None:
        self._views = views
        self._triggers = triggers
        self.rule_of = rule_of
        self._clock = clock
        self._check_webhook = check_webhook
        self._limits = limits

    async def create(self, trigger: NewTrigger) -> Trigger:
        """A trigger that has events for every change from now on.

        Raises `InvalidTrigger`, `InvalidFilter`, `WebhookRefused`, `TriggerExists` or
        `TooManyTriggers`.
        """
        self._check(trigger, await self._schemas())
        return await self._triggers.add(trigger, await self._now(), self._clock.wall_us())

    async def restart(self, name: str, *, lineage: int | None = None) -> Trigger:
        """The same trigger, enabled, beginning anew at the frontier: for one that lost its place.

        What a disabled one has missed it will never have events for. Raises `UnknownTrigger`, also
        if the name has come to be that of another lineage, or as `create` does.
        """
        old = await self._triggers.get(name)
        new = NewTrigger(
            old.name, old.view, old.webhook, old.match, old.unmatch, old.creator, old.origin
        )
        self._check(new, await self._schemas())
        return await self._triggers.replace(
            new, await self._now(), self._clock.wall_us(), lineage=lineage
        )

    async def sync_declared(self, declared: Sequence[DeclaredTrigger]) -> Synced:
        """Make the triggers of the configuration what it declares; those of others stay.

        One with another meaning takes the place of the old one, from now on; another webhook alone
        changes only where events are sent. `declared` is all that the configuration has, since what
        it lacks is removed. To be called by the process that leads, and again while any are
        `waiting` or have `faults`. One that is at fault keeps no other from being followed; raises
        only when a store does not answer.
        """
        schemas = await self._schemas()
        present = {trigger.name: trigger for trigger in await self._triggers.listed()}
        synced = Synced()
        wanted = {one.trigger.name for one in declared}
        for name, old in present.items():
            if old.origin == "config" and name not in wanted:
                await self._triggers.remove(name, lineage=old.lineage)
                synced.removed.append(name)
        for one in declared:
            name = one.trigger.name
            try:
                _check_name(one.trigger, present.get(name))
                if one.trigger.view not in schemas:
                    synced.waiting.append(name)
                    continue
                self._check(one.trigger, schemas)
                await self._sync(one, present.get(name), synced)
            except (TriggersUnavailable, ViewsUnavailable):
                raise
            except TidemarkError as error:
                synced.faults[name] = error
        return synced

    async def _sync(self, one: DeclaredTrigger, old: Trigger | None, synced: Synced) -> None:
        new = one.trigger
        reason = None if one.enabled else SWITCHED_OFF
        if old is None:
            await self._triggers.add(
                new, await self._now(), self._clock.wall_us(), disabled_reason=reason
            )
            synced.added.append(new.name)
        elif old.meaning != new.meaning:
            await self._triggers.replace(
                new, await self._now(), self._clock.wall_us(), disabled_reason=reason
            )
            synced.changed.append(new.name)
        elif old.webhook != new.webhook:
            await self._triggers.set_webhook(new.name, new.webhook, disabled_reason=reason)
            synced.changed.append(new.name)
        elif old.enabled and not one.enabled:
            await self._triggers.set_enabled(new.name, False, SWITCHED_OFF)
        elif one.enabled and old.disabled_reason == SWITCHED_OFF:
            await self._triggers.set_enabled(new.name, True)

    def _check(self, trigger: NewTrigger, schemas: dict[str, ViewSchema]) -> None:
        self._check_webhook(trigger.webhook)
        schema = schemas.get(trigger.view)
        if schema is None:
            raise InvalidTrigger(
                f"trigger {trigger.name}: there is no view {trigger.view}",
                hint=f"There are {', '.join(sorted(schemas)) or 'none yet'}.",
                field="view",
            )
        if not schema.logged:
            raise InvalidTrigger(
                f"trigger {trigger.name}: the view {trigger.view} keeps no changes to follow",
                hint="Take `live: false` from the view.",
                field="view",
            )
        condition_of(schema, trigger, self.rule_of, self._limits)

    async def _schemas(self) -> dict[str, ViewSchema]:
        return {schema.name: schema for schema in await self._views.declared()}

    async def _now(self) -> int:
        frontier = await self._views.frontier()
        return 0 if frontier is None else frontier.received_at


def _check_name(trigger: NewTrigger, present: Trigger | None) -> None:
    if present is not None and present.origin != "config":
        raise TriggerExists(
            f"the trigger {trigger.name} of the configuration has the name of one that was made"
            " by a client",
            hint="Rename one of them, or remove the client's.",
            field="name",
        )
