"""What readers of single values share: how to say what they found, and how a file is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

FAULT: Final = "tidemark"


@dataclass(frozen=True, slots=True)
class Reading:
    """Passed along while a file is read; absent when Python code builds a model itself."""

    base: Path


@dataclass(frozen=True, slots=True)
class Expected:
    """Marks a type with the words for what it takes, and with a pattern for editors.

    What stands in the place of a secret is never shown.
    """

    phrase: str
    secret: bool = False
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Names:
    """Marks a mapping with the pattern of its keys, for editors."""

    pattern: str


def fault(found: str, hint: str = "") -> PydanticCustomError:
    """The error that a reader raises; the type's `Expected` says what should be there instead."""
    return PydanticCustomError(FAULT, "found {found}", {"found": found, "hint": hint})


def reading(info: ValidationInfo) -> Reading | None:
    """The file being read, if one is."""
    return info.context if isinstance(info.context, Reading) else None
