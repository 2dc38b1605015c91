"""Triggers at work: one process of a deployment evaluates them and delivers their events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.config import Config
from tidemark.errors import TidemarkError
from tidemark.live.access import RowRules
from tidemark.live.errors import InvalidTrigger, TriggersUnavailable
from tidemark.live.filters import FilterLimits
from tidemark.live.triggers.definition import NewTrigger, where_text
from tidemark.live.triggers.desk import TriggerDesk, rule_of
from tidemark.live.triggers.evaluation import TriggerEvaluator
from tidemark.live.triggers.leader_reports import LeaderReports
from tidemark.live.triggers.leading import while_leading
from tidemark.live.triggers.port import TriggerStore
from tidemark.live.triggers.registration import DeclaredTrigger, TriggerRegistry
from tidemark.live.webhooks.addresses import Allowance
from tidemark.live.webhooks.delivery import Deliverer
from tidemark.live.webhooks.settings import (
    configured_limits,
    configured_schedule,
    configured_sender,
)
from tidemark.live.webhooks.targets import check_url
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.views.port import ViewsStore

log = logging.getLogger(__name__)

PRUNE_EVERY_S: Final = 60.0
SYNC_AGAIN_S: Final = 5.0
STOP_MARGIN_S: Final = 1.0
NO_SECRET: Final = "there is no secret to sign webhooks with"
SECRET_HINT: Final = "Put one under `webhooks.secrets`; `tidemark keygen --webhook` makes one."


class Automation:
    """All that triggers do. `run` works whenever no other process does."""

    def __init__(
        self,
        config: Config,
        schemas: Mapping[str, ViewSchema],
        rules: RowRules,
        views: ViewsStore,
        triggers: TriggerStore,
        clock: Clock,
        limits: FilterLimits,
    ) -> None:
        self._config = config
        self._triggers = triggers
        self._clock = clock
        webhooks = config.webhooks
        self._allow = Allowance(webhooks.allow)
        self._signs = bool(webhooks.secrets)
        rule = rule_of(rules, schemas)
        self.registry = TriggerRegistry(
            views, triggers, rule, clock, check_webhook=self._check_webhook, limits=limits
        )
        self.desk = TriggerDesk(self.registry, triggers, clock)
        self.evaluator = TriggerEvaluator(
            views,
            triggers,
            rule,
            clock,
            configured=set(config.view_names),
            id_prefix=webhooks.id_prefix or "",
            limits=limits,
            poll_s=config.live.poll_us / MICROS_PER_SECOND,
            on_events=self._wake_delivery,
        )
        self.deliverer: Deliverer | None = None
        self._may_finish = False
        self._declared_fault: TidemarkError | None = None
        self._unsigned: TidemarkError | None = None
        self.leads = False
        self._reports = LeaderReports(triggers, clock, self._own_trouble)

    @property
    def trouble(self) -> TidemarkError | None:
        """Why not every trigger does what it should, whichever process leads."""
        return self._own_trouble() if self.leads else self._reports.heard

    def _own_trouble(self) -> TidemarkError | None:
        return self.evaluator.trouble or self._declared_fault or self._unsigned

    async def run(self) -> None:
        """Work until cancelled; webhooks under way may then finish, for `live.drain`."""
        self._may_finish = False
        leading = asyncio.create_task(while_leading(self._triggers, self._work))
        listening = asyncio.create_task(self._reports.listen())
        both = (leading, listening)
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            # Unlike one that is no longer the leader, who must be quick.
            self._may_finish = True
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _work(self) -> None:
        tasks = [self._keep_declared(), self.evaluator.run(), self._forget_old()]
        tasks.append(self._reports.tell())
        tasks.append(self._deliver() if self._signs else self._tell_of_unsigned())
        self.leads = True
        try:
            async with asyncio.TaskGroup() as group:
                for task in tasks:
                    group.create_task(task)
        finally:
            # From now on another process knows.
            self.leads = False
            self._declared_fault = self._unsigned = None

    async def _keep_declared(self) -> None:
        """Makes the triggers of the configuration what it says, as soon as that is possible."""
        declared = declared_triggers(self._config)
        while True:
            try:
                synced = await self.registry.sync_declared(declared)
                self._note(next(iter(synced.faults.values()), None))
                # A view that the pipeline has not made yet will be there in a while.
                if not synced.waiting and not synced.faults:
                    return
            except TidemarkError as error:
                self._note(error)
            await asyncio.sleep(SYNC_AGAIN_S)

    def _note(self, fault: TidemarkError | None) -> None:
        before, self._declared_fault = self._declared_fault, fault
        if fault is not None and (before is None or before.message != fault.message):
            log.warning("not all triggers of the configuration are as it says: %s", fault.message)

    async def _tell_of_unsigned(self) -> None:
        """Without a secret nothing is sent, and what there is to send waits in the outbox."""
        while True:
            with suppress(TriggersUnavailable):
                if not any(trigger.enabled for trigger in await self._triggers.listed()):
                    self._unsigned = None
                elif self._unsigned is None:
                    reason = f"no event of any trigger is sent: {NO_SECRET}"
                    log.warning("%s", reason)
                    self._unsigned = TidemarkError(reason, hint=SECRET_HINT)
            await asyncio.sleep(SYNC_AGAIN_S)

    async def _deliver(self) -> None:
        webhooks = self._config.webhooks
        limits = configured_limits(webhooks)
        drain_s = min(limits.drain_s, self._config.live.drain_us / MICROS_PER_SECOND)
        async with configured_sender(webhooks, self._clock) as sender:
            deliverer = self.deliverer = Deliverer(
                self._triggers,
                sender,
                self._clock,
                configured_schedule(webhooks),
                msgspec.structs.replace(limits, drain_s=drain_s),
            )
            delivering = asyncio.create_task(deliverer.run())
            try:
                await asyncio.shield(delivering)
            except asyncio.CancelledError:
                if self._may_finish:
                    deliverer.stop()
                    # Once for attempts to end, once for what came of them to be written.
                    await asyncio.wait({delivering}, timeout=2 * drain_s + STOP_MARGIN_S)
                raise
            finally:
                self.deliverer = None
                delivering.cancel()
                await asyncio.gather(delivering, return_exceptions=True)

    async def _forget_old(self) -> None:
        while True:
            before = self._clock.wall_us() - self._config.webhooks.history_us
            with suppress(TriggersUnavailable):
                await self._triggers.prune(delivered_before=before, dead_before=before)
            await asyncio.sleep(PRUNE_EVERY_S)

    def _wake_delivery(self) -> None:
        if self.deliverer is not None:
            self.deliverer.wake()

    def _check_webhook(self, url: str) -> None:
        if not self._signs:
            raise InvalidTrigger(NO_SECRET, hint=SECRET_HINT, field="webhook")
        check_url(url, self._allow)


def declared_triggers(config: Config) -> Sequence[DeclaredTrigger]:
    """The triggers that the configuration has, by name."""
    return [
        DeclaredTrigger(
            NewTrigger(
                name,
                trigger.view,
                trigger.webhook,
                where_text(trigger.match),
                None if trigger.unmatch is None else where_text(trigger.unmatch),
                creator=None,
                origin="config",
            ),
            trigger.enabled,
        )
        for name, trigger in sorted(config.triggers.items())
    ]
