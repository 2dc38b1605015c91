"""`tidemark up` and `tidemark serve`: run until Ctrl-C or SIGTERM, then stop cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from tidemark.cli.logs import log_to_stderr
from tidemark.cli.options import (
    API_KEY_VARIABLE,
    DEFAULT_URL,
    Configured,
    callable_url,
    config_option,
    configuration,
    json_option,
)
from tidemark.cli.outcome import ExitCode, error_document, usage_error
from tidemark.cli.output import pairs, program_name, write_json, write_line, write_lines
from tidemark.cli.stopping import hear_no_more, stop_on, told_again
from tidemark.errors import TidemarkError
from tidemark.ops.pipeline_status import PipelineStatus
from tidemark.ops.supervision import Supervised
from tidemark.ops.workers import inherited_socket, run_workers
from tidemark.pipeline.definitions import has_work

if TYPE_CHECKING:
    from tidemark.config import Config

log = logging.getLogger(__name__)

_READY_POLL_S = 0.1

Background = Callable[[str], Coroutine[Any, Any, None]]

host_option = click.option("--host", metavar="ADDRESS", help="Listen there and not on http.host.")
port_option = click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help="Listen there and not on http.port; 0 takes any that is free.",
)
workers_option = click.option(
    "--workers",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Serve with so many processes and not with http.workers.",
)


@click.command
@config_option
@host_option
@port_option
@workers_option
@click.option("--demo", is_flag=True, help="Also send sample traffic, about 20 events a second.")
@click.option(
    "--api-key",
    envvar=API_KEY_VARIABLE,
    metavar="KEY",
    help=f"The key for the sample traffic, where keys are needed. Default: ${API_KEY_VARIABLE}.",
)
@json_option
def up(
    config_path: Path | None,
    host: str | None,
    port: int | None,
    workers: int | None,
    demo: bool,
    api_key: str | None,
    as_json: bool,
) -> int:
    """Run everything in the foreground: the HTTP API, and the pipeline beside it.

    Prints where to look when it is ready. Ctrl-C or SIGTERM stops it: what was taken is committed
    first, and the exit code is 0. If the pipeline cannot run, events are still taken.
    """
    options = {"--host": host, "--port": port, "--workers": workers}
    configured = configuration(config_path, options)
    background = [_demo(configured.config, api_key)] if demo else []
    pipeline = _pipeline(configured, as_json=as_json)
    mirror = _mirror(configured, as_json=as_json)
    landing = _landing(configured, as_json=as_json)
    beside = [child for child in (pipeline, mirror, landing) if child is not None]
    return _run(configured, options, background, beside, as_json=as_json)


@click.command
@config_option
@host_option
@port_option
@workers_option
@json_option
def serve(
    config_path: Path | None,
    host: str | None,
    port: int | None,
    workers: int | None,
    as_json: bool,
) -> int:
    """Run the HTTP API only.

    The same as `up` for a deployment in which every part is a process of its own; the pipeline is
    then `tidemark pipeline`. Ctrl-C or SIGTERM stops it: what was taken is committed first, and the
    exit code is 0.
    """
    options = {"--host": host, "--port": port, "--workers": workers}
    configured = configuration(config_path, options)
    inherited = inherited_socket()
    if inherited is None:
        return _run(configured, options, [], [], as_json=as_json)
    log_to_stderr()

    def ready(address: str) -> None:
        told_again()

    with _stoppable():
        _serve(configured.config, sockets=[inherited], on_ready=ready)
    return ExitCode.OK


def _demo(config: Config, api_key: str | None) -> Background:
    """The sample traffic that this configuration can take."""
    from tidemark.ops.demo import DEMO_METRICS, TRADE_FIELDS, TRADES, USAGE, run_demo

    if config.auth.keys and not api_key:
        raise usage_error(
            "the sample traffic needs an API key, since the configuration has auth.keys",
            f"Give one with the scope ingest: --api-key, or ${API_KEY_VARIABLE}.",
            "api-key",
        )
    kinds = {
        USAGE: any(
            stream.kind == "usage"
            and not stream.fields
            and (stream.metrics is None or DEMO_METRICS.issubset(stream.metrics))
            for stream in config.streams.values()
        ),
        TRADES: TRADES in config.streams and set(config.streams[TRADES].fields) == TRADE_FIELDS,
    }
    streams = [name for name, is_there in kinds.items() if is_there]
    if not streams:
        raise usage_error(
            "the sample traffic goes to the streams of the sample configuration, and there is none",
            "`tidemark init` writes the sample; or leave --demo out.",
            "demo",
        )
    return partial(run_demo, streams=streams, api_key=api_key)


def _pipeline(configured: Configured, *, as_json: bool) -> Supervised | None:
    """The pipeline as a process beside this one, where there is something for it to do."""
    config = configured.config
    if not (config.pipeline.enabled and has_work(config)):
        return None
    status = PipelineStatus(config.state_dir)
    status.clear()

    def given_up(code: int) -> None:
        error = status.error()
        if error is None:
            hint = "Its error is in the log above; `tidemark pipeline` says it again."
            error = TidemarkError(f"it ended with {code}", hint=hint, code="pipeline_failed")
            status.failed(error)
        if as_json:
            write_json({"event": "pipeline_failed", "error": error_document(error)})
        log.error("Tidemark goes on without the pipeline: events are taken, usage stands still")

    return Supervised(_command("pipeline", configured), "pipeline", given_up)


def _landing(configured: Configured, *, as_json: bool) -> Supervised | None:
    """Landing as a process beside this one, where it is enabled."""
    if not configured.config.landing.is_enabled:
        return None
    loss = "Tidemark goes on without landing: what analysts read stands still"
    return _copying("land", "landing", loss, configured, as_json=as_json)


def _mirror(configured: Configured, *, as_json: bool) -> Supervised | None:
    """The mirror as a process beside this one, where it is enabled."""
    if not configured.config.mirror.enabled:
        return None
    loss = (
        "Tidemark goes on without a mirror of its own: unless another one runs, what is in Kafka"
        " stands still"
    )
    return _copying("mirror", "mirror", loss, configured, as_json=as_json)


def _copying(
    verb: str, name: str, loss: str, configured: Configured, *, as_json: bool
) -> Supervised:
    def given_up(code: int) -> None:
        if as_json:
            hint = f"Its error is in the log; `tidemark {verb}` says it again."
            error = TidemarkError(f"it ended with {code}", hint=hint, code=f"{name}_failed")
            write_json({"event": error.code, "error": error_document(error)})
        log.error(loss)

    return Supervised(_command(verb, configured), name, given_up)


def _command(verb: str, configured: Configured) -> list[str]:
    config = [] if configured.path is None else ["--config", str(configured.path)]
    return [sys.executable, "-m", "tidemark", verb, *config]


def _run(
    configured: Configured,
    options: Mapping[str, object],
    background: Sequence[Background],
    beside: Sequence[Supervised],
    *,
    as_json: bool,
) -> int:
    config = configured.config
    log_to_stderr()

    def announce(listening_on: str) -> None:
        if told_again():
            return
        place = urlsplit(listening_on)
        base_url = callable_url(place.hostname or "", place.port or 0)
        if as_json:
            write_json({"event": "ready", "url": base_url, "config": configured.as_json})
        else:
            write_lines(_welcome(configured, base_url, beside, is_demo=bool(background)))
        # Not before: a fault of the ledger is told once, by this process.
        for child in beside:
            child.start()

    code = int(ExitCode.OK)
    try:
        with _stoppable():
            if config.http.workers == 1:
                _serve(config, on_ready=announce, background=background)
            else:
                code = _run_several(configured, options, announce, background)
    finally:
        for child in beside:
            child.stop()
    if as_json:
        write_json({"event": "stopped"})
    else:
        write_line("Tidemark stopped.")
    return code


def _serve(
    config: Config,
    *,
    sockets: list[socket.socket] | None = None,
    on_ready: Callable[[str], None] | None = None,
    background: Sequence[Background] = (),
) -> None:
    """Serve in this process. What that takes is loaded here: `--help` need not wait for it."""
    import uvloop

    from tidemark.app.server import serve as serve_app

    uvloop.run(serve_app(config, sockets=sockets, on_ready=on_ready, background=background))


def _run_several(
    configured: Configured,
    options: Mapping[str, object],
    announce: Callable[[str], None],
    background: Sequence[Background],
) -> int:
    from tidemark.app.server import listen

    config = configured.config
    # A fault of the ledger is told once, here, and not again and again by every process.
    asyncio.run(_try_ledger(config))
    listener = listen(config.http.host, config.http.port)
    address = callable_url(*listener.getsockname()[:2])
    command = _command("serve", configured)
    for option, value in options.items():
        if value is not None:
            command += [option, str(value)]

    def accompany() -> None:
        _wait_until_ready(address)
        announce(address)
        for work in background:
            asyncio.run(work(address))

    threading.Thread(target=accompany, daemon=True).start()
    try:
        return run_workers(command, listener, config.http.workers)
    finally:
        listener.close()


async def _try_ledger(config: Config) -> None:
    from tidemark.clock import SystemClock
    from tidemark.ledger.opening import open_ledger

    ledger = await open_ledger(config, SystemClock())
    await ledger.close()


def _wait_until_ready(base_url: str) -> None:
    # A proxy for the world outside is none for this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        # An answer that says "not yet" is an error of this library, and an OSError.
        with contextlib.suppress(OSError), opener.open(f"{base_url}/readyz", timeout=5):
            return
        time.sleep(_READY_POLL_S)


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGINT and SIGTERM end what runs inside without an error, at any moment of it."""

    stop_on([signal.SIGINT, signal.SIGTERM], KeyboardInterrupt)
    with contextlib.suppress(KeyboardInterrupt):
        yield
    hear_no_more()


