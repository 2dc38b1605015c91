"""Events spelt out: the JSON of `event_json`, for who needs it of thousands of events a second.

Arrow does it, whole columns at a time and without Python's lock: other threads run meanwhile, and
an event is a Python object only when it is spelt.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import LedgerDamaged
from tidemark.ledger.port import HASH_BYTES, NO_TEXT, TEXT_END, EventText
from tidemark.ledger.rows import EVENT_COLUMNS
from tidemark.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

Columns: TypeAlias = dict[str, pa.Array]

_NUMBERS: Final = ("ingress_sequence", "received_at", "occurred_at")
_ALWAYS_THERE: Final = (*_NUMBERS, "tenant_id", "stream", "idempotency_key", "content_hash")
# What JSON has otherwise between quotes.
_ESCAPED: Final = b'"\\' + bytes(range(0x20))
_TYPES: Final = {n: pa.int64() if n in _NUMBERS else pa.string() for n in EVENT_COLUMNS}
_FOREIGN: Final = "Something else has written to the ledger's database. Bring back a backup."
_encode = msgspec.json.Encoder().encode
_any = msgspec.json.Decoder().decode


class SpeltEvents(NamedTuple):
    """Events that follow one another, in JSON, and what is asked of them besides."""

    first_sequence: int
    streams: Sequence[str]
    causality_keys: Sequence[str | None]
    values: Sequence[bytes]

    def upto(self, last_sequence: int) -> SpeltEvents:
        """Those up to a sequence."""
        count = max(0, last_sequence - self.first_sequence + 1)
        if count >= len(self.values):
            return self
        return SpeltEvents(
            self.first_sequence,
            self.streams[:count],
            self.causality_keys[:count],
            self.values[:count],
        )


class Spelling(NamedTuple):
    """Events that follow one another, spelt out and not yet Python objects."""

    first_sequence: int
    pages: Sequence[tuple[pa.Array, pa.Array, pa.Array]]
    """Streams, causality keys and values."""

    def events(self) -> SpeltEvents:
        streams: list[str] = []
        causality_keys: list[str | None] = []
        values: list[bytes] = []
        for page in self.pages:
            streams += _listed(page[0])
            causality_keys += _listed(page[1])
            values += page[2].to_pylist()
        return SpeltEvents(self.first_sequence, streams, causality_keys, values)


def _listed(column: pa.Array) -> list[Any]:
    """As Python objects: only one where all are the same, as they mostly are."""
    distinct = column.unique()
    listed: list[Any] = (column if len(distinct) > 1 else distinct).to_pylist()
    return listed if len(distinct) > 1 else listed * len(column)


def spelt(texts: Iterable[EventText], after: int, upto: int) -> SpeltEvents:
    """All events with sequences in `(after, upto]`, from what was read of them."""
    return spelling_of(texts, after, upto).events()


def spelling_of(texts: Iterable[EventText], after: int, upto: int) -> Spelling:
    """The same, while other threads may have Python's lock."""
    position = after
    pages = []
    for text in texts:
        try:
            columns = _parsed(text)
            if not _follows(columns["ingress_sequence"], position):
                break
            pages.append((columns["stream"], columns["causality_key"], values_of(columns)))
        except (pa.ArrowException, ValueError) as error:
            raise LedgerDamaged(
                f"events after {position:,} cannot be read: {error}", hint=_FOREIGN
            ) from error
        position += text.event_count
    if position != upto:
        raise LedgerDamaged(
            f"the ledger does not have all events from {position + 1:,} to {upto:,}",
            hint=_FOREIGN,
        )
    return Spelling(after + 1, pages)


def _follows(sequences: pa.Array, after: int) -> bool:
    """Whether they are those after one, without a gap."""
    steps = pc.min_max(pc.pairwise_diff(sequences))
    return len(sequences) == 0 or (
        sequences[0].as_py() == after + 1
        and {steps["min"].as_py(), steps["max"].as_py()} <= {1, None}
    )


def values_of(columns: Columns) -> pa.Array:
    """The JSON of events with the columns of `EventRow`; the hash is in hexadecimal digits."""
    json = _Json(len(columns["ingress_sequence"]))
    json.add('{"ingressSequence":"', columns["ingress_sequence"].cast(pa.string()))
    json.add('","receivedAt":"', _changed(columns["received_at"], _times))
    json.add('Z","occurredAt":"', _times(columns["occurred_at"]))
    json.add('Z","tenantId":"', _escaped(columns["tenant_id"]))
    json.add('","stream":"', _escaped(columns["stream"]))
    json.add('","idempotencyKey":"', _escaped(columns["idempotency_key"]))
    json.add('","contentHash":"', columns["content_hash"], '"')
    json.add_text("metric", columns["metric"])
    json.add_text("customerRef", columns["customer_ref"])
    json.add_text("resourceId", columns["resource_id"])
    json.add_text("quantity", columns["quantity"])
    json.add_content(columns)
    json.add_text("control", columns["control"])
    json.add_text("target", columns["target_key"])
    json.add_text("causalityKey", columns["causality_key"])
    json.add_text("source", columns["source"])
    json.add_text("sourceId", columns["source_id"])
    json.add_text("globalSequence", columns["global_sequence"])
    return json.joined("}")


