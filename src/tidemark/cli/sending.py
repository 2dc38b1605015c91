"""`tidemark send`: the events of a file or of stdin, in order, each of them once."""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import click

from tidemark.cli.options import Server, json_option, server, server_options
from tidemark.cli.outcome import (
    ExitCode,
    Terminated,
    error_document,
    exit_code_of,
    report,
    usage_error,
)
from tidemark.cli.output import plural, write_json, write_line, write_note
from tidemark.cli.progress import Progress, show_progress
from tidemark.cli.refusals import Refusals, collect_refusals, refusal_text
from tidemark.cli.resume import ResumeFile, path_for
from tidemark.cli.sent_lines import (
    ReadingStamps,
    RepeatableStamps,
    SentLine,
    Stamps,
    sent_line,
)
from tidemark.client import Client, DeliveryFailed, Result
from tidemark.client.base import Event
from tidemark.clock import MICROS_PER_SECOND, SystemClock
from tidemark.errors import EventRejected, TidemarkError
from tidemark.event_files import (
    STANDARD_INPUT,
    EventLine,
    FileForm,
    form_of,
    open_events,
    read_events,
)

# Input that pauses for so long has its events sent without waiting for a full batch.
_LINGER_S = 0.1
_READ_BYTES = 65_536


@click.command
@click.argument("file", default=STANDARD_INPUT, metavar="[FILE]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv"]),
    help="What the file holds. Default: csv if its name ends in .csv, else jsonl.",
)
@click.option(
    "--batch",
    "batch_events",
    type=click.IntRange(1, 1000),
    default=500,
    show_default=True,
    metavar="N",
    help="The most events in one request.",
)
@click.option("--resume", is_flag=True, help="Go on where an earlier `send --resume` stopped.")
@click.option(
    "--rejects",
    "rejects_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PATH",
    help="Write refused events there as JSON lines, and do not list them.",
)
@click.option(
    "--retry-for",
    "retry_for_s",
    type=click.FloatRange(0, 30 * 86_400),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to go on trying while the server takes nothing.",
)
@server_options
@json_option
def send(
    file: str,
    form: FileForm | None,
    batch_events: int,
    resume: bool,
    rejects_path: Path | None,
    retry_for_s: float,
    url: str | None,
    api_key: str | None,
    config_path: Path | None,
    as_json: bool,
) -> int:
    """Send the events of a file or of stdin.

    FILE holds an event a line as JSON, or CSV with a header; - or nothing is stdin. Events go out
    in order, and one that is sent twice is stored once. Those that are refused are listed with
    their line, and the exit code is then 3.
    """
    target = server(url, api_key, config_path)
    clock = SystemClock()
    place = None
    if resume:
        if file == STANDARD_INPUT:
            raise usage_error(
                "stdin cannot be resumed",
                "Send a file, or leave --resume out: what is sent again is stored once.",
                "resume",
            )
        place = ResumeFile.open(Path(file), target.url, clock)
    stamps: Stamps = (
        ReadingStamps(clock)
        if place is None
        else RepeatableStamps(place.place.began_us, place.place.sending_id)
    )
    sending = _Sending(file, target, place, began_us=clock.elapsed_us())
    client = LineClient(
        target.url,
        api_key=target.api_key or "",
        batch_events=batch_events,
        retry_for_s=retry_for_s,
    )
    size = None if file == STANDARD_INPUT else _size_of(file)
    with (
        client,
        collect_refusals(rejects_path, append=resume) as refusals,
        show_progress(clock) as progress,
    ):
        progress.begin("send", size)
        sender = _Sender(client, sending, stamps, refusals, progress, batch_events)
        try:
            with _open(file, sender.flush) as stream:
                sender.send_all(stream, form or form_of(file))
        except TidemarkError as error:
            sending.error = error
        except (KeyboardInterrupt, Terminated) as ended:
            sending.ended_by = ended
        sending.took_us = clock.elapsed_us() - sending.began_us
    return _conclude(sending, refusals, rejects_path, as_json=as_json)