def _welcome(
    configured: Configured, base_url: str, beside: Sequence[Supervised], *, is_demo: bool
) -> list[str]:
    """Where to look, now that it runs."""
    from tidemark import __version__
    from tidemark.cli.configuring import access_text, ledger_text

    config = configured.config
    option = "" if base_url == DEFAULT_URL else f" --url {base_url}"
    rows = [
        ("configuration", configured.source),
        ("ledger", ledger_text(config)),
        ("access", access_text(config)),
        ("send events", f"POST {base_url}/v1/events"),
        ("documentation", f"{base_url}/docs"),
        *([("graphql", f"{base_url}/graphql")] if config.live.enabled and has_work(config) else ()),
        ("health", f"{base_url}/readyz"),
        ("metrics", f"{base_url}/metrics"),
        ("watch", f"{program_name()} tail{option}"),
    ]
    has_pipeline = any(child.name == "pipeline" for child in beside)
    if has_pipeline:
        where = f"starting on Spark {config.spark.master}; {base_url}/readyz says how far it is"
        rows.insert(3, ("pipeline", where))
    if has_pipeline and config.meters:
        rows.append(("usage", f"{program_name()} usage{option}"))
    lines = [f"Tidemark {__version__} is ready on {base_url}", *pairs(rows)]
    if is_demo:
        lines.append("Sample traffic is on its way.")
    example = _example(config, base_url)
    if example is not None:
        lines += ["Try:", f"  {example}"]
    return [*lines, "Ctrl-C stops it."]


def _example(config: Config, base_url: str) -> str | None:
    """A command that sends an event, if this configuration takes a simple one."""
    for stream in config.streams.values():
        needs_meta = any(field.required for field in stream.fields.values())
        if stream.kind == "usage" and not needs_meta:
            metric = stream.metrics[0] if stream.metrics else "api_calls"
            event = {
                "tenantId": "acme",
                "metric": metric,
                "customerRef": "c-1",
                "ts": "2025-01-01T00:00:00Z",
                "quantity": "3",
            }
            body = json.dumps({"events": [event]}).replace("'", "'\\''")
            key = f' -H "authorization: Bearer ${API_KEY_VARIABLE}"' if config.auth.keys else ""
            header = "-H 'content-type: application/json'"
            return f"curl -s {base_url}/v1/events {header}{key} -d '{body}'"
    return None