class _Json:
    """So many texts, each put together of pieces that are either the same in all of them or not."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pieces: list[str | pa.Array] = [""]

    def add(self, *pieces: str | pa.Array) -> None:
        for piece in pieces:
            if isinstance(piece, str) and isinstance(self._pieces[-1], str):
                self._pieces[-1] += piece
            else:
                self._pieces.append(piece)

    def add_text(self, name: str, column: pa.Array) -> None:
        """A member that is left out where there is none."""
        self._add_member(f',"{name}":"', _escaped(column), '"')

    def add_content(self, columns: Columns) -> None:
        """`meta` of usage, `data` of anything else."""
        content = columns["data"]
        if content.null_count == self._count:
            return
        usage = pc.and_(columns["metric"].is_valid(), columns["control"].is_null())
        name = pc.if_else(usage, _text(',"meta":'), _text(',"data":'))
        is_object = pc.and_(pc.starts_with(content, "{"), pc.ends_with(content, "}"))
        if pc.all(is_object).as_py():
            self._add_member(name, content, "")
            return
        shown = _changed(content, _each(lambda text: text if _can_be_json(text) else _quoted(text)))
        name = pc.if_else(pc.equal(shown, content), name, _text(',"dataText":'))
        self._add_member(name, shown, "")

    def _add_member(self, name: str | pa.Array, column: pa.Array, end: str) -> None:
        if column.null_count == self._count:
            return
        if column.null_count == 0:
            self.add(name, column, end)
        else:
            self.add(_joined(name, column, end).fill_null(_text("")))

    def joined(self, end: str) -> pa.Array:
        self.add(end)
        return _joined(*self._pieces).cast(pa.binary())


def _joined(*pieces: str | pa.Array) -> pa.Array:
    values = [_text(piece) if isinstance(piece, str) else piece for piece in pieces]
    # Between the pieces is nothing.
    return pc.binary_join_element_wise(*values, _text(""))


@lru_cache
def _text(text: str) -> pa.Scalar:
    return _texts([text])[0]


def _binary(value: bytes) -> pa.Array:
    """An array of one."""
    ends = array("i", [0, len(value)])
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(ends), pa.py_buffer(value)])


_NO_TEXT: Final = _binary(NO_TEXT)[0]


def _texts(texts: Iterable[str | None]) -> pa.Array:
    """Made otherwise, Arrow loads pandas first: that takes half a second, and 40 MiB for ever."""
    builder = pa.lib.StringBuilder()
    for text in texts:
        builder.append(text)
    return builder.finish()


def _parsed(text: EventText) -> Columns:
    if not text.event_count:
        return {name: pa.nulls(0, kind) for name, kind in _TYPES.items()}
    columns = {name: _column(name, text) for name in EVENT_COLUMNS}
    if text.plain_quantity is not None:
        columns["quantity"] = _changed(columns["quantity"], _each(text.plain_quantity))
    return columns


def _column(name: str, text: EventText) -> pa.Array:
    joined, kind = text.columns.get(name), _TYPES[name]
    if joined is None:
        return pa.nulls(text.event_count, kind)
    values = _hashes(joined) if name == "content_hash" else _split(joined)
    if name not in _ALWAYS_THERE and NO_TEXT in joined:
        values = pc.if_else(pc.equal(values, _NO_TEXT), pa.nulls(1, pa.binary())[0], values)
    if len(values) != text.event_count:
        raise pa.ArrowInvalid(f"{name} has {len(values):,} texts for {text.event_count:,} events")
    return values.cast(pa.string()).cast(kind)


def _split(joined: bytes) -> pa.Array:
    return pc.split_pattern(_binary(joined), TEXT_END).values


def _hashes(joined: bytes) -> pa.Array:
    """In hexadecimal digits."""
    digits = pa.py_buffer(joined.hex().encode())
    kind = pa.binary(2 * HASH_BYTES)
    return pa.Array.from_buffers(kind, len(joined) // HASH_BYTES, [None, digits])


def _times(column: pa.Array) -> pa.Array:
    """As `format_timestamp` has them, without the `Z`."""
    bounds = pc.min_max(column).as_py()
    if len(column) and not (MIN_TIMESTAMP_US <= bounds["min"] <= bounds["max"] <= MAX_TIMESTAMP_US):
        raise ValueError("a time is out of range")
    texts = column.cast(pa.timestamp("us")).cast(pa.string()).cast(pa.binary())
    # By bytes: to look for characters takes more than twice as long.
    return pc.binary_replace_slice(texts, 10, 11, "T").cast(pa.string())


def _escaped(column: pa.Array) -> pa.Array:
    """What is between the quotes of a JSON string."""
    # All texts of the column behind one another, and perhaps some more.
    texts = column.buffers()[2]
    if texts is None or len(plain := texts.to_pybytes()) == len(plain.translate(None, _ESCAPED)):
        return column
    return _changed(column, _each(lambda text: _quoted(text)[1:-1]))


def _changed(column: pa.Array, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Changed, where equal values are changed once."""
    distinct = column.dictionary_encode()
    return change(distinct.dictionary).take(distinct.indices)


def _each(change: Callable[[str], str]) -> Callable[[pa.Array], pa.Array]:
    return lambda texts: _texts(map(change, texts.to_pylist()))


def _quoted(text: str) -> str:
    return _encode(text).decode()


def _can_be_json(text: str) -> bool:
    """Whether content is what ingress stores. Nobody can send anything else, but who writes to the
    database; then the message is to be JSON all the same."""
    # An object, as it nearly always is.
    return (text[:1] == "{" and text[-1:] == "}") or _is_json(text)


def _is_json(text: str) -> bool:
    try:
        _any(text)
    except msgspec.DecodeError:
        return False
    return True
