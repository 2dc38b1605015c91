"""What a stream declares its data to be, compiled into two readers that agree.

`quick` decodes with a msgspec type made for the stream and serves every event that is in order.
`read` walks the tree of an event that may not be, and says what is wrong and where. Both give the
same canonical text:

    string, enum, boolean    as they are
    int                      a JSON number of 32 bits
    bigint                   a decimal string of 64 bits
    decimal                  a plain decimal string
    timestamp                a string with six fractional digits and `Z`
    json                     canonical JSON

Optional fields that are absent or null are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from tidemark.canonical import Json, canonical_json, canonical_text
from tidemark.config.model import FieldConfig, IngestConfig
from tidemark.errors import EventRejected
from tidemark.ingress.fields import Context, FieldReader, NotQuick, deeper_than, field_reader
from tidemark.ingress.members import Members, missing
from tidemark.ingress.trees import canonical_tree

# Stands for a member that the JSON text does not have.
ABSENT: Final = msgspec.Raw(b"")


class Reading(NamedTuple):
    """The canonical text of an object, and the values of its identity fields in their order."""

    text: bytes
    identity: Sequence[object]


class Schema(Protocol):
    """Reads one JSON object of an event."""

    def quick(self, raw: msgspec.Raw) -> Reading:
        """Raises a msgspec or Unicode error, `EventRejected` or `NotQuick`: then use `read`."""

    def read(self, tree: dict[str, Json], path: str) -> Reading:
        """Raises `EventRejected` with the path of the fault."""


class FreeSchema:
    """Any JSON object. `depth` is where it stands in the event, which itself is at 1."""

    def __init__(self, limits: IngestConfig, depth: int) -> None:
        self._max_bytes = limits.max_event_bytes
        self._levels = limits.max_json_depth - depth + 1

    def quick(self, raw: msgspec.Raw) -> Reading:
        value, text = canonical_text(raw)
        if type(value) is not dict or len(text) > self._max_bytes:
            raise NotQuick
        if deeper_than(value, text, self._levels):
            raise NotQuick
        return Reading(text, ())

    def read(self, tree: dict[str, Json], path: str) -> Reading:
        return Reading(_bounded(canonical_tree(tree, path), path, self._max_bytes), ())


class DeclaredSchema:
    """An object of declared fields and no others. `depth` as in `FreeSchema`."""

    def __init__(
        self,
        fields: Mapping[str, FieldConfig],
        limits: IngestConfig,
        depth: int,
        *,
        truncate: bool,
        identity: Sequence[str] = (),
    ) -> None:
        context = Context(limits.max_string_length, limits.max_json_depth - depth, truncate)
        # Structs encode in the order of definition, and canonical JSON is sorted.
        readers = {name: field_reader(fields[name], context) for name in sorted(fields)}
        attributes = {name: f"f{index}" for index, name in enumerate(readers)}
        struct = _struct(fields, readers, attributes)
        self._decode = msgspec.json.Decoder(struct).decode
        self._encode = msgspec.json.Encoder().encode
        self._finishes = [
            (attributes[name], reader.finish)
            for name, reader in readers.items()
            if reader.finish is not None
        ]
        self._checks = {name: reader.check for name, reader in readers.items()}
        self._required = {name for name in readers if fields[name].required}
        self._identity = list(identity)
        self._identity_attributes = [attributes[name] for name in identity]
        # Zero, if the object itself is nested too deep: then nothing is quick.
        self._max_quick_bytes = limits.max_event_bytes if context.levels >= 0 else 0
        self._max_bytes = limits.max_event_bytes

    def quick(self, raw: msgspec.Raw) -> Reading:
        data = self._decode(raw)
        for attribute, finish in self._finishes:
            value = getattr(data, attribute)
            if value is not None and value is not ABSENT:
                setattr(data, attribute, finish(value))
        text = self._encode(data)
        if len(text) > self._max_quick_bytes:
            raise NotQuick
        identity = [getattr(data, attribute) for attribute in self._identity_attributes]
        return Reading(text, [None if value is ABSENT else value for value in identity])

    def read(self, tree: dict[str, Json], path: str) -> Reading:
        members = Members(tree, path)
        members.only(*self._checks)
        values: dict[str, object] = {}
        for name, check in self._checks.items():
            if members.has(name):
                values[name] = check(members.value(name), members.path(name))
            elif name in self._required:
                raise missing(members.path(name))
        text = _bounded(canonical_json(values), path, self._max_bytes)
        return Reading(text, [values.get(name) for name in self._identity])


def _struct(
    fields: Mapping[str, FieldConfig],
    readers: Mapping[str, FieldReader],
    attributes: Mapping[str, str],
) -> type[msgspec.Struct]:
    """The msgspec type of the object. Attributes are numbered, since a name may be any text."""
    members: list[tuple[str, Any, Any]] = []
    for name, reader in readers.items():
        kind = reader.quick_type
        if fields[name].required:
            member = msgspec.field(name=name)
        elif kind is msgspec.Raw:
            member = msgspec.field(name=name, default=ABSENT)
        else:
            kind, member = kind | None, msgspec.field(name=name, default=None)
        members.append((attributes[name], kind, member))
    return msgspec.defstruct(
        "Data", members, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
    )


def _bounded(text: bytes, path: str, max_bytes: int) -> bytes:
    """Exponents written out can be longer than they came."""
    if len(text) > max_bytes:
        raise EventRejected(
            f"`{path}` has {len(text)} bytes in canonical form",
            code="event_too_large",
            field=path,
            hint=f"At most {max_bytes} bytes are allowed (`ingest.max_event_bytes`).",
        )
    return text
