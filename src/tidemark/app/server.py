"""The server: stores, HTTP application, background work."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeAlias

import uvicorn

from tidemark.app.live import Live
from tidemark.clock import MICROS_PER_SECOND, Clock, SystemClock
from tidemark.config import Config
from tidemark.errors import ConfigError, LedgerUnavailable, TidemarkError
from tidemark.ingress.decoder import Decoder
from tidemark.ingress.endpoint import IngestEndpoint
from tidemark.ledger.group_commit import GroupCommitter
from tidemark.ledger.opening import open_ledger
from tidemark.ledger.port import LedgerStore
from tidemark.ledger.ticker import run_ticker
from tidemark.ops.adjustments import Adjustments
from tidemark.ops.admin import Admin
from tidemark.ops.causality import Causality
from tidemark.ops.eventtime import EventtimeWatch
from tidemark.ops.explaining.endpoint import Explain
from tidemark.ops.frontier import FrontierWatch
from tidemark.ops.health import Health
from tidemark.ops.metrics import Metrics
from tidemark.ops.opened_views import OpenedViews
from tidemark.ops.pipeline_errors import PipelineErrors
from tidemark.ops.reference import Reference
from tidemark.ops.set_aside import SetAsideWatch
from tidemark.ops.tail import Tails
from tidemark.ops.usage import Usage
from tidemark.web.access import Access
from tidemark.web.application import Application, Route, SocketRoute
from tidemark.web.protocol import BoundedProtocol
from tidemark.web.wire import WiredProtocol

log = logging.getLogger(__name__)

Background: TypeAlias = Callable[[str], Coroutine[Any, Any, None]]
OnReady: TypeAlias = Callable[[str], Awaitable[None] | None]

GRACEFUL_STOP_S = 10
METRICS_PERIOD_S = 1.0
# How long a connection may go on for its next answer when the process has been told to stop.
LAST_ANSWERS_POLLS = 30
LAST_ANSWERS_POLL_S = 0.01


class Tidemark:
    """One process of Tidemark: opened stores, HTTP application, background work."""

    def __init__(
        self, config: Config, store: LedgerStore, views: OpenedViews, clock: Clock
    ) -> None:
        metrics = self._metrics = Metrics()
        decoder = Decoder(config, store.salt)
        self._store = store
        self._committer = GroupCommitter(
            store,
            decoder.resolve,
            metrics,
            max_group_events=config.ledger.max_group_events,
            max_queued_events=config.ledger.max_queued_events,
        )
        metrics.watch_queue(lambda: self._committer.queued_events)
        ingest = IngestEndpoint(
            decoder,
            self._committer,
            metrics,
            clock,
            max_body_bytes=config.http.max_body_bytes,
            max_inflight_bytes=config.http.max_inflight_bytes,
        )
        self._views = views
        self._watch = FrontierWatch(views, store, clock)
        self._eventtime = EventtimeWatch(config, views, metrics.eventtime)
        self._set_aside = SetAsideWatch(views, metrics.set_aside)
        usage = Usage(views, self._watch, clock)
        adjustments = Adjustments(views, self._watch)
        errors = PipelineErrors(views)
        admin = Admin(store)
        causality = Causality(store)
        live = Live(config, views, clock) if config.live.enabled and views.has_any else None
        self._live = live
        explain = Explain(config, store, views, live.triggers if live else None, clock)
        health = self._health = Health(
            config,
            store,
            views,
            self._watch,
            metrics,
            clock,
            live=None if live is None else live.health,
            triggering=None if live is None else live.triggering,
            triggers=lambda: None if live is None else live.opened_triggers,
        )
        metrics.watch_parts(health.measured)
        reference = Reference(config)
        self._tails = Tails(store, clock)
        self._tick_us = config.ledger.tick_us if needs_clock(config) else None
        self._background: list[asyncio.Task[None]] = []
        self._stopped = False
        self.application = Application(
            Access(config),
            [
                Route("POST", "/v1/events", ingest.post, ("ingest", "control")),
                Route("GET", "/v1/usage", usage.list_usage, ("read",)),
                Route("GET", "/v1/adjustments", adjustments.list_adjustments, ("read",)),
                Route("GET", "/admin/events", admin.list_events, ("read",)),
                Route("GET", "/admin/events/{tenantId}/{key}", admin.get_event, ("read",)),
                Route("GET", "/admin/causality/{key...}", causality.get_run, ("read",)),
                Route("GET", "/admin/rejects", admin.list_rejects, ("read",)),
                Route("GET", "/admin/pipeline-errors", errors.list_errors, ("read",)),
                Route("GET", "/admin/explain", explain.explain, ("read",)),
                Route("GET", "/admin/event-health", health.event_health, ("read",)),
                Route("POST", "/admin/clock/confirm", admin.confirm_clock, ("admin",)),
                Route("GET", "/healthz", health.healthz),
                Route("GET", "/readyz", health.readyz),
                Route("GET", "/metrics", metrics.get),
                Route("GET", "/openapi.json", reference.openapi),
                Route("GET", "/docs", reference.page),
                Route("GET", "/", reference.to_page),
                *(self._live.routes() if self._live is not None else ()),
            ],
            [
                SocketRoute("/admin/events/tail", self._tails.handle, ("read",)),
                *(self._live.sockets() if self._live is not None else ()),
            ],
            startup=self.start,
            shutdown=self.stop,
        )

    async def start(self) -> None:
        # The ledger was there a moment ago. If it is away now, it may come back as at any time.
        with contextlib.suppress(LedgerUnavailable):
            self._metrics.saw_sequence((await self._store.head()).last_sequence)
        self._committer.start()
        self._background.append(asyncio.create_task(self._keep_metrics_current()))
        self._background.append(asyncio.create_task(self._health.listen()))
        if self._views.has_any or self._eventtime.is_kept:
            self._background.append(asyncio.create_task(self._watch_pipeline()))
        if self._live is not None:
            self._live.start()
            self._background.append(asyncio.create_task(self._watch_outbox(self._live)))
        if self._tick_us is not None:
            self._background.append(asyncio.create_task(run_ticker(self._store, self._tick_us)))

    async def stop(self) -> None:
        """Stopping loses nothing: what was taken is committed, and then the ledger can be closed.

        A second call does nothing.
        """
        if self._stopped:
            return
        self._stopped = True
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._tails.close()
        await self._health.close()
        if self._live is not None:
            await self._live.stop()
        await self._watch.close()
        await self._committer.close()

    async def _keep_metrics_current(self) -> None:
        while True:
            self._metrics.look_at_queue()
            if self._live is not None:
                self._live.report(self._metrics.live)
            await asyncio.sleep(METRICS_PERIOD_S)

    async def _watch_outbox(self, live: Live) -> None:
        """Apart from all other numbers: a store that hangs is not given up before a minute."""
        while True:
            with contextlib.suppress(TidemarkError):
                await live.report_outbox(self._metrics.live)
            await asyncio.sleep(METRICS_PERIOD_S)

    async def _watch_pipeline(self) -> None:
        while True:
            # Whoever asks is told that a store is away; here it will be there again some time.
            with contextlib.suppress(TidemarkError):
                progress = await self._watch.progress()
                self._metrics.saw_pipeline(progress)
                await self._eventtime.look(progress.frontier)
                await self._set_aside.look(progress.frontier)
            await asyncio.sleep(METRICS_PERIOD_S)

    async def end_waiting(self) -> None:
        """End what would go on for longer than a stop may take."""
        self._watch.end_waiting()
        await self._tails.close()
        if self._live is not None:
            await self._live.end_waiting()


def needs_clock(config: Config) -> bool:
    """Whether someone needs to know that time passed while nothing was sent.

    Streams with `idleAfter` do, and so does a stream that is written in order of time: its last
    events are released when a later commit says that nothing older will come.
    """
    idle = any(stream.idle_after_us is not None for stream in config.streams.values())
    return idle or bool(config.pipeline.ordered)


class _Server(uvicorn.Server):
    """Stops when told, says when it is ready, and ends websockets before it waits for requests."""

    def __init__(
        self,
        config: uvicorn.Config,
        tidemark: Tidemark,
        on_ready: Callable[[], Awaitable[None]],
        on_stop: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(config)
        self._tidemark = tidemark
        self._on_ready = on_ready
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            await self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._on_stop()
        await self._tidemark.end_waiting()
        await self._give_last_answers(sockets or [])
        await super().shutdown(sockets)

    async def _give_last_answers(self, sockets: list[socket.socket]) -> None:
        """Let each open connection end with an answer that says so.

        Closed at once, a connection on which a request is just arriving would break without a word.
        """
        for server in self.servers:
            server.close()
        for listener in sockets:
            listener.close()
        self.server_state.default_headers.append((b"connection", b"close"))
        for _ in range(LAST_ANSWERS_POLLS):
            if not self.server_state.connections:
                break
            await asyncio.sleep(LAST_ANSWERS_POLL_S)


async def serve(
    config: Config,
    *,
    sockets: list[socket.socket] | None = None,
    on_ready: OnReady | None = None,
    background: Sequence[Background] = (),
) -> None:
    """Run until SIGINT or SIGTERM, then stop cleanly and return.

    `background` coroutines are given the base URL when the server is ready and are cancelled when
    it stops.
    """
    clock = SystemClock()
    listening = sockets if sockets is not None else [listen(config.http.host, config.http.port)]
    async with contextlib.AsyncExitStack() as opened:
        for listener in listening:
            opened.callback(listener.close)
        # Whatever fails from here on, the ledger is closed, and after everything that writes to it.
        store = await open_ledger(config, clock)
        opened.push_async_callback(store.close)
        views = OpenedViews(config)
        opened.push_async_callback(views.close)
        await views.try_open()
        tidemark = Tidemark(config, store, views, clock)
        opened.push_async_callback(tidemark.stop)
        base_url = _base_url(listening[0])
        tasks: list[asyncio.Task[None]] = []

        async def ready() -> None:
            if on_ready is not None:
                result = on_ready(base_url)
                if result is not None:
                    await result
            tasks.extend(asyncio.create_task(work(base_url)) for work in background)

        async def stop_background() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        server = _Server(
            uvicorn.Config(
                tidemark.application,
                http=BoundedProtocol,
                ws=WiredProtocol,
                # What goes to many is framed once, for all; it cannot be compressed for each.
                ws_per_message_deflate=False,
                lifespan="on",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=GRACEFUL_STOP_S,
                ws_max_size=config.http.max_body_bytes,
                ws_ping_interval=config.live.heartbeat_us / MICROS_PER_SECOND,
            ),
            tidemark,
            on_ready=ready,
            on_stop=stop_background,
        )
        with contextlib.suppress(KeyboardInterrupt):
            await server.serve(sockets=listening)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, or an error that says who else may have the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="Stop what listens there, or set http.port (TIDEMARK_HTTP__PORT) to another port.",
            field="http.port",
        ) from error
    listener.setblocking(False)
    return listener


def _base_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
