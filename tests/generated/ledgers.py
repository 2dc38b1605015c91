"""Ledgers made up to hurt: few names, so that keys collide, and times where rules change.

A ledger is made in two steps. First there is a *draft*: how long each commit waits and what its
entries wish for, every wish taken from a short list of values, independent of all others. Then
`build_ledger` makes a valid ledger of any draft: it numbers the events, finds the originals that
corrections wish for, and turns wishes such as "48 hours and a microsecond before the latest event
of this customer" into times. So a draft can come from hypothesis, which shrinks it by dropping
entries and moving wishes towards the front of their lists, or from a seeded generator, which is
quick enough for long runs.

The wishes reach: periods in UTC and in zones with clock changes, to the microsecond on either side
of their bounds; lateness of 0, 1 and 48 hours, to the microsecond; equal times; clocks days,
a year and centuries ahead, and the first instant of 1970; silences of a microsecond to weeks, with
and without ticks; decimals of all sizes; absent, null, empty and odd group values; amends and voids
of anything, again and again, also in the commit of their original; adjustments, and voids of these.
A ledger has no duplicates, so no tenant uses a key twice; but all tenants use the same ones.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, Literal

from hypothesis import strategies as st

from tests.reference.history import Commit, Content, Control, Event
from tests.reference.instants import parse_instant

SECOND: Final = 1_000_000
HOUR: Final = 3_600 * SECOND
DAY: Final = 24 * HOUR

Kind = Literal["usage", "void", "amend", "adjust", "end"]
# An instant, or one that depends on the ledger so far.
Base = int | Literal["latest", "earlier", "same", "now"]

USAGE: Final = "usage"
FIRST_RECEIVED_AT: Final = parse_instant("2025-11-10T12:00:00Z")

# Tenant, metric and customer. Usage has all three, other streams have tenants only.
Owner = tuple[str, str | None, str | None]
# Resource and meta.
Details = tuple[str | None, Mapping[str, Any] | None]

TENANTS: Final = ("t1", "t1", "t2")
METRICS: Final = ("api_calls", "api_calls", "api_calls", "api_calls", "bytes")
CUSTOMERS: Final = ("c1", "c1", "c2")
OWNERS: Final[tuple[Owner, ...]] = tuple(product(TENANTS, METRICS, CUSTOMERS))
RESOURCES: Final = (None, None, "r1", "")
REASONS: Final = ("goodwill", "Gutschrift “März”\n", "void")
QUANTITIES: Final = (
    *("1", "0", "2", "-1", "10", "0.1", "0.2", "-0.3", "2.5", "0.000000001"),
    *("9999999999999999999.999999999", "-9999999999999999999.999999999"),
)
METAS: Final[tuple[Mapping[str, Any] | None, ...]] = (
    None,
    {"region": "eu"},
    {"region": "us", "plan": "pro"},
    {"plan": "free"},
    {"region": None, "plan": "pro"},
    {"region": "", "plan": 'a"b\\'},
    {"region": "größer\n", "plan": "null"},
)
DETAILS: Final[tuple[Details, ...]] = tuple(product(RESOURCES, METAS))
KINDS: Final[tuple[Kind, ...]] = (
    *("usage",) * 8,
    *("void", "void", "amend", "amend", "amend", "adjust", "end"),
)
# How long since the commit before; or, negative, until the next full hour or day.
GAPS: Final = (1, SECOND, 60 * SECOND, HOUR, DAY, 3 * DAY, 8 * DAY, 25 * DAY, -HOUR, -DAY, -DAY)
NUDGES: Final = (
    *(0,) * 8,
    *(1, -1, HOUR, -HOUR, -HOUR - 1, -HOUR + 1, 12 * HOUR, 3 * DAY),
    *(-48 * HOUR, -48 * HOUR - 1, -48 * HOUR + 1, -3 * DAY),
)
# Where periods begin, and where clocks are changed.
BOUNDS: Final = tuple(
    parse_instant(text)
    for text in (
        "2025-11-10T00:00:00Z",  # a Monday
        "2025-11-01T00:00:00Z",  # a month
        "2025-11-01T04:00:00Z",  # a month in New York
        "2025-10-31T23:00:00Z",  # a month in Berlin
        "2025-11-02T04:00:00Z",  # the day of 25 hours in New York, …
        "2025-11-02T06:00:00Z",  # … the hour that comes twice, …
        "2025-11-03T05:00:00Z",  # … and the end of the day, which begins a week
        "2025-10-25T22:00:00Z",  # the day of 25 hours in Berlin, …
        "2025-10-26T01:00:00Z",  # … the hour that comes twice, …
        "2025-10-26T23:00:00Z",  # … and the end of the day, which begins a week
        "2026-03-08T07:00:00Z",  # the hour that New York skips
        "2026-03-29T01:00:00Z",  # the hour that Berlin skips
    )
)
FIRST_INSTANT: Final = 0
LAST_INSTANT: Final = parse_instant("2261-12-31T23:59:59.999999Z")
FAR_TIMES: Final = (
    parse_instant("2025-11-29T12:00:00Z"),
    parse_instant("2027-01-15T00:00:00Z"),
    LAST_INSTANT,
    FIRST_INSTANT,
)
MOVING: Final[tuple[Base, ...]] = ("latest", "earlier", "same", "now") * 8


@dataclass(frozen=True)
class Wish:
    """What one entry wishes for; what its kind does not need plays no part."""

    kind: Kind
    stream: str
    owner: Owner
    base: Base
    nudge: int
    quantity: str
    details: Details
    # How far back among the originals, or among the times that "earlier" looks at.
    back: int


# How long to wait, and the entries.
DraftCommit = tuple[int, list[Wish]]


@dataclass(frozen=True)
class Shape:
    """How large ledgers are, and what is in them."""

    max_commits: int = 7
    max_entries: int = 5
    streams: tuple[str, ...] = (USAGE,)
    controls: bool = True
    far_times: bool = True

    def wishes(self) -> dict[str, Sequence[Any]]:
        """The values that each wish is taken from, the simplest first."""
        calm: tuple[Base, ...] = BOUNDS[:4] + MOVING + BOUNDS[4:]
        return {
            "kind": KINDS if self.controls else ("usage",),
            "stream": self.streams,
            "owner": OWNERS,
            "base": (*calm, *FAR_TIMES) if self.far_times else calm,
            "nudge": NUDGES,
            "quantity": QUANTITIES,
            "details": DETAILS,
            "back": (0, 1, 0, 2, 0, 1, 3, 5),
        }


DEFAULT_SHAPE: Final = Shape()


def ledgers(shape: Shape = DEFAULT_SHAPE) -> st.SearchStrategy[list[Commit]]:
    """Ledgers from hypothesis."""
    wish = st.builds(
        Wish, **{name: st.sampled_from(values) for name, values in shape.wishes().items()}
    )
    commit = st.tuples(st.sampled_from(GAPS), st.lists(wish, max_size=shape.max_entries))
    return st.lists(commit, max_size=shape.max_commits).map(build_ledger)


def random_ledger(seed: int, shape: Shape = DEFAULT_SHAPE) -> list[Commit]:
    """The ledger of a seed, with as many commits as the shape allows."""
    source = random.Random(seed)
    domains = shape.wishes()
    drafts: list[DraftCommit] = []
    for _ in range(shape.max_commits):
        gap = source.choice(GAPS)
        wishes = [
            Wish(**{name: source.choice(values) for name, values in domains.items()})
            for _ in range(source.choice((0, *range(shape.max_entries + 1))))
        ]
        drafts.append((gap, wishes))
    return build_ledger(drafts)


def build_ledger(drafts: Sequence[DraftCommit]) -> list[Commit]:
    """The ledger that grants as many of the wishes as can be: a correction with nothing to correct
    is left out, which may leave a tick."""
    builder = _Builder()
    commits: list[Commit] = []
    received_at = FIRST_RECEIVED_AT
    for gap, wishes in drafts:
        received_at = received_at + gap if gap > 0 else (received_at // -gap + 1) * -gap
        granted = [builder.grant(wish, received_at) for wish in wishes]
        commits.append((received_at, [event for event in granted if event is not None]))
    return commits


class _Builder:
    def __init__(self) -> None:
        self._last_seq = 0
        self._key_counts: Counter[str] = Counter()
        self._originals: list[Event] = []
        self._times: dict[Owner, list[int]] = {}

    def grant(self, wish: Wish, received_at: int) -> Event | None:
        if wish.kind == "usage":
            return self._data(wish, received_at)
        if wish.kind == "adjust":
            return self._adjust(wish, received_at)
        if wish.kind == "end":
            return self._event(_tenant_only(wish.owner), wish.stream, "end", received_at)
        return self._correction(wish, wish.kind, received_at)

    def _data(self, wish: Wish, received_at: int) -> Event:
        owner = wish.owner if wish.stream == USAGE else _tenant_only(wish.owner)
        ts = self._moment(wish, owner, received_at)
        self._times.setdefault(owner, []).append(ts)
        event = self._event(owner, wish.stream, None, ts)
        event["resource_id"], event["meta"] = wish.details
        if wish.stream == USAGE:
            event["quantity"] = wish.quantity
            # Only usage is corrected: other streams have schemas that are not known here.
            self._originals.append(event)
        else:
            event["resource_id"] = None
        return event

    def _adjust(self, wish: Wish, received_at: int) -> Event:
        event = self._event(wish.owner, USAGE, "adjust", received_at)
        event["quantity"] = wish.quantity
        event["period_start"] = self._moment(wish, wish.owner, received_at)
        event["reason"] = REASONS[event["seq"] % len(REASONS)]
        self._originals.append(event)
        return event

    def _correction(
        self, wish: Wish, control: Literal["void", "amend"], received_at: int
    ) -> Event | None:
        targets = self._originals
        if control == "amend":
            targets = [event for event in targets if event["control"] is None]
        if not targets:
            return None
        original = targets[-1 - wish.back % len(targets)]
        owner = (original["tenant_id"], original["metric"], original["customer_ref"])
        event = self._event(owner, original["stream"], control, received_at)
        event["target"] = original["key"]
        if control == "amend":
            ts = self._moment(wish, owner, received_at, same=original["ts"])
            self._times.setdefault(owner, []).append(ts)
            resource_id, meta = wish.details
            event["event"] = Content(
                ts=ts, quantity=wish.quantity, meta=meta, resource_id=resource_id
            )
        return event

    def _event(self, owner: Owner, stream: str, control: Control | None, ts: int) -> Event:
        self._last_seq += 1
        tenant_id, metric, customer_ref = owner
        self._key_counts[tenant_id] += 1
        return Event(
            seq=self._last_seq,
            key=f"k{self._key_counts[tenant_id]}",
            tenant_id=tenant_id,
            stream=stream,
            metric=metric,
            customer_ref=customer_ref,
            resource_id=None,
            quantity=None,
            ts=ts,
            meta=None,
            control=control,
            target=None,
            event=None,
            period_start=None,
            reason=None,
        )

    def _moment(self, wish: Wish, owner: Owner, received_at: int, same: int | None = None) -> int:
        """`same` is the time of the original that is corrected."""
        times = self._times.get(owner, [BOUNDS[0]])
        if isinstance(wish.base, int):
            base = wish.base
        elif wish.base == "now":
            base = received_at
        elif wish.base == "earlier":
            base = times[-1 - wish.back % len(times)]
        elif wish.base == "same" and same is not None:
            base = same
        else:
            base = max(times)
        return min(max(base + wish.nudge, FIRST_INSTANT), LAST_INSTANT)


def _tenant_only(owner: Owner) -> Owner:
    return owner[0], None, None