class LineClient(Client):
    """A `Client` for events that are JSON already, so that nothing in them changes."""

    def _take(self, event: Event) -> bytes:
        assert isinstance(event, SentLine), "only lines are sent"
        return event.body


@dataclass
class _Sending:
    """What there is to say about one sending."""

    file: str
    server: Server
    place: ResumeFile | None
    began_us: int
    took_us: int = 0
    line: int = 0
    accepted: int = 0
    duplicates: int = 0
    conflicts: int = 0
    rejected: int = 0
    stamped: int = 0
    error: TidemarkError | None = None
    ended_by: BaseException | None = None

    @property
    def events(self) -> int:
        return self.accepted + self.duplicates + self.conflicts + self.rejected

    @property
    def exit_code(self) -> ExitCode:
        if self.error is not None:
            return exit_code_of(self.error)
        if self.ended_by is not None:
            is_signal = isinstance(self.ended_by, Terminated)
            return ExitCode.TERMINATED if is_signal else ExitCode.INTERRUPTED
        return ExitCode.REFUSED if self.conflicts or self.rejected else ExitCode.OK

    @property
    def is_complete(self) -> bool:
        return self.error is None and self.ended_by is None

    def count(self, status: str) -> None:
        match status:
            case "accepted":
                self.accepted += 1
            case "duplicate":
                self.duplicates += 1
            case "conflict":
                self.conflicts += 1
            case _:
                self.rejected += 1

    def text(self) -> str:
        return (
            f"{self.accepted:,} accepted, {plural(self.duplicates, 'duplicate')}, "
            f"{plural(self.conflicts, 'conflict')}, {self.rejected:,} rejected"
        )


class _Sender:
    """Takes lines, sends them by the batch, and settles each when its answer is there."""

    def __init__(
        self,
        client: LineClient,
        sending: _Sending,
        stamps: Stamps,
        refusals: Refusals,
        progress: Progress,
        batch_events: int,
    ) -> None:
        self._client = client
        self._sending = sending
        self._stamps = stamps
        self._refusals = refusals
        self._progress = progress
        self._batch_events = batch_events
        self._clock = SystemClock()
        self._stream: BinaryIO | None = None
        # Lines without an answer, each with its event or with why it has none.
        self._batch: list[tuple[EventLine, SentLine | EventRejected]] = []

    def send_all(self, stream: BinaryIO, form: FileForm) -> None:
        sending = self._sending
        self._stream = stream
        done_before = sending.place.place.line if sending.place is not None else 0
        sending.line = done_before
        for line in read_events(stream, form, file=sending.file):
            if line.number <= done_before:
                continue
            try:
                self._batch.append((line, sent_line(line, self._stamps)))
            except EventRejected as fault:
                self._batch.append((line, fault))
            if len(self._batch) >= self._batch_events:
                self.flush()
        self.flush()
        if sending.place is not None:
            sending.place.reached(sending.line, is_complete=True)

    def flush(self) -> None:
        """Send what is waiting."""
        if not self._batch:
            return
        lines = [event for _, event in self._batch if isinstance(event, SentLine)]
        failed: DeliveryFailed | None = None
        results: list[Result | None] = []
        try:
            results = [*self._client.send(lines)] if lines else []
        except DeliveryFailed as error:
            failed, results = error, error.results
        self._settle(iter(results))
        if failed is not None:
            raise failed

    def _settle(self, results: Iterator[Result | None]) -> None:
        """Take note of the answers, up to the first event that has none."""
        sending = self._sending
        batch, self._batch = self._batch, []
        for line, event in batch:
            if isinstance(event, EventRejected):
                status, error = "rejected", event
            else:
                result = next(results)
                if result is None:
                    break
                status = result.status
                error = result.error if result.error is not None else EventRejected(status)
                sending.stamped += event.is_stamped
            sending.count(status)
            sending.line = line.number
            if status in ("conflict", "rejected") and self._refusals.add(
                line.number, status, error, line.raw
            ):
                self._progress.note(refusal_text(line.number, status, error))
        self._refusals.flush()
        if sending.place is not None:
            sending.place.reached(sending.line)
        self._show()

    def _show(self) -> None:
        sending = self._sending
        took_us = max(1, self._clock.elapsed_us() - sending.began_us)
        rate = sending.events * MICROS_PER_SECOND // took_us
        position = 0
        if self._stream is not None and self._stream.seekable():
            position = self._stream.tell()
        self._progress.update(position, f"{sending.events:,} at {rate:,}/s: {sending.text()}")


