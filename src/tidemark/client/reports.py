"""Who was answered and who was not, for `send` and for `submit`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tidemark.client.delivery import Outcome
from tidemark.client.results import DeliveryFailed, Result
from tidemark.errors import ClientError


class SendProgress:
    """The answers to one `send`, put where the events were."""

    def __init__(self, taken: Sequence[bytes], results: list[Result | None]) -> None:
        self._taken = taken
        self._results = results
        self._open = [index for index, result in enumerate(results) if result is None]
        self._done = 0

    def sendable(self) -> list[bytes]:
        """The events that are to be sent, in order."""
        return [self._taken[index] for index in self._open]

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Record the next outcomes, and raise if one of them is no result."""
        failure: ClientError | None = None
        for outcome in outcomes:
            index = self._open[self._done]
            self._done += 1
            if isinstance(outcome, Result):
                self._results[index] = outcome
            else:
                failure = failure or outcome
        if failure is not None:
            raise self._failed(failure)

    def results(self) -> list[Result]:
        """One result for each event; all must be known."""
        return [result for result in self._results if result is not None]

    def _failed(self, why: ClientError) -> DeliveryFailed:
        missing = [
            body for body, result in zip(self._taken, self._results, strict=True) if result is None
        ]
        return DeliveryFailed(
            f"{len(missing)} of {len(self._taken)} events were not delivered: {why.message}",
            hint=why.hint,
            field=why.field,
            code=why.code,
            events=[json.loads(body) for body in missing],
            event_count=len(missing),
            results=self._results,
        )


class Failures:
    """The submitted events that got no answer since `flush` or `close` last told of them."""

    def __init__(self, *, max_events: int, max_bytes: int) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._last_error: ClientError | None = None
        self._count = 0
        self._kept: list[bytes] = []
        self._kept_bytes = 0

    def add(self, body: bytes, error: ClientError) -> None:
        """Keep an event, or only count it if there are too many."""
        self._count += 1
        self._last_error = error
        if len(self._kept) < self._max_events and self._kept_bytes + len(body) <= self._max_bytes:
            self._kept.append(body)
            self._kept_bytes += len(body)

    def told(self) -> DeliveryFailed | None:
        """The error that tells of them all, once; None if there is nothing to tell."""
        if self._last_error is None:
            return None
        last = self._last_error
        failed = DeliveryFailed(
            f"{self._count} submitted events were not delivered; last: {last.message}",
            hint=last.hint,
            field=last.field,
            code=last.code,
            events=[json.loads(body) for body in self._kept],
            event_count=self._count,
        )
        self._last_error = None
        self._count = 0
        self._kept = []
        self._kept_bytes = 0
        return failed
