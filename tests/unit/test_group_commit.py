"""Group commit for any traffic and any faults, over a store in memory that fails as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.events import draft
from tests.unit.planted import assert_catches
from tidemark.errors import LedgerUnavailable, QueueFull, StorageRefused, TidemarkError
from tidemark.ingress.drafts import (
    CorrectionResolver,
    Draft,
    Outcome,
    Rejection,
    Submission,
    no_corrections,
)
from tidemark.ledger.group_commit import GroupCommitter, Waiting

Check = Callable[[], None]
Fault = Literal["none", "away", "bug"]

# Nothing here waits for anything but the loop, so what is not over by then never will be.
ROUNDS = 3_000


class Bug(Exception):
    """What no store raises on purpose."""


class Request(msgspec.Struct, frozen=True):
    """One request: how large, how long after the one before it, and what befalls it."""

    events: int
    rounds_before: int
    unstorable: bool
    cancelled_after: int | None


class Scene(msgspec.Struct, frozen=True):
    """Everything that happens in one run."""

    requests: list[Request]
    faults: list[Fault]
    rounds_per_commit: int
    rounds_before_close: int
    writers: int
    max_group_events: int
    max_queued_events: int


SCENES = st.builds(
    Scene,
    requests=st.lists(
        st.builds(
            Request,
            events=st.integers(0, 6),
            rounds_before=st.sampled_from([0, 0, 0, 1, 4]),
            unstorable=st.sampled_from([False, False, False, True]),
            cancelled_after=st.sampled_from([None, None, None, 0, 2]),
        ),
        max_size=15,
    ),
    faults=st.lists(st.sampled_from(["none", "none", "away", "bug"]), max_size=6),
    rounds_per_commit=st.integers(0, 6),
    rounds_before_close=st.sampled_from([0, 1, 3, 30]),
    writers=st.integers(1, 3),
    max_group_events=st.integers(1, 12),
    max_queued_events=st.integers(6, 30),
)


def is_unstorable(event: Draft) -> bool:
    """The first event of a request that has an unstorable one."""
    return event.idempotency_key.endswith("unstorable-0")


class MemoryStore:
    """Takes groups, remembers what was committed together, and checks what it is handed."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._faults = iter(scene.faults)
        self._under_way = 0
        self._sequence = 0
        self.writers = scene.writers
        self.tried: list[str] = []
        self.commits: list[list[str]] = []

    async def append_group(
        self, submissions: Sequence[Submission], resolve: CorrectionResolver
    ) -> list[list[Outcome]]:
        events = sum(len(submission.entries) for submission in submissions)
        assert submissions
        assert len(submissions) == 1 or events <= self._scene.max_group_events, "group too large"
        self.tried += [one.request_id for one in submissions if one.request_id not in self.tried]
        self._under_way += 1
        assert self._under_way <= self.writers
        try:
            for _ in range(self._scene.rounds_per_commit):
                await asyncio.sleep(0)
            return self._commit(submissions)
        finally:
            self._under_way -= 1

    async def refuses(self, submission: Submission, resolve: CorrectionResolver) -> list[bool]:
        await asyncio.sleep(0)
        return [isinstance(entry, Draft) and is_unstorable(entry) for entry in submission.entries]

    def _commit(self, submissions: Sequence[Submission]) -> list[list[Outcome]]:
        if any(isinstance(e, Draft) and is_unstorable(e) for s in submissions for e in s.entries):
            raise StorageRefused("this cannot be stored", hint="send something else")
        fault = next(self._faults, "none")
        if fault == "away":
            raise LedgerUnavailable("the store is away", hint="wait")
        if fault == "bug":
            raise Bug
        self.commits.append([one.request_id for one in submissions])
        outcomes = []
        for submission in submissions:
            of_request = []
            for entry in submission.entries:
                if isinstance(entry, Rejection):
                    of_request.append(Outcome("rejected", "key", rejection=entry))
                    continue
                self._sequence += 1
                of_request.append(Outcome("accepted", "key", self._sequence, len(self.commits)))
            outcomes.append(of_request)
        return outcomes


class Silence:
    def committed(self, accepted: int, last_sequence: int, seconds: float) -> None:
        return None

    def failed(self, error: TidemarkError) -> None:
        return None


