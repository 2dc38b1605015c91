"""Triggers at work: one process of a deployment evaluates them and delivers their events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.config import Config
from tidemark.errors import TidemarkError
from tidemark.live.access import RowRules
from tidemark.live.errors import InvalidTrigger, TriggersUnavailable
from tidemark.live.filters import FilterLimits
from tidemark.live.triggers.definition import NewTrigger, where_text
from tidemark.live.triggers.desk import TriggerDesk, rule_of
from tidemark.live.triggers.evaluation import TriggerEvaluator
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
from tidemark.pipeline.output.errors import ViewsUnavailable
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.views.port import ViewsStore

log = logging.getLogger(__name__)

PRUNE_EVERY_S: Final = 60.0
SYNC_AGAIN_S: Final = 5.0


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
            id_prefix=webhooks.id_prefix or "",
            limits=limits,
            poll_s=config.live.poll_us / MICROS_PER_SECOND,
            on_events=self._wake_delivery,
        )
        self.deliverer: Deliverer | None = None

    async def run(self) -> None:
        """Work until cancelled."""
        await while_leading(self._triggers, self._work)

    async def _work(self) -> None:
        tasks = [self._keep_declared(), self.evaluator.run(), self._forget_old()]
        if self._signs:
            tasks.append(self._deliver())
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(task)

    async def _keep_declared(self) -> None:
        """Makes the triggers of the configuration what it says, as soon as that is possible."""
        declared = declared_triggers(self._config)
        while True:
            try:
                # A view that the pipeline has not made yet will be there in a while.
                if not (await self.registry.sync_declared(declared)).waiting:
                    return
            except (TriggersUnavailable, ViewsUnavailable) as error:
                log.warning("the triggers of the configuration wait: %s", error.message)
            except TidemarkError as error:
                log.error("the triggers of the configuration stay as they were: %s", error.message)
                return
            await asyncio.sleep(SYNC_AGAIN_S)

    async def _deliver(self) -> None:
        webhooks = self._config.webhooks
        async with configured_sender(webhooks, self._clock) as sender:
            self.deliverer = Deliverer(
                self._triggers,
                sender,
                self._clock,
                configured_schedule(webhooks),
                configured_limits(webhooks),
            )
            try:
                await self.deliverer.run()
            except asyncio.CancelledError:
                await self._stop_delivery(self.deliverer)
                raise
            finally:
                self.deliverer = None

    async def _stop_delivery(self, deliverer: Deliverer) -> None:
        """What was claimed and not sent is given back, so that the next to lead need not wait."""
        deliverer.stop()
        with suppress(TidemarkError, TimeoutError):
            async with asyncio.timeout(self._config.live.drain_us / MICROS_PER_SECOND):
                await deliverer.run()

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
            raise InvalidTrigger(
                "there is no secret to sign webhooks with",
                hint="Put one under `webhooks.secrets`; `tidemark keygen --webhook` makes one.",
                field="webhook",
            )
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
