"""What the mirror says of events and commits, and where it says they are."""

from __future__ import annotations

import itertools
import json
import zlib
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.ledger.event_json import event_view
from tidemark.ledger.port import CommitRow, EventRow, PlacedEvents
from tidemark.ledger.spelling import SpeltEvents, values_of
from tidemark.mirror.messages import (
    checksum_of,
    commit_messages,
    commit_record,
    decode_commit,
    encode_commit,
    event_messages,
    runs_of,
)
from tidemark.mirror.partitioning import chosen, in_turn, murmur2
from tidemark.mirror.places import Place, PlaceColumns, place_in, unpacked
from tidemark.timestamps import MAX_TIMESTAMP_US


def row(**fields: object) -> EventRow:
    values = dict.fromkeys(EventRow.__struct_fields__) | {
        "ingress_sequence": 41,
        "received_at": 1_735_689_600_250_001,
        "occurred_at": 1_735_689_600_000_000,
        "content_hash": b"\xab" * 32,
        "tenant_id": "acme",
        "stream": "usage",
        "idempotency_key": "k",
    }
    return EventRow(**{**values, **fields})  # type: ignore[arg-type]


def spelt(*rows: EventRow) -> list[bytes]:
    """As `values_of` spells what the ledger has of them."""
    columns: dict[str, pa.Array] = {}
    for name in EventRow.__struct_fields__:
        values = [getattr(row, name) for row in rows]
        if name == "content_hash":
            values = [value.hex() for value in values]
        elif name == "global_sequence":
            values = [None if value is None else str(value) for value in values]
        is_number = name in ("ingress_sequence", "received_at", "occurred_at")
        columns[name] = pa.array(values, pa.int64() if is_number else pa.string())
    return values_of(columns).to_pylist()


def message(sent: EventRow) -> tuple[Any, ...]:
    events = SpeltEvents(sent.ingress_sequence, [sent.stream], [sent.causality_key], spelt(sent))
    commit = CommitRow(sent.received_at, sent.ingress_sequence, sent.ingress_sequence, b"")
    [found] = zip(*event_messages([commit], events), strict=True)
    return found


@given(st.binary())
def test_the_checksum_is_that_of_zlib_whatever_computes_it(value: bytes) -> None:
    assert checksum_of(value) == zlib.crc32(value)


def test_a_message_is_the_event_with_the_key_of_its_run() -> None:
    sent = row(causality_key="Lauf 7", metric="calls", quantity="3", data='{"a":1}')
    value, key, timestamp_ms, headers = message(sent)
    assert key == b"Lauf 7"
    assert timestamp_ms == 1_735_689_600_250
    assert headers == {"tidemark-ingress-sequence": b"41"}
    assert json.loads(value) == {
        "ingressSequence": "41",
        "receivedAt": "2025-01-01T00:00:00.250001Z",
        "occurredAt": "2025-01-01T00:00:00.000000Z",
        "tenantId": "acme",
        "stream": "usage",
        "idempotencyKey": "k",
        "contentHash": "ab" * 32,
        "metric": "calls",
        "quantity": "3",
        "meta": {"a": 1},
        "causalityKey": "Lauf 7",
    }
    assert message(row())[1] == b"41"


def test_messages_have_the_times_of_their_commits() -> None:
    commits = [
        CommitRow(5_000, 7, 8, b""),
        CommitRow(6_000, 9, 8, b""),
        CommitRow(7_000, 9, 9, b""),
    ]
    events = SpeltEvents(7, ["usage"] * 3, [None, "r", None], [b"a", b"b", b"c"])
    found = event_messages(commits, events)
    assert found.values == [b"a", b"b", b"c"]
    assert found.keys == [b"7", b"r", b"9"]
    assert found.timestamps_ms == [5, 5, 7]


def test_content_that_is_no_json_leaves_the_message_whole() -> None:
    for text in ("nonsense", '{"a":', "", '{"a":1}x'):
        found = json.loads(spelt(row(data=text))[0])
        assert found["dataText"] == text
        assert "data" not in found
    assert json.loads(spelt(row(data='"x"'))[0])["data"] == "x"


def test_a_commit_says_where_its_messages_are_and_what_they_come_to() -> None:
    commit = CommitRow(1_735_689_600_250_001, 41, 46, b"\x02" * 32)
    places = {("usage", 0): [(17, 18), (20, 20)], ("trades", 2): [(5, 5)], ("usage", 1): [(7, 8)]}
    record = commit_record("L", commit, places, 5, {"usage": 30, "trades": 9})
    sent = commit_messages([commit], [record])
    [value] = sent.values
    assert sent[1:] == ([b"1735689600250001"], [1_735_689_600_250], [{}])
    assert json.loads(value) == {
        "ledgerId": "L",
        "receivedAt": "2025-01-01T00:00:00.250001Z",
        "first": "41",
        "last": "46",
        "chain": "02" * 32,
        "checksum": "5",
        "counts": {"usage": 5, "trades": 1},
        "offsets": {
            "usage": {"0": [["17", "18"], ["20", "20"]], "1": [["7", "8"]]},
            "trades": {"2": [["5", "5"]]},
        },
        "totals": {"usage": "30", "trades": "9"},
    }
    found = decode_commit(value)
    assert (found.received_at_us, found.last_sequence) == (commit.received_at, 46)
    assert list(found.runs()) == [
        ("usage", 0, 17, 18),
        ("usage", 0, 20, 20),
        ("usage", 1, 7, 8),
        ("trades", 2, 5, 5),
    ]


