"""`tidemark tail`: events as they are committed, one a line, in order and without a gap."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

import click
import msgspec
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.sync.client import ClientConnection, connect

from tidemark.cli.answers import not_ours, refusal, unreachable
from tidemark.cli.event_text import ShownEvent, event_text
from tidemark.cli.options import Server, json_option, server, server_options
from tidemark.cli.outcome import ExitCode, usage_error
from tidemark.cli.output import has_colour, put, write_note
from tidemark.errors import ClientError, TidemarkError

_PATH: Final = "/admin/events/tail"
_OPEN_TIMEOUT_S: Final = 10.0
_CLOSE_TIMEOUT_S: Final = 1.0
_FIRST_DELAY_S: Final = 0.2
_MAX_DELAY_S: Final = 5.0
_MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
# The server closes with 4000 and the HTTP status that it would have answered with.
_STATUS_BASE: Final = 4000
_PASSING_STATUSES: Final = frozenset({429, 500, 502, 503, 504})


_NOTHING: Final = msgspec.Raw(b"")


class _Message(msgspec.Struct, rename="camel"):
    """`event` with an event, or `progress` with how far the ledger was looked through."""

    type: str
    event: msgspec.Raw = _NOTHING
    ingress_sequence: str | None = None


_decode_message = msgspec.json.Decoder(_Message).decode
_decode_event = msgspec.json.Decoder(ShownEvent).decode


@click.command
@click.option(
    "--after",
    type=click.IntRange(min=0),
    metavar="SEQUENCE",
    help="Begin behind this sequence. Default: only what is committed from now on.",
)
@click.option("--from-start", is_flag=True, help="Begin with the first event of the ledger.")
@click.option("--tenant", metavar="NAME", help="Only events of this tenant.")
@click.option("--stream", metavar="NAME", help="Only events of this stream.")
@click.option("--causality-key", metavar="KEY", help="Only events with this causality key.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="End after so many events.")
@server_options
@json_option
def tail(
    after: int | None,
    from_start: bool,
    tenant: str | None,
    stream: str | None,
    causality_key: str | None,
    limit: int | None,
    url: str | None,
    api_key: str | None,
    config_path: Path | None,
    as_json: bool,
) -> int:
    """Show events as they are committed.

    Each event is a line, in the order of the ledger and without a gap. A connection that is lost is
    made again, from the last event on. Ctrl-C ends it, with 0 if there is no --limit to reach.
    """
    if from_start and after is not None:
        raise usage_error("--from-start and --after exclude each other", field="after")
    filters = {"tenantId": tenant, "stream": stream, "causalityKey": causality_key}
    tailing = _Tail(
        server(url, api_key, config_path),
        {name: value for name, value in filters.items() if value is not None},
        position=0 if from_start else after,
        limit=limit,
        as_json=as_json,
    )
    try:
        tailing.follow()
    except KeyboardInterrupt:
        return ExitCode.OK if limit is None else ExitCode.INTERRUPTED
    return ExitCode.OK


class _Tail:
    """Where a tail is, over as many connections as it takes."""

    def __init__(
        self,
        target: Server,
        filters: dict[str, str],
        *,
        position: int | None,
        limit: int | None,
        as_json: bool,
    ) -> None:
        self._server = target
        self._filters = filters
        self._position = position
        self._limit = limit
        self._as_json = as_json
        self._shown = 0
        self._has_colour = has_colour(sys.stdout)

    def follow(self) -> None:
        """Show events until there are enough of them."""
        delay_s = _FIRST_DELAY_S
        was_connected = False
        while True:
            try:
                with self._connect() as connection:
                    if was_connected:
                        write_note("connected again")
                    was_connected, delay_s = True, _FIRST_DELAY_S
                    if self._show_all(connection):
                        return
                reason = "the server closed it"
            except InvalidStatus as refused:
                response = refused.response
                error = refusal(response.status_code, bytes(response.body or b""), "tail")
                if not was_connected or response.status_code not in _PASSING_STATUSES:
                    raise error from None
                reason = error.message
            except ConnectionClosed as closed:
                if (final := _final_error(closed)) is not None:
                    raise final from None
                reason = str(closed)
            except (InvalidHandshake, OSError, EOFError) as failed:
                if not was_connected and isinstance(failed, InvalidHandshake):
                    raise not_ours(f"no tail at {self._server.url}: {failed}") from failed
                if not was_connected:
                    raise unreachable(self._server.url, failed) from failed
                reason = str(failed)
            write_note(f"the connection is lost ({reason}); trying again")
            time.sleep(delay_s)
            delay_s = min(delay_s * 2, _MAX_DELAY_S)

    def _connect(self) -> ClientConnection:
        query = dict(self._filters)
        if self._position is not None:
            query["after"] = str(self._position)
        parts = urlsplit(self._server.url)
        scheme = "wss" if parts.scheme == "https" else "ws"
        address = f"{scheme}://{parts.netloc}{parts.path}{_PATH}?{urlencode(query)}"
        key = self._server.api_key
        try:
            return connect(
                address,
                additional_headers={"Authorization": f"Bearer {key}"} if key else None,
                open_timeout=_OPEN_TIMEOUT_S,
                close_timeout=_CLOSE_TIMEOUT_S,
                max_size=_MAX_MESSAGE_BYTES,
                # As the client library: the server is named, and asked itself.
                proxy=None,
            )
        except InvalidURI as error:
            raise usage_error(str(error), field="url") from None

    def _show_all(self, connection: ClientConnection) -> bool:
        """Show what arrives; True when it was enough, False when the server closed."""
        for content in connection:
            try:
                message = _decode_message(content)
                event = _decode_event(message.event) if message.type == "event" else None
            except msgspec.MsgspecError as error:
                raise not_ours(f"a message that cannot be read: {error}") from None
            if event is not None:
                if not self._show(event, bytes(message.event)):
                    return True
                self._position = int(event.ingress_sequence)
                self._shown += 1
                if self._limit is not None and self._shown >= self._limit:
                    return True
            elif message.ingress_sequence is not None:
                self._position = int(message.ingress_sequence)
        return False

    def _show(self, event: ShownEvent, raw: bytes) -> bool:
        """Write an event; False if nobody reads any more."""
        line = raw.decode() if self._as_json else event_text(event, has_colour=self._has_colour)
        return put(line, sys.stdout)


def _final_error(closed: ConnectionClosed) -> TidemarkError | None:
    """The error of a close that another attempt would meet again."""
    frame = closed.rcvd
    status = 0 if frame is None else frame.code - _STATUS_BASE
    if frame is None or not 400 <= status < 600 or status in _PASSING_STATUSES:
        return None
    code, _, message = frame.reason.partition(": ")
    return ClientError(message or f"the server closed with {frame.code}", code=code or "closed")
