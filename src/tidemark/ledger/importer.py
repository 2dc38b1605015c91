"""Brings a history into a new ledger: the same numbers, commits and chain on every run.

A history is read, put in order and judged as a whole before the first commit is written. Writing
may be interrupted at any moment: run again, the import finds that what is there is its own
beginning and goes on behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from tidemark.crash import crash_point
from tidemark.errors import ImportRefused
from tidemark.event_files import EventLine
from tidemark.ingress.decoder import Decoder
from tidemark.ingress.drafts import Rejection, Submission
from tidemark.ledger.history import HistoryReader
from tidemark.ledger.history_order import HistoryOrder, open_workspace
from tidemark.ledger.history_plan import HistoryPlan, Planned, Problem
from tidemark.ledger.port import CommitRow, HistoryCommit, LedgerStore
from tidemark.ledger.sequencer import key_digest
from tidemark.timestamps import format_timestamp

Stage: TypeAlias = Literal["read", "judge", "compare", "write"]

MAX_PROBLEMS: Final = 100
# Commits are written in one transaction up to so many events, since a transaction is a flush of the
# disk. A larger commit has one of its own.
EVENTS_TOGETHER: Final = 5_000
# How often the event loop gets its turn and progress is told.
_STEP_LINES: Final = 1_000
_COMMITS_PER_PAGE: Final = 1_000
_LOOKED_UP_TOGETHER: Final = 500

_ONLY_FIRST: Final = (
    "A history comes before everything else: import it into a new ledger, before anything is sent "
    "to it. An import that was interrupted goes on with the very same history only."
)


class Progress(msgspec.Struct, frozen=True, gc=False):
    """How far an import is: lines for `read` and `judge`, events for `compare` and `write`."""

    stage: Stage
    done: int
    total: int | None


class ImportReport(msgspec.Struct):
    """What became of the lines of a history.

    Every line that was read is in one of the five counts. `problems` holds the first of the
    conflicts and rejects. The sequences are those of the events that this run wrote.
    """

    read: int = 0
    accepted: int = 0
    already_imported: int = 0
    duplicates: int = 0
    conflicts: int = 0
    rejected: int = 0
    problems: list[Problem] = []
    commits: int = 0
    first_sequence: int | None = None
    last_sequence: int | None = None


class InvalidHistory(ImportRefused):
    """Some lines cannot be imported, so nothing was; `report` says which and why."""

    code = "history_invalid"

    def __init__(self, report: ImportReport) -> None:
        first = report.problems[0]
        super().__init__(
            f"{report.conflicts + report.rejected} of {report.read} lines cannot be imported, "
            f"the first of them {first.file}, line {first.line}: {first.rejection.message}",
            hint="Nothing was imported. Correct the lines, or have them left out.",
            field=first.rejection.field,
        )
        self.report = report


async def import_history(
    store: LedgerStore,
    decoder: Decoder,
    lines: Iterable[EventLine],
    *,
    work_dir: Path,
    now_us: int,
    on_progress: Callable[[Progress], None],
    skip_invalid: bool = False,
    max_problems: int = MAX_PROBLEMS,
    events_together: int = EVENTS_TOGETHER,
) -> ImportReport:
    """Import the lines, whatever order they come in; `receivedAt` says when each was received.

    The ledger must be new, or hold the beginning of this very history and nothing else: then the
    import goes on from there. Raises `InvalidHistory` before anything is written if a line cannot
    be imported, unless `skip_invalid` leaves such lines out, and `ImportRefused` if the ledger
    holds anything else. `work_dir` takes a temporary file; a commit is in memory as a whole, a
    history is not. The decoder must have been made with the store's salt.
    """
    assert max_problems > 0
    with open_workspace(work_dir) as workspace:
        order = HistoryOrder(workspace)
        plan = HistoryPlan(workspace, decoder.resolve)
        importer = _Importer(store, decoder, plan, on_progress, max_problems)
        await importer.read(lines, HistoryReader(decoder, now_us), order)
        await importer.judge(order)
        report = importer.report
        if report.conflicts + report.rejected > 0 and not skip_invalid:
            raise InvalidHistory(report)
        await importer.write(await importer.compare(), events_together)
    return report


class _Importer:
    """The four stages of one import, to be run in their order."""

    def __init__(
        self,
        store: LedgerStore,
        decoder: Decoder,
        plan: HistoryPlan,
        on_progress: Callable[[Progress], None],
        max_problems: int,
    ) -> None:
        self.report = ImportReport()
        self._store = store
        self._decoder = decoder
        self._plan = plan
        self._on_progress = on_progress
        self._max_problems = max_problems

    async def read(
        self, lines: Iterable[EventLine], reader: HistoryReader, order: HistoryOrder
    ) -> None:
        report = self.report
        for line in lines:
            place = reader.read(line)
            report.read += 1
            if isinstance(place, Rejection):
                self._note(Problem(line.file, line.number, "rejected", place))
            else:
                order.add(place)
            if report.read % _STEP_LINES == 0:
                self._on_progress(Progress("read", report.read, None))
                await asyncio.sleep(0)
        self._on_progress(Progress("read", report.read, report.read))

    async def judge(self, order: HistoryOrder) -> None:
        """Find out what each line will be in the ledger."""
        total = self.report.read - self.report.rejected
        done = 0
        for judged in self._plan.judge(order.in_order()):
            done += judged.accepted + judged.duplicates + len(judged.problems)
            self.report.duplicates += judged.duplicates
            for problem in judged.problems:
                self._note(problem)
            self._on_progress(Progress("judge", done, total))
            await asyncio.sleep(0)

    async def compare(self) -> int:
        """The `received_at` that an earlier run reached, or `ImportRefused` if there is more in the
        ledger than the beginning of this history."""
        planned = self._plan.commits()
        reached = CommitRow(0, 1, 0, b"")
        while page := await self._store.read_commits(reached.received_at, _COMMITS_PER_PAGE):
            for there in page:
                expected = next(planned, None)
                if there != expected:
                    raise _not_this_history(there, expected)
            await self._compare_events(page[0].first_sequence, page[-1].last_sequence)
            reached = page[-1]
        self.report.already_imported = reached.last_sequence
        return reached.received_at

    async def _compare_events(self, first_sequence: int, last_sequence: int) -> None:
        total = self._plan.head.last_sequence
        for first in range(first_sequence, last_sequence + 1, _LOOKED_UP_TOGETHER):
            last = min(first + _LOOKED_UP_TOGETHER - 1, last_sequence)
            events = {_digest(event): event for event in self._plan.events(first, last)}
            stored = await self._store.lookup(list(events))
            for digest, event in events.items():
                if stored.get(digest) != event.stored():
                    raise ImportRefused(
                        f"sequence {event.sequence} of the ledger is not the event of this "
                        f"history at {event.file}, line {event.line}",
                        hint=_ONLY_FIRST,
                    )
            self._on_progress(Progress("compare", last, total))

    async def write(self, after_received_at: int, events_together: int) -> None:
        report = self.report
        total = self._plan.head.last_sequence
        events = self._plan.events(report.already_imported + 1, total)
        for commits in together(self._plan.commits(after_received_at), events_together):
            history = [
                HistoryCommit(
                    commit.received_at,
                    Submission("import", [e.draft for e in islice(events, _size(commit))]),
                )
                for commit in commits
            ]
            crash_point("import.before_commit")
            outcomes = await self._store.append_history(history, self._decoder.resolve)
            crash_point("import.after_commit")
            for commit, of_commit in zip(commits, outcomes, strict=True):
                _check_sequences([outcome.ingress_sequence for outcome in of_commit], commit)
                report.accepted += len(of_commit)
                report.commits += 1
                report.first_sequence = report.first_sequence or commit.first_sequence
                report.last_sequence = commit.last_sequence
            self._on_progress(Progress("write", commits[-1].last_sequence, total))
        self._on_progress(Progress("write", total, total))

    def _note(self, problem: Problem) -> None:
        if problem.status == "conflict":
            self.report.conflicts += 1
        else:
            self.report.rejected += 1
        if len(self.report.problems) < self._max_problems:
            self.report.problems.append(problem)


def together(commits: Iterable[CommitRow], max_events: int) -> Iterator[list[CommitRow]]:
    """The commits, as many at a time as have at most so many events, and at least one."""
    some: list[CommitRow] = []
    for commit in commits:
        if some and commit.last_sequence - some[0].first_sequence + 1 > max_events:
            yield some
            some = []
        some.append(commit)
    if some:
        yield some


def _size(commit: CommitRow) -> int:
    return commit.last_sequence - commit.first_sequence + 1


def _digest(event: Planned) -> bytes:
    return key_digest(event.draft.tenant_id, event.draft.idempotency_key)


def _check_sequences(given: Sequence[int | None], commit: CommitRow) -> None:
    if given != list(range(commit.first_sequence, commit.last_sequence + 1)):
        raise ImportRefused(
            f"the commit of {format_timestamp(commit.received_at)} did not get the numbers from "
            f"{commit.first_sequence} to {commit.last_sequence}: something else writes to the "
            "ledger",
            hint=_ONLY_FIRST,
        )


def _not_this_history(there: CommitRow, expected: CommitRow | None) -> ImportRefused:
    when = format_timestamp(there.received_at)
    if there.last_sequence < there.first_sequence:
        what = f"a tick at {when}"
    else:
        what = f"a commit of {when}, sequences {there.first_sequence} to {there.last_sequence}"
    if expected is None:
        return ImportRefused(
            f"the ledger holds {what}, behind the end of this history",
            hint=f"The history itself is there, whole. {_ONLY_FIRST}",
        )
    return ImportRefused(f"the ledger holds {what}, that is not of this history", hint=_ONLY_FIRST)