def _conclude(
    sending: _Sending, refusals: Refusals, rejects_path: Path | None, *, as_json: bool
) -> int:
    if as_json:
        write_json(_document(sending, refusals))
        return sending.exit_code
    if refusals.left_out:
        write_note(f"… and {refusals.left_out:,} more; --rejects PATH takes them all.")
    if refusals.codes:
        where = "" if rejects_path is None else f", written to {rejects_path}"
        write_note(f"refused: {refusals.summary()}{where}")
    if sending.stamped and sending.place is None:
        write_note(
            f"{plural(sending.stamped, 'usage event')} had no ts and got the time of sending: sent "
            "again, they would be new events. With --resume they are not."
        )
    if sending.events or sending.is_complete:
        rate = sending.events * MICROS_PER_SECOND // max(1, sending.took_us)
        seconds = sending.took_us / MICROS_PER_SECOND
        write_line(
            f"{plural(sending.events, 'event')} in {seconds:.1f} s ({rate:,}/s): {sending.text()}."
        )
    if sending.error is not None:
        report(sending.error, as_json=False)
    if sending.line and not sending.is_complete:
        write_note(_how_to_go_on(sending))
    return sending.exit_code


def _how_to_go_on(sending: _Sending) -> str:
    done = f"Everything up to line {sending.line:,} has its answer."
    if sending.place is not None:
        return f"{done} The same command goes on from there ({path_for(Path(sending.file))})."
    return f"{done} Sending it all again is safe for events with a time or a key of their own."


def _document(sending: _Sending, refusals: Refusals) -> dict[str, Any]:
    document: dict[str, Any] = {
        "file": sending.file,
        "url": sending.server.url,
        "complete": sending.is_complete,
        "line": sending.line,
        "events": sending.events,
        "accepted": sending.accepted,
        "duplicates": sending.duplicates,
        "conflicts": sending.conflicts,
        "rejected": sending.rejected,
        "stamped": sending.stamped,
        "seconds": round(sending.took_us / MICROS_PER_SECOND, 3),
        "codes": dict(refusals.codes),
        "refusals": refusals.listed,
        "refusalsLeftOut": refusals.left_out,
    }
    if sending.error is not None:
        document["error"] = error_document(sending.error)
    return document


def _size_of(file: str) -> int | None:
    try:
        return os.stat(file).st_size or None
    except OSError:
        # Opening it will tell why.
        return None


@contextlib.contextmanager
def _open(file: str, on_pause: Callable[[], None]) -> Iterator[BinaryIO]:
    if file != STANDARD_INPUT:
        with open_events(file) as stream:
            yield stream
        return
    if sys.stdin.isatty():
        write_note("Reading events from the terminal, one a line; Ctrl-D ends them.")
    yield io.BufferedReader(_PausingInput(sys.stdin.fileno(), on_pause), _READ_BYTES)


class _PausingInput(io.RawIOBase):
    """Input that says when it has nothing for a while, so that what was read can be sent."""

    def __init__(self, descriptor: int, on_pause: Callable[[], None]) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._on_pause = on_pause

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not select.select([self._descriptor], [], [], _LINGER_S)[0]:
            self._on_pause()
        content = os.read(self._descriptor, len(buffer))
        buffer[: len(content)] = content
        return len(content)
