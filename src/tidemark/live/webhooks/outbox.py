"""What delivery asks of the durable outbox. The store of triggers keeps it; this says how.

An event waits as `pending`, is `delivering` while someone has claimed it, and ends as `delivered`
or `dead`. A claim is a lease: `next_attempt_at` of a claimed event is the end of the lease, so that
one query finds what is due, be it new, to be retried, or left behind by a process that died. The
end of the lease is also the proof of ownership: whoever settles with another one comes too late.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, Protocol

import msgspec


class Delivery(msgspec.Struct, frozen=True):
    """One claimed event. Times are wall times in microseconds.

    `attempts` counts those made before this claim, `first_attempt_at` is when the first of them
    began (None if there was none).
    """

    outbox_id: int
    event_id: str
    trigger: str
    url: str
    row_key: str
    payload: bytes
    attempts: int
    first_attempt_at: int | None
    lease_until: int


class Settlement(msgspec.Struct, frozen=True):
    """What became of one attempt; each field is what the outbox shall hold from now on.

    `pending` has the time of the next attempt, the two others have none. `last_status` is None when
    there was no answer, `last_error` is None when the event was delivered. `disable_trigger` says
    that the receiver is gone for good: the trigger is disabled in the same transaction.
    """

    outbox_id: int
    lease_until: int
    trigger: str
    status: Literal["pending", "delivered", "dead"]
    attempts: int
    first_attempt_at: int
    attempted_at: int
    next_attempt_at: int | None
    last_status: int | None
    last_error: str | None
    disable_trigger: bool = False


class Outbox(Protocol):
    """Raises a `TidemarkError` when the store does not answer; delivery then tries again."""

    async def claim(
        self, now_us: int, limit: int, lease_us: int, skip_hosts: Collection[str]
    ) -> list[Delivery]:
        """Take up to `limit` events to deliver, those that are due the longest first.

        Only the oldest event of each (trigger, row_key) that is neither delivered nor dead is ever
        given out, and only when it is `pending` or `delivering`, `next_attempt_at <= now_us`, its
        trigger is enabled and the host of its URL (`targets.host_of`) is not in `skip_hosts`. It
        becomes `delivering` with `next_attempt_at = now_us + lease_us`, durably, before this
        returns.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        """Write what became of attempts, in one transaction.

        A settlement applies only while the event is still `delivering` with that `lease_until`;
        one that comes too late changes nothing, except that `disable_trigger` always applies.
        """
        ...

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Give back claims that were not attempted: `pending` and due at once, if still held."""
        ...

    async def next_due(self, skip_hosts: Collection[str]) -> int | None:
        """When `claim` with these `skip_hosts` next has something to give; None if never.

        Only events that `claim` could give out count: a later event of a key does not.
        """
        ...
