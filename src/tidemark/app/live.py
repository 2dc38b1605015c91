"""Everything live of a server: GraphQL, subscriptions, triggers and their webhooks.

What the views look like is known when the pipeline has made them, and a server does not wait for
that: who asks before is told to try again. When they are made anew with other columns, everything
here is built anew too, and subscribers connect again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tidemark.app.kept_running import KeptRunning
from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.config import Config
from tidemark.errors import RequestError, TidemarkError
from tidemark.live.access import Gatekeeper, RowRules
from tidemark.live.engine import BacklogLimits
from tidemark.live.graphql.configured import introspection, service_limits, trigger_management
from tidemark.live.graphql.described import described_views
from tidemark.live.graphql.endpoint import GraphqlEndpoint
from tidemark.live.graphql.page import GraphiqlPage
from tidemark.live.graphql.service import GraphqlService
from tidemark.live.hub import Hub, HubLimits
from tidemark.live.sockets.connection import ConnectionLimits
from tidemark.live.sockets.endpoint import GraphqlSockets
from tidemark.live.triggers.automation import Automation
from tidemark.live.triggers.opening import open_triggers
from tidemark.live.triggers.port import TriggerStore
from tidemark.ops.delivery import age_s
from tidemark.ops.live_metrics import LiveMetrics
from tidemark.ops.opened_views import OpenedViews
from tidemark.ops.parts import Part, reason_of
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.views.port import ViewsStore
from tidemark.web.application import Route, SocketRoute
from tidemark.web.messages import Request, Response
from tidemark.web.sockets import WebSocket

log = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 1.0
RETRY_AFTER_S: Final = 1
NOT_MADE_YET: Final = "the pipeline has not made any view yet"


class Serving(msgspec.Struct, frozen=True):
    """All parts over views of certain columns."""

    endpoint: GraphqlEndpoint
    sockets: GraphqlSockets
    hub: Hub
    hub_running: KeptRunning
    automation: Automation
    automation_running: KeptRunning


class Live:
    """Give its routes to an application, `start` it, and `stop` it before the stores are closed."""

    def __init__(self, config: Config, views: OpenedViews, clock: Clock) -> None:
        """Raises `ConfigError` if what tokens are verified with cannot be used."""
        self._config = config
        self._views = views
        self._clock = clock
        self._gatekeeper = Gatekeeper(config, clock)
        self._page = GraphiqlPage()
        self._wanted = set(config.view_names)
        self._schemas: dict[str, ViewSchema] = {}
        self._opening = asyncio.Lock()
        self._triggers: TriggerStore | None = None
        self._serving: Serving | None = None
        self._fault: TidemarkError | None = None
        self._looking = KeptRunning("the looks at the views", self._follow)
        self._tasks: list[asyncio.Task[None]] = []
        self._following: asyncio.Task[None] | None = None

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/graphql", self._get),
            Route("POST", "/graphql", self._post),
            Route("GET", "/graphql/assets/{name}", self._asset),
        ]

    def sockets(self) -> list[SocketRoute]:
        return [SocketRoute("/graphql", self._socket, ())]

    @property
    def serving(self) -> Serving | None:
        """What is served now; None as long as nothing is."""
        return self._serving

    @property
    def opened_triggers(self) -> TriggerStore | None:
        """The store of triggers, if somebody has opened it."""
        return self._triggers

    async def triggers(self) -> TriggerStore:
        """The store of triggers, opened by who asks first. Raises `TriggersUnavailable`."""
        if self._triggers is None:
            async with self._opening:
                if self._triggers is None:
                    self._triggers = await open_triggers(self._config)
        return self._triggers

    def start(self) -> None:
        self._following = asyncio.create_task(self._looking.run())

    def report(self, metrics: LiveMetrics) -> None:
        """Pass on what there is to count in this process."""
        metrics.saw_health(self.health().state != "degraded")
        serving = self._serving
        if serving is None:
            return
        metrics.saw_connections(serving.sockets.connections)
        metrics.saw_views(serving.hub.counts())
        automation = serving.automation
        metrics.saw_trigger_events(automation.evaluator.events)
        deliverer = automation.deliverer
        metrics.saw_deliveries(None if deliverer is None else deliverer.counters)

    async def report_outbox(self, metrics: LiveMetrics) -> None:
        """The same of what the store of triggers has, which may take long to answer."""
        if self._serving is None or self._triggers is None:
            return
        metrics.saw_outbox(await self._triggers.counts())
        now_us = self._clock.wall_us()
        oldest = await self._triggers.oldest_unsettled()
        metrics.saw_waiting({name: age_s(at, now_us) for name, at in oldest.items()})

    def health(self) -> Part:
        """Whether what is live is served, and triggers go on."""
        return self._health_by(self._troubles())

    def triggering(self) -> Part:
        """Whether triggers go on, whatever becomes of subscriptions in this process."""
        return self._health_by(self._trigger_troubles())

    def _health_by(self, troubles: Iterable[TidemarkError | None]) -> Part:
        for trouble in troubles:
            if trouble is not None:
                return Part("degraded", reason_of(trouble))
        return Part("disabled", NOT_MADE_YET) if self._serving is None else Part("ready")

    async def end_waiting(self) -> None:
        """End what would go on for longer than a stop may take."""
        if self._serving is not None:
            await self._serving.sockets.close()

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._stop_serving()
        if self._triggers is not None:
            await self._triggers.close()

    def _troubles(self) -> Iterator[TidemarkError | None]:
        yield from self._trigger_troubles()
        if self._serving is not None:
            yield self._serving.hub_running.trouble
            yield self._serving.hub.trouble

    def _trigger_troubles(self) -> Iterator[TidemarkError | None]:
        yield self._looking.trouble
        if self._serving is not None:
            yield self._serving.automation_running.trouble
            yield self._serving.automation.trouble
        yield self._fault

    async def _follow(self) -> None:
        """Serves the views as they are declared, and anew when that changes."""
        while True:
            try:
                await self._look()
            except TidemarkError as error:
                self._note(error)
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _look(self) -> None:
        store = await self._views.store()
        declared = await store.declared()
        schemas = {schema.name: schema for schema in declared if schema.name in self._wanted}
        if _shapes(schemas) == _shapes(self._schemas) or not schemas:
            self._fault = None
            return
        serving = self._built(store, await self.triggers(), schemas)
        await self._stop_serving()
        self._schemas = schemas
        self._serving = serving
        self._fault = None
        parts = (serving.hub_running, serving.automation_running)
        self._tasks = [asyncio.create_task(part.run()) for part in parts]

    async def _stop_serving(self) -> None:
        if self._serving is not None:
            await self._serving.sockets.close()
            self._serving = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _built(
        self, store: ViewsStore, triggers: TriggerStore, schemas: dict[str, ViewSchema]
    ) -> Serving:
        """Raises `ConfigError` for rules and names that do not fit the views."""
        config, live, clock = self._config, self._config.live, self._clock
        limits = service_limits(config)
        rules = RowRules(config, list(schemas.values()))
        automation = Automation(config, schemas, rules, store, triggers, clock, limits.filters)
        service = GraphqlService(
            described_views(config, schemas.values()),
            store,
            rule=rules.rule,
            clock=clock,
            triggers=automation.desk,
            may_introspect=introspection(config),
            may_manage_triggers=trigger_management,
            limits=limits,
        )

        async def opened() -> ViewsStore:
            return store

        hub = Hub(
            schemas,
            opened,
            poll_s=live.poll_us / MICROS_PER_SECOND,
            heartbeat_s=live.heartbeat_us / MICROS_PER_SECOND,
            limits=HubLimits(live.max_subscriptions, live.max_snapshot_rows),
        )
        sockets = GraphqlSockets(
            self._gatekeeper,
            service,
            hub,
            clock,
            limits=ConnectionLimits(
                max_subscriptions=live.max_subscriptions_per_connection,
                max_message_bytes=live.max_document_bytes,
                backlog=BacklogLimits(
                    merge_above_items=live.merge_above,
                    merge_above_bytes=live.merge_above_bytes,
                    close_above_items=live.close_above,
                    close_above_bytes=live.close_above_bytes,
                ),
            ),
            drain_s=live.drain_us / MICROS_PER_SECOND,
        )
        endpoint = GraphqlEndpoint(
            service, self._gatekeeper.authenticate, max_body_bytes=live.max_document_bytes
        )
        return Serving(
            endpoint,
            sockets,
            hub,
            KeptRunning("subscriptions", hub.run),
            automation,
            KeptRunning("triggers", automation.run),
        )

    def _note(self, error: TidemarkError) -> None:
        if self._fault is None or self._fault.message != error.message:
            log.warning("GraphQL is not served as configured: %s", error.message)
        self._fault = error

    def _required(self) -> Serving:
        if self._serving is None:
            fault = self._fault
            raise RequestError(
                NOT_MADE_YET if fault is None else fault.message,
                status=503,
                code="views_not_ready" if fault is None else fault.code,
                hint="Try again in a while; /readyz says how far the pipeline is."
                if fault is None
                else fault.hint,
                retry_after_s=RETRY_AFTER_S,
            )
        return self._serving

    async def _get(self, request: Request) -> Response:
        return await self._required().endpoint.get(request)

    async def _post(self, request: Request) -> Response:
        return await self._required().endpoint.post(request)

    async def _asset(self, request: Request) -> Response:
        return self._page.asset(request)

    async def _socket(self, socket: WebSocket) -> None:
        await self._required().sockets.handle(socket)


def _shapes(schemas: dict[str, ViewSchema]) -> list[ViewSchema]:
    """What readers go by. After a swap to the same columns, subscriptions go on."""
    return [
        msgspec.structs.replace(schemas[name], definition_hash="of no account")
        for name in sorted(schemas)
    ]
