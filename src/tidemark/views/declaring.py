"""What declaring views means for those that are there already; the same for both stores."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidemark.pipeline.output.errors import DefinitionChanged, InvalidView
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.views.reading import read_schema
from tidemark.views.scanning import Row

FIRST_VERSION = 1


class Declaration(msgspec.Struct, frozen=True):
    """Views to make, and those whose log is switched on or off."""

    new: list[ViewSchema]
    relogged: list[ViewSchema]


def declare(stored: Sequence[Row], views: Sequence[ViewSchema]) -> Declaration:
    """Compares with the rows of `views`. A view that is not declared any more is left alone."""
    known = {schema.name.lower(): schema for schema in map(read_schema, stored)}
    result = Declaration([], [])
    for view in views:
        present = known.get(view.name.lower())
        if present is None:
            result.new.append(view)
        elif present.name != view.name:
            raise InvalidView(
                f"view {view.name}: there is a view {present.name} already",
                hint="Names of views must differ by more than upper and lower case.",
                field="name",
            )
        elif _meaning(present) != _meaning(view):
            raise DefinitionChanged(
                f"view {view.name} was built with another definition",
                hint="Change the definition back, or build the new one beside the old:"
                " `tidemark replay --as NAME`, and with --swap it takes its place.",
                field=view.name,
            )
        elif present.logged != view.logged:
            result.relogged.append(view)
        known[view.name.lower()] = view
    return result


def view_row(
    schema: ViewSchema, log_floor: int, *, version: int = FIRST_VERSION, swapped_at: int = 0
) -> tuple[object, ...]:
    """A new row of `views`, in the order of its columns."""
    return (
        schema.name,
        version,
        schema.definition_hash,
        msgspec.json.encode(schema.columns).decode(),
        msgspec.json.encode(schema.key).decode(),
        schema.logged,
        log_floor,
        swapped_at,
    )


def _meaning(schema: ViewSchema) -> ViewSchema:
    return msgspec.structs.replace(schema, logged=True)
