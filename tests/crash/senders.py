"""Publishers that never give up: each sends its requests one after the other, byte for byte the
same at each attempt, until the request is answered.

    async with Publishers(traffic(random.Random(1), senders=6, requests=40), urls) as publishers:
        ...                                  kill what you like
        await publishers.finished()
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import aiohttp

from tests.crash.history import Acknowledgement
from tidemark.timestamps import parse_timestamp

TENANTS: Final = ("acme", "globex", "initech")
# Far shorter than Retry-After says, so that a server is under load the moment it is back.
PAUSE_S: Final = 0.02
ANSWERED_WITHIN_S: Final = 90.0
RETRYABLE: Final = {(503, "ledger_unavailable"), (429, "queue_full")}
SHARED_EVENTS: Final = 400


class Request(NamedTuple):
    """The body of a request, and the marks and tenants of its events in order."""

    body: bytes
    marks: tuple[str, ...]
    tenants: tuple[str, ...]


class Unexpected(Exception):
    """An answer that no publisher should ever get."""


def traffic(
    choose: random.Random,
    *,
    senders: int,
    requests: int | None = None,
    largest: int = 20,
    overlap: float = 0.3,
    padding: int = 0,
) -> list[Iterator[Request]]:
    """What each sender sends; without `requests` there is no end to it.

    About `overlap` of the events are also sent by others, in another order. Half of the events
    bring their own key, for the rest the server derives one. `padding` is the size of free content
    in each.
    """
    shared = [_event(choose, f"shared-{number}", padding) for number in range(SHARED_EVENTS)]

    def of_sender(name: int, choose: random.Random) -> Iterator[Request]:
        numbers = itertools.count()
        for _ in itertools.count() if requests is None else range(requests):
            also_sent_by_others = iter(choose.sample(shared, min(largest, len(shared))))
            yield request_of(
                [
                    next(also_sent_by_others)
                    if choose.random() < overlap
                    else _event(choose, f"{name}-{next(numbers)}", padding)
                    for _ in range(choose.randint(1, largest))
                ]
            )

    return [of_sender(name, random.Random(choose.random())) for name in range(senders)]


def request_of(events: Sequence[dict[str, Any]]) -> Request:
    return Request(
        json.dumps({"events": events}).encode(),
        tuple(event["customerRef"] for event in events),
        tuple(event["tenantId"] for event in events),
    )


def _event(choose: random.Random, mark: str, padding: int) -> dict[str, Any]:
    minute, second = divmod(choose.randrange(3600), 60)
    event: dict[str, Any] = {
        "tenantId": choose.choice(TENANTS),
        "metric": "api_calls",
        "customerRef": mark,
        "ts": f"2025-01-01T00:{minute:02}:{second:02}Z",
        "quantity": str(choose.randint(-5, 100)),
    }
    if choose.random() < 0.5:
        event["idempotencyKey"] = f"key-of-{mark}"
    if padding:
        event["meta"] = {"padding": f"{choose.getrandbits(padding * 4):x}"}
    return event


class Publishers:
    """Senders at work against one or several processes.

    Each has one of the `urls`; with `roaming` it goes on to the next when it gets no answer.
    `acknowledgements` grows as answers come in, `refusals` counts what was said instead, by status
    and code (`last_refusal` is the last error in full), and `disconnections` counts attempts that
    got no answer at all.
    """

    def __init__(
        self,
        planned: Iterable[Iterable[Request]],
        urls: Sequence[str],
        *,
        roaming: bool = True,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._planned = list(planned)
        self._begun: list[list[Request]] = [[] for _ in self._planned]
        self._urls = list(urls)
        self._roaming = roaming
        self._pause_s = pause_s
        self._answers = itertools.count()
        self._winding_down = False
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession
        self.acknowledgements: list[Acknowledgement] = []
        self.refusals: Counter[tuple[int, str]] = Counter()
        self.last_refusal: dict[str, str] = {}
        self.disconnections: Counter[str] = Counter()
        self.answered_requests = 0

    @property
    def sent(self) -> set[str]:
        """The marks of all events that anybody has begun to send."""
        return {mark for requests in self._begun for request in requests for mark in request.marks}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=ANSWERED_WITHIN_S),
        )
        self._begin(
            map(self._noting, self._planned, self._begun),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def finished(self, timeout_s: float = ANSWERED_WITHIN_S) -> None:
        """Returns when every request is answered; raises what any sender met."""
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(*self._tasks)

    async def wind_down(self, timeout_s: float = ANSWERED_WITHIN_S) -> None:
        """No new requests; returns when those under way are answered."""
        self._winding_down = True
        await self.finished(timeout_s)

    async def ask_again(self, *, every: int = 1) -> None:
        """Send every request once more, or every tenth, after all have been answered."""
        self._begin(iter(requests[::every]) for requests in self._begun)
        await self.finished()

    async def answers(self, count: int, timeout_s: float = ANSWERED_WITHIN_S) -> None:
        """Returns when `count` more requests are answered than now."""
        wanted = self.answered_requests + count
        async with asyncio.timeout(timeout_s):
            while self.answered_requests < wanted:
                self.check()
                await asyncio.sleep(self._pause_s / 4)

    async def refused(self, count: int, timeout_s: float = ANSWERED_WITHIN_S) -> None:
        """Returns when `count` more attempts are told to try again than now."""
        wanted = self.refusals.total() + count
        async with asyncio.timeout(timeout_s):
            while self.refusals.total() < wanted:
                self.check()
                await asyncio.sleep(self._pause_s / 4)

    async def disconnected(self, count: int, timeout_s: float = ANSWERED_WITHIN_S) -> None:
        """Returns when `count` more attempts get no answer at all than now."""
        wanted = self.disconnections.total() + count
        async with asyncio.timeout(timeout_s):
            while self.disconnections.total() < wanted:
                self.check()
                await asyncio.sleep(self._pause_s / 4)

    def check(self) -> None:
        """Raise what a sender met, if one has given up."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    def _begin(self, planned: Iterable[Iterator[Request]]) -> None:
        self._tasks = [
            asyncio.create_task(self._send_all(number, requests))
            for number, requests in enumerate(planned)
        ]

    def _noting(self, planned: Iterable[Request], begun: list[Request]) -> Iterator[Request]:
        for request in planned:
            if self._winding_down:
                return
            begun.append(request)
            yield request

    async def _send_all(self, number: int, requests: Iterator[Request]) -> None:
        turn = number
        for request in requests:
            while not await self._answered(self._urls[turn % len(self._urls)], request):
                turn += self._roaming
                await asyncio.sleep(self._pause_s * random.uniform(0.5, 1.5))

    async def _answered(self, url: str, request: Request) -> bool:
        try:
            async with self._session.post(
                f"{url}/v1/events",
                data=request.body,
                headers={"Content-Type": "application/json"},
            ) as response:
                body = await response.read()
                status, headers = response.status, response.headers
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            self.disconnections[type(error).__name__] += 1
            return False
        if status == 200:
            self._note(request, json.loads(body))
            return True
        refusal = json.loads(body)["error"]
        code = refusal["code"]
        if (status, code) not in RETRYABLE or "Retry-After" not in headers:
            raise Unexpected(f"{status} {dict(headers)} {body.decode(errors='replace')}")
        self.refusals[status, code] += 1
        self.last_refusal = refusal
        return False

    def _note(self, request: Request, answer: Any) -> None:
        number = next(self._answers)
        results = answer["results"]
        if len(results) != len(request.marks):
            raise Unexpected(f"{len(request.marks)} events, but {len(results)} results")
        for mark, tenant, result in zip(request.marks, request.tenants, results, strict=True):
            if result["status"] not in ("accepted", "duplicate"):
                raise Unexpected(f"the event marked {mark} was refused: {result}")
            self.acknowledgements.append(
                Acknowledgement(
                    number,
                    mark,
                    result["status"],
                    tenant,
                    result["idempotencyKey"],
                    int(result["ingressSequence"]),
                    parse_timestamp(result["receivedAt"]),
                )
            )
        self.answered_requests += 1