class Run:
    """Plays one scene and judges it."""

    def __init__(self, kind: type[GroupCommitter], scene: Scene) -> None:
        self._scene = scene
        self.store = MemoryStore(scene)
        self.committer = kind(
            self.store,  # type: ignore[arg-type]
            no_corrections,
            Silence(),
            max_group_events=scene.max_group_events,
            max_queued_events=scene.max_queued_events,
        )
        self.longest_queue = 0
        self.answers: dict[str, list[Outcome] | BaseException] = {}

    async def play(self) -> None:
        self.committer.start()
        tasks = []
        for number, request in enumerate(self._scene.requests):
            for _ in range(request.rounds_before):
                await asyncio.sleep(0)
            tasks.append(asyncio.create_task(self._send(number, request)))
        for _ in range(self._scene.rounds_before_close):
            await asyncio.sleep(0)
        tasks.append(asyncio.create_task(self.committer.close()))
        for _ in range(ROUNDS):
            if all(task.done() for task in tasks):
                break
            await asyncio.sleep(0)
        pending = [task for task in tasks if not task.done()]
        for task in [*pending, *self.committer._tasks]:
            task.cancel()
        results = await asyncio.gather(*tasks, *self.committer._tasks, return_exceptions=True)
        assert not pending, "somebody waits for ever"
        for result in results:
            if isinstance(result, BaseException):
                raise AssertionError(f"{result!r} came out") from result

    async def _send(self, number: int, request: Request) -> None:
        name = f"{number}{' unstorable' if request.unstorable else ''}"
        submission = Submission(name, [draft(f"{name}-{i}") for i in range(request.events)])
        appending = asyncio.create_task(self.committer.append(submission))
        await asyncio.sleep(0)
        self.longest_queue = max(self.longest_queue, self.committer.queued_events)
        if request.cancelled_after is not None:
            for _ in range(request.cancelled_after):
                await asyncio.sleep(0)
            appending.cancel()
        try:
            answer = await appending
            committed = [one for commit in self.store.commits for one in commit]
            assert name in committed, "acknowledged before it was durable"
            self.answers[name] = answer
        except (QueueFull, LedgerUnavailable, Bug, asyncio.CancelledError) as error:
            self.answers[name] = error

    def judge(self) -> None:
        assert self.longest_queue <= self._scene.max_queued_events, "queue too long"
        assert self.committer.queued_events == 0, "the count of what waits is wrong"
        committed = [one for commit in self.store.commits for one in commit]
        assert len(committed) == len(set(committed)), "a request was committed twice"
        assert set(self.answers) == {
            f"{number}{' unstorable' if request.unstorable else ''}"
            for number, request in enumerate(self._scene.requests)
        }
        for name, answer in self.answers.items():
            self._judge_answer(name, answer, name in committed)
        if self._scene.writers == 1 and not any("unstorable" in name for name in self.answers):
            assert self.store.tried == sorted(self.store.tried, key=int), "out of turn"

    def _judge_answer(
        self, name: str, answer: list[Outcome] | BaseException, is_committed: bool
    ) -> None:
        request = self._scene.requests[int(name.split()[0])]
        if isinstance(answer, QueueFull):
            assert name not in self.store.tried
        elif isinstance(answer, (LedgerUnavailable, Bug)):
            assert name in self.store.tried
            assert not is_committed
            assert self._scene.faults
        elif isinstance(answer, list):
            assert len(answer) == request.events
            assert is_committed
            statuses = ["accepted"] * request.events
            if request.unstorable and request.events:
                statuses[0] = "rejected"
            assert [outcome.status for outcome in answer] == statuses, "a neighbour suffered"
            answer = [outcome for outcome in answer if outcome.status == "accepted"]
            numbers = [outcome.ingress_sequence or 0 for outcome in answer]
            if numbers:
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
                assert len({outcome.received_at for outcome in answer}) == 1


def every_request_has_its_one_answer(kind: type[GroupCommitter]) -> Check:
    @given(SCENES)
    def check(scene: Scene) -> None:
        run = Run(kind, scene)
        asyncio.run(run.play())
        run.judge()

    return check


@pytest.fixture(autouse=True)
def _quiet_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "tidemark.ledger.group_commit")


def test_every_request_has_its_one_answer() -> None:
    every_request_has_its_one_answer(GroupCommitter)()


class IgnoresTheBound(GroupCommitter):
    def _take_group(self) -> list[Waiting]:
        group = list(self._waiting)
        self._waiting.clear()
        return group


class TakesTheNewestFirst(GroupCommitter):
    def _take_group(self) -> list[Waiting]:
        return [self._waiting.pop()]


class AnswersBeforeTheCommit(GroupCommitter):
    async def _commit(self, group: list[Waiting]) -> None:
        for submission, result in group:
            if not result.done():
                result.set_result([Outcome("accepted", "key", 1, 1) for _ in submission.entries])
        await super()._commit(group)


class LetsNeighboursSuffer(GroupCommitter):
    async def _commit_apart(self, group: list[Waiting]) -> None:
        for submission, result in group:
            if not result.done():
                result.set_result([Outcome("rejected", "key") for _ in submission.entries])


class LetsTheRequestSuffer(GroupCommitter):
    async def _append_what_is_taken(
        self, submission: Submission, refused: StorageRefused
    ) -> list[Outcome]:
        entries = [Rejection(refused.code, "no", "") for _ in submission.entries]
        return await super()._append_what_is_taken(
            Submission(submission.request_id, entries), refused
        )


class DiesOfABug(GroupCommitter):
    async def _commit(self, group: list[Waiting]) -> None:
        await super()._commit(group)
        for _, result in group:
            if not result.cancelled() and isinstance(result.exception(), Bug):
                raise asyncio.CancelledError


class LosesCount(GroupCommitter):
    async def _commit(self, group: list[Waiting]) -> None:
        await super()._commit(group)
        self.queued_events += len(group) > 2


class ForgetsWhatWaitsWhenItCloses(GroupCommitter):
    async def close(self) -> None:
        self._waiting.clear()
        await super().close()


class TakesOneMoreThanItHasRoomFor(GroupCommitter):
    async def append(self, submission: Submission) -> list[Outcome]:
        self._max_queued_events += self.queued_events == self._max_queued_events
        return await super().append(submission)


@pytest.mark.parametrize(
    "broken",
    [
        IgnoresTheBound,
        TakesTheNewestFirst,
        AnswersBeforeTheCommit,
        LetsNeighboursSuffer,
        LetsTheRequestSuffer,
        DiesOfABug,
        LosesCount,
        ForgetsWhatWaitsWhenItCloses,
        TakesOneMoreThanItHasRoomFor,
    ],
)
def test_a_committer_with_a_bug_is_caught(broken: type[GroupCommitter]) -> None:
    assert_catches(every_request_has_its_one_answer, broken)
