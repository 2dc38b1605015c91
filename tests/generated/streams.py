"""Ledgers of a stream with a field of every type, and tables to make of them.

Keys are few, so that events meet; times are few, so that they tie and arrive out of order.
Corrections take any event before them as their target, again and again, in the same commit or a
later one. Some content cannot be decoded. The fields have names that a fold might use itself.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from hypothesis import strategies as st

from tests.generated.ledgers import DAY, FIRST_RECEIVED_AT, GAPS, HOUR
from tests.reference.instants import parse_instant
from tests.reference.tables import (
    Calculated,
    Condition,
    Content,
    EventTime,
    Field,
    StreamCommit,
    StreamEvent,
    Table,
    Values,
)

STREAM: Final = "orders"
OTHER_STREAM: Final = "other"

Kind = Literal["data", "void", "amend", "end", "other"]
Choices = Mapping[str, Sequence[Any]]

KINDS: Final[tuple[Kind, ...]] = (*("data",) * 8, *("amend",) * 4, *("void",) * 2, "end", "other")
TENANTS: Final = ("t1", "t1", 'tenant "zwei"\\')
_AT: Final = "2025-11-10T00:00:00Z"
# None: the time at which it is received, or that of the original.
TIMES: Final[tuple[int | None, ...]] = (
    *(None, None),
    *(parse_instant(_AT) + nudge for nudge in (0, 0, 0, 1, -1, HOUR, -HOUR, DAY)),
    *(FIRST_RECEIVED_AT, FIRST_RECEIVED_AT + 8 * DAY, 0),
)
TEXTS: Final = (
    *("", "a", "null", "true", "12", "{}", "gone", " ", "\t\n\r\b\f", "\x01\x0b\x1f\x7f", "\u2028"),
    *('"', "\\", "\\\\u000B", "'; --", "größer 💧 e\u0301", "\ufeff\uffff", "a" * 300, "{'$'}"),
)
JSONS: Final = (
    *({}, [], "", "a", "12", "{}", '\x01\x0b\x1f/\\\\u001F"', True, 0, [None], {"b": {"a": None}}),
    *([1, [2, {"x": "ü\x1f\\"}]], {"": 1, "\x1b": "💧"}, "null"),
)
# Numbers that no Python type has, as JSON text.
RAW_JSONS: Final = (
    "0.12345678901234567890123456789",
    "-" + "9" * 60,
    '{"n":100.000000000000000001}',
)
FIELDS: Final = (
    Field("id", "string"),
    Field("place", "enum", values=("here", "there", 'dort "ü"\\')),
    Field("at", "timestamp"),
    Field("count", "int"),
    Field("ts", "bigint"),
    Field("text", "string", required=False),
    Field("price", "decimal", required=False),
    Field("is_deleted", "boolean", required=False),
    Field("row", "json", required=False),
    Field("received_at", "timestamp", required=False),
    Field("value", "enum", required=False, values=("v", "null")),
)
_ABSENT: Final = object()
GOOD: Final[Choices] = {
    "id": ("a", "a", "b", 'ü"\\\n', "", "k" * 1100, "k" * 1099 + "l"),
    "place": ("here", "here", "there", 'dort "ü"\\'),
    "at": (_AT, _AT, "2025-11-10T00:00:00.000001Z", "1970-01-01T00:00:00.000000Z"),
    "count": (0, 1, 1, -1, 2, 2**31 - 1, -(2**31)),
    "ts": ("0", "1", "-1", str(2**63 - 1), str(-(2**63))),
    "text": (_ABSENT, _ABSENT, None, *TEXTS, 12, [1, {"a": None}]),
    "price": (
        *(_ABSENT, None, "0", "1", "0.1", "-0.000000001", "10.5"),
        *("9999999999999999999.999999999", "-9999999999999999999.999999999"),
    ),
    "is_deleted": (_ABSENT, None, True, False),
    "row": (_ABSENT, None, *JSONS, *RAW_JSONS),
    "received_at": (_ABSENT, _AT, "2261-12-31T23:59:59.999999Z"),
    "value": (_ABSENT, None, "v", "null"),
}
# One of these in place of the right one makes the whole event undecodable.
BAD: Final[Choices] = {
    "id": (_ABSENT, None),
    "place": (_ABSENT, "nowhere", "HERE", " here", ""),
    "at": (
        *(None, "T12:00:00Z", "12:00", "2025-02-30T00:00:00Z", "2025-11-10", "now", "soon", 0),
        *("2025-11-10T00:00:00", "1969-12-31T23:59:59Z", "2262-01-01T00:00:00Z", ""),
        *("0000-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "2025-11-10T00:00:00.0000001Z"),
    ),
    "count": (_ABSENT, "x", 2**31, "1.5", " 1", "", "1e3", True, [1]),
    "ts": (None, str(2**63), "0x1", "1L", {}),
    "price": ("10000000000000000000", "0.0000000001", "1e5", "NaN", "", ".5", False),
    "is_deleted": ("yes", 1, "t", "TRUE", ""),
    "received_at": ("2025-13-01T00:00:00Z", "epoch"),
    "value": ("w", 5, ""),
}
BROKEN: Final = ("{", "", "[]", "null", '"a"', "{}", '[{"id":"a"}]', '{"id":"a"', "nonsense")


@dataclass(frozen=True)
class Wish:
    """What one entry wishes for; what its kind does not need plays no part."""

    kind: Kind
    tenant_id: str
    ts: int | None
    # How far back among the originals.
    back: int
    values: Mapping[str, Any]
    # Which field is spoilt and by which of its bad values, or which broken text is sent.
    spoilt: tuple[str, int] | None


@dataclass(frozen=True)
class StreamShape:
    max_commits: int = 7
    max_entries: int = 5
    controls: bool = True


DEFAULT_SHAPE: Final = StreamShape()
_BACK: Final = (0, 0, 1, 0, 2, 3, 5, 8)
_SPOILT: Final = (
    *(None,) * 400,
    *((name, place) for name, values in BAD.items() for place in range(len(values))),
    *(("", place) for place in range(len(BROKEN))),
)


def stream_ledgers(shape: StreamShape = DEFAULT_SHAPE) -> st.SearchStrategy[list[StreamCommit]]:
    """Ledgers from hypothesis."""
    wish = st.builds(
        Wish,
        kind=st.sampled_from(KINDS if shape.controls else ("data",)),
        tenant_id=st.sampled_from(TENANTS),
        ts=st.sampled_from(TIMES),
        back=st.sampled_from(_BACK),
        values=st.fixed_dictionaries({n: st.sampled_from(v) for n, v in GOOD.items()}),
        spoilt=st.sampled_from(_SPOILT),
    )
    commit = st.tuples(st.sampled_from(GAPS), st.lists(wish, max_size=shape.max_entries))
    return st.lists(commit, max_size=shape.max_commits).map(build_stream)


def random_stream(seed: int, shape: StreamShape = DEFAULT_SHAPE) -> list[StreamCommit]:
    """The ledger of a seed, with as many commits as the shape allows."""
    source = random.Random(seed)

    def wish() -> Wish:
        return Wish(
            kind=source.choice(KINDS if shape.controls else ("data",)),
            tenant_id=source.choice(TENANTS),
            ts=source.choice(TIMES),
            back=source.choice(_BACK),
            values={name: source.choice(values) for name, values in GOOD.items()},
            spoilt=source.choice(_SPOILT),
        )

    drafts = []
    for _ in range(shape.max_commits):
        entries = source.choice((0, *range(shape.max_entries + 1)))
        drafts.append((source.choice(GAPS), [wish() for _ in range(entries)]))
    return build_stream(drafts)


def build_stream(drafts: Sequence[tuple[int, Sequence[Wish]]]) -> list[StreamCommit]:
    """The ledger that grants as many of the wishes as can be; a correction with nothing to correct
    is left out, which may leave a tick."""
    originals: list[StreamEvent] = []
    counts: Counter[str] = Counter()
    commits: list[StreamCommit] = []
    received_at = FIRST_RECEIVED_AT
    for gap, wishes in drafts:
        received_at = received_at + gap if gap > 0 else (received_at // -gap + 1) * -gap
        events = []
        for wish in wishes:
            event = _event(wish, originals, sum(counts.values()) + 1)
            if event is not None:
                counts[event["tenant_id"]] += 1
                event["key"] = f"k{counts[event['tenant_id']]}"
                events.append(event)
                if event["control"] is None and event["stream"] == STREAM:
                    originals.append(event)
        commits.append((received_at, events))
    return commits


def _event(wish: Wish, originals: Sequence[StreamEvent], seq: int) -> StreamEvent | None:
    event = StreamEvent(
        seq=seq,
        key="",
        tenant_id=wish.tenant_id,
        stream=OTHER_STREAM if wish.kind == "other" else STREAM,
        control=None,
        target=None,
        event=None,
        ts=None,
        data="{}",
    )
    content = Content(data=data_text(wish), ts=wish.ts)
    if wish.kind in ("data", "other"):
        return {**event, **content}
    if wish.kind == "end":
        return {**event, "control": "end"}
    if not originals:
        return None
    original = originals[-1 - wish.back % len(originals)]
    correction: StreamEvent = {
        **event,
        "control": wish.kind,
        "tenant_id": original["tenant_id"],
        "target": original["key"],
    }
    # What an amend says must be JSON, because it stands inside of JSON.
    if wish.kind == "amend":
        correction["event"] = {**content, "data": content["data"] if _is_object(content) else "{}"}
    return correction


def _is_object(content: Content) -> bool:
    try:
        return isinstance(json.loads(content["data"]), dict)
    except ValueError:
        return False


def data_text(wish: Wish) -> str:
    """What is sent, in canonical JSON unless it is broken."""
    values = dict(wish.values)
    if wish.spoilt is not None:
        name, place = wish.spoilt
        if not name:
            return BROKEN[place]
        values[name] = BAD[name][place]
    members = (
        f'"{name}":{value if name == "row" and value in RAW_JSONS else _json(value)}'
        for name, value in sorted(values.items())
        if value is not _ABSENT
    )
    return "{" + ",".join(members) + "}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _quotient(values: Values) -> int:
    if values["count"] == 0:
        raise ZeroDivisionError
    sign = -1 if (values["ts"] < 0) != (values["count"] < 0) else 1
    quotient: int = sign * (abs(values["ts"]) // abs(values["count"]))
    if quotient == 2**63:
        raise OverflowError
    return quotient


def _millis(value: int) -> int | None:
    latest = parse_instant("2261-12-31T23:59:59.999999Z")
    return value * 1000 if 0 <= value * 1000 <= latest else None


PLUS_ONE: Final = Calculated(
    "plus_one", "decimal", "price + 1", lambda v: None if v["price"] is None else v["price"] + 1
)
QUOTIENT: Final = Calculated("old_text", "bigint", "ts div count", _quotient)
LABEL: Final = Calculated(
    "names",
    "string",
    "concat(id, '/', coalesce(text, '-'))",
    lambda v: f"{v['id']}/{v['text']}" if v["text"] is not None else f"{v['id']}/-",
)
NEXT_DAY: Final = Calculated(
    "next_day", "timestamp", "at + interval 1 day", lambda v: v["at"] + DAY
)
IS_HERE: Final = Calculated("is_here", "boolean", "place = 'here'", lambda v: v["place"] == "here")
SHORTER: Final = Calculated(
    "reached", "int", "length(text)", lambda v: None if v["text"] is None else len(v["text"])
)
GONE: Final = Condition(
    "text = 'gone'", lambda v: None if v["text"] is None else v["text"] == "gone"
)
DELETED: Final = Condition("is_deleted", lambda v: v["is_deleted"])
FAILING: Final = Condition("1 div count < 0", lambda v: _quotient({**v, "ts": 1}) < 0)

# The simplest first.
TABLES: Final[tuple[Table, ...]] = (
    Table("by_id", STREAM, ("id",), FIELDS),
    Table("deleting", STREAM, ("id",), FIELDS, (IS_HERE, PLUS_ONE), DELETED),
    Table("by_place", STREAM, ("place",), FIELDS, (LABEL, NEXT_DAY, SHORTER), DELETED),
    Table("by_all", STREAM, ("ts", "at", "count"), FIELDS, (QUOTIENT,), GONE),
    Table("failing", STREAM, ("place",), FIELDS, (), FAILING),
    Table(
        "timed",
        STREAM,
        ("place",),
        FIELDS,
        (),
        DELETED,
        EventTime("at", "iso8601", lambda value: value),
    ),
    Table(
        "by_number",
        STREAM,
        ("id", "place"),
        FIELDS,
        (),
        None,
        EventTime("ts", "unixtimestamp_ms", _millis),
    ),
)