SOUND = commit_record(
    "L", CommitRow(7, 1, 3, b"\x02" * 32), {("usage", 0): [(4, 5), (7, 7)]}, 5, {"usage": 3}
)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"null",
        b'{"ledgerId":1}',
        b'{"ledgerId":"M\xfcller"}',
        encode_commit(SOUND).replace(b'"first":"1"', b'"first":"\xff"'),
        encode_commit(SOUND).replace(b'"usage"', b'"us\xe4ge"'),
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda value: repr(value[:24]),
)
def test_what_is_no_commit_is_not_taken_for_one(value: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_commit(value)


def test_a_commit_that_is_sound_is_read_as_it_was_written() -> None:
    assert decode_commit(encode_commit(SOUND)) == SOUND


@pytest.mark.parametrize(
    "change",
    [
        {"received_at": "yesterday"},
        {"received_at": "2025-13-01T00:00:00.000000Z"},
        {"first": "one"},
        {"last": "2"},
        {"last": ""},
        {"chain": "02"},
        {"chain": "zz" * 32},
        {"checksum": "-1"},
        {"totals": {"usage": "many"}},
        {"counts": {"usage": 2}},
        # Its events would be left out as if only time had passed.
        {"counts": {}, "offsets": {}},
        {"offsets": {"usage": {"0": [("4", "5")]}}},
        {"offsets": {"usage": {"zero": [("4", "6")]}}},
        {"offsets": {"trades": {"0": [("4", "6")]}}},
        {"offsets": {"usage": {"0": [("4", "6"), ("9", "8")]}}},
        {"offsets": {"usage": {"0": [("-1", "1")]}}},
    ],
    ids=str,
)
def test_a_commit_that_says_what_cannot_be_is_none(change: dict[str, Any]) -> None:
    forged = msgspec.structs.replace(SOUND, **change)
    with pytest.raises(msgspec.MsgspecError):
        decode_commit(encode_commit(forged))


@given(st.sets(st.integers(0, 60)))
def test_runs_hold_exactly_their_offsets(offsets: set[int]) -> None:
    runs = runs_of(sorted(offsets))
    assert {n for first, last in runs for n in range(first, last + 1)} == offsets
    # As few as there can be.
    assert all(after[0] > before[1] + 1 for before, after in itertools.pairwise(runs))


def test_a_checksum_is_what_others_call_crc_32() -> None:
    assert checksum_of(b"123456789") == 0xCBF43926


TEXTS = st.none() | st.text(max_size=5) | st.sampled_from(["a", 'b"\\', "ä\x00\x1f\x7f\u2028", ""])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
)


@given(
    st.lists(
        st.builds(
            lambda times, names, data, rest: row(
                received_at=times[0],
                occurred_at=times[1],
                **dict(
                    zip(
                        ("metric", "customer_ref", "resource_id", "control", "target_key"),
                        names[:5],
                        strict=True,
                    )
                ),
                **dict(zip(("causality_key", "source", "source_id"), names[5:], strict=True)),
                tenant_id=rest[0],
                idempotency_key=rest[1],
                quantity=rest[2],
                global_sequence=rest[3],
                data=None if data is ... else json.dumps(data),
            ),
            st.tuples(st.integers(0, 2**53), st.integers(0, MAX_TIMESTAMP_US)),
            st.tuples(*[TEXTS] * 8),
            st.just(...) | JSON,
            st.tuples(
                st.text(max_size=4),
                st.text(max_size=4),
                st.none() | st.just("-1.5"),
                st.none() | st.integers(0, 2**62),
            ),
        ),
        max_size=4,
    )
)
def test_whole_columns_are_spelt_as_the_api_spells_events(rows: list[EventRow]) -> None:
    assert spelt(*rows) == [msgspec.json.encode(event_view(sent)) for sent in rows]


@given(
    st.integers(1, 2**62),
    st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), min_size=1),
)
def test_places_are_kept_as_they_are(first: int, places: list[tuple[int, int]]) -> None:
    columns = PlaceColumns.unknown(len(places))
    for index, place in enumerate(places):
        columns.put(index, Place(*place))
    packed = columns.packed()
    assert unpacked(packed) == columns
    assert len(packed) == 12 * len(places)
    placed = PlacedEvents(first, first + len(places) - 1, packed)
    assert [place_in(placed, first + n) for n in range(len(places))] == places


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_runs_go_where_javas_clients_send_their_keys(key: bytes, hashed: int) -> None:
    """The values are those of the tests of Kafka's own clients."""
    assert murmur2(key) == hashed & 0xFFFFFFFF


def test_events_without_a_run_go_to_the_partitions_in_turn() -> None:
    assert chosen(1, [None] * 5, [range(3)] * 5) == [1, 2, 0, 1, 2]
    assert chosen(1, [None] * 4, [range(3), range(2), range(2), "abc"]) == [1, 0, 1, "b"]
    assert len({*chosen(0, ["r"] * 9, [range(3)] * 9)}) == 1
    for first, count, partitions in itertools.product(range(7), range(9), range(1, 5)):
        one_by_one = chosen(first, [None] * count, [range(partitions)] * count)
        assert in_turn(first, count, range(partitions)) == one_by_one
    assert chosen(7, ["abc"], [range(1_000)]) == [479470107 % 1_000]
