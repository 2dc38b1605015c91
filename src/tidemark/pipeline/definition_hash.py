"""By what a definition is known, and how the views are named that only the pipeline sees."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

# What the hash of a definition covers besides the definition: how it is folded. A change of the
# rules is a change of every definition.
RULES_VERSION: Final = 1
INTERNAL_MARK: Final = "__"


def definition_hash(definition: msgspec.Struct) -> str:
    """The same for the same meaning, whatever the order of the file was."""
    meaning = [RULES_VERSION, type(definition).__name__, msgspec.to_builtins(definition)]
    return hashlib.sha256(msgspec.json.encode(meaning, order="sorted")).hexdigest()
