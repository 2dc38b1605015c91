"""How far the time of one tenant in one stream had come at each commit."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from tidemark.pipeline.time import watermarks
from tidemark.pipeline.time.plans import StreamTime


class LaneHistory:
    """The commits at which W moved, in order, and where to."""

    def __init__(self, received_at: Sequence[int], watermarks: Sequence[int]) -> None:
        self._received_at = received_at
        self._watermarks = watermarks

    def before(self, received_at: int) -> int | None:
        """W as it was before a commit; None if there was none."""
        place = bisect_left(self._received_at, received_at)
        return self._watermarks[place - 1] if place else None

    def after(self, received_at: int) -> int | None:
        place = bisect_right(self._received_at, received_at)
        return self._watermarks[place - 1] if place else None

    def reached_at(self, ts: int) -> int | None:
        """The commit at which W first was at or beyond a time; None if it never was."""
        place = bisect_left(self._watermarks, ts)
        return self._received_at[place] if place < len(self._received_at) else None


def by_commit(commits: Sequence[int]) -> LaneHistory:
    """That of a stream whose time is that of the commits of all streams."""
    return LaneHistory(commits, commits)


def by_event_time(
    stream: str, time: StreamTime, commits: Sequence[int], maxima: pa.Table
) -> Mapping[str, LaneHistory]:
    """Those of the tenants of a stream, from the beginning of the ledger.

    `commits` are all there are, or none where the stream is never idle; `maxima` are the greatest
    times of each commit, as `watermarks.MAXIMA_SCHEMA` says.
    """
    with duckdb.connect(":memory:") as connection:
        watermarks.register_settings(connection, {stream: time})
        watermarks.move_watermarks(
            connection,
            watermarks.no_lanes(),
            pa.table({"received_at": pa.array(commits, pa.int64())}),
            maxima,
            watermarks.ENDS_SCHEMA.empty_table(),
        )
        moves = watermarks.moves_of(connection, [stream]).sort_by("received_at").to_pylist()
    found: dict[str, tuple[list[int], list[int]]] = {}
    for move in moves:
        if move["w_after"] is not None and move["w_after"] != move["w_before"]:
            received_at, reached = found.setdefault(move["tenant_id"], ([], []))
            received_at.append(move["received_at"])
            reached.append(move["w_after"])
    return {tenant: LaneHistory(*moved) for tenant, moved in found.items()}


NO_HISTORY = LaneHistory((), ())
