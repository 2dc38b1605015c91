"""Raw settings as rules look at them: what has the wrong type is passed over.

That it is wrong is reported elsewhere. So a file with a wrong type in one place still shows all
that is wrong in the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tidemark.config.problems import Location

# A problem before its place in the file is known.
Finding = tuple[Location, str, str]
Rule = Callable[[dict[str, Any]], Iterator[Finding]]


def mapping_of(raw: dict[str, Any], key: str) -> dict[str, Any]:
    """The settings of a section that are set; none where there is no section."""
    value = raw.get(key)
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else {}


def sections(raw: dict[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
    """The sections in a mapping, with their names: of `streams`, `meters`, `views`."""
    found = raw.get(key)
    if not isinstance(found, dict):
        return []
    return [(name, mapping_of(found, name)) for name in found]


def fields_of(stream: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The fields of a stream, also those in short form."""
    fields = stream.get("fields")
    if not isinstance(fields, dict):
        return []
    return [
        (name, {"type": value} if isinstance(value, str) else mapping_of(fields, name))
        for name, value in fields.items()
    ]


def texts_of(entries: Any) -> list[tuple[int, str]]:
    """The texts in a list, with their places."""
    if not isinstance(entries, list):
        return []
    return [(index, entry) for index, entry in enumerate(entries) if isinstance(entry, str)]
