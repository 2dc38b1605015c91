"""Many views with many clients each, all with filters of their own, through one server.

Half of a view's clients watch an account each, half all quantities from a bound of their own on, so
that rows enter and leave what they see. Commits go to one view after the other.
"""

from __future__ import annotations

from itertools import cycle

import msgspec

from benchmarks.live.delivery import of_account, subscription
from benchmarks.live.driving import COMMITS_PER_S, as_fast_as_taken, at_a_rate, until_all_listen
from benchmarks.live.feed import QUANTITIES
from benchmarks.live.rig import Ended, Rig, Store, Used

COMMIT_CHANGES = 10
OUTSTANDING_COMMITS = 40


class Many(msgspec.Struct, frozen=True):
    """What comes through at most, and how late messages are at 1,000 changes a second."""

    store: Store
    views: int
    clients: int
    rows: int
    messages_per_s: float
    messages_per_change: float
    used: Used
    rate_messages_per_s: float
    changes_per_s: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    rate_used: Used


async def measure_many(rig: Rig) -> list[Many]:
    return [await _measure(rig, store) for store in rig.scale.stores]


async def _measure(rig: Rig, store: Store) -> Many:
    scale = rig.scale
    views = [f"trades_{number:02}" for number in range(scale.views)]
    watching = scale.clients_per_view // 2
    bounds = [
        number * QUANTITIES // watching for number in range(scale.clients_per_view - watching)
    ]
    async with rig.served(store, views, scale.rows_per_view, watching) as served:
        after = served.feed.received_at
        wheres = [of_account(number) for number in range(watching)]
        wheres += [{"quantity": {"_gte": f"{bound}"}} for bound in bounds]
        wanted = [subscription(view, where, after=after) for view in views for where in wheres]
        await served.clients.join(served.port, wanted)
        turns = cycle(served.feed.views)
        # Who sees a quantity before or after a change hears of it.
        hear = [1 + sum(bound <= quantity for bound in bounds) for quantity in range(QUANTITIES)]

        changes = 0

        async def commit() -> int:
            nonlocal changes
            changes += COMMIT_CHANGES
            spans = await served.feed.change(next(turns), COMMIT_CHANGES)
            return sum(hear[span[-1]] for span in spans)

        # So often that each view has a change of every account and of every quantity.
        rounds = QUANTITIES // COMMIT_CHANGES
        await until_all_listen(served.clients, commit, rounds * len(views))
        fast = await as_fast_as_taken(
            served, commit, OUTSTANDING_COMMITS, scale.settle_seconds, scale.seconds
        )
        came = (await served.clients.look()).messages
        per_change = came / changes
        paced: Ended = await at_a_rate(served, commit, scale.settle_seconds, scale.seconds)
        sampled = await served.clients.leave()
    return Many(
        store=store,
        views=len(views),
        clients=len(wanted),
        rows=scale.rows_per_view,
        messages_per_s=fast.messages / fast.seconds,
        messages_per_change=per_change,
        used=fast.used,
        rate_messages_per_s=paced.messages / paced.seconds,
        changes_per_s=COMMIT_CHANGES * COMMITS_PER_S,
        p50_ms=sampled.p50_ms,
        p99_ms=sampled.p99_ms,
        max_ms=sampled.max_ms,
        rate_used=paced.used,
    )
