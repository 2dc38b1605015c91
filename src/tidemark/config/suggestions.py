"""Did you mean: the nearest names to one that is not known."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

_NEAR_ENOUGH: Final = 0.6
_SHOWN: Final = 3
_LISTED: Final = 20
# A longer word is no misspelling, and comparing it would cost.
_COMPARED_CHARACTERS: Final = 128
_SEPARATORS = re.compile(r"[^a-z0-9]+")


def fold(name: str) -> str:
    """The name without case and separators: `idleAfter`, `idle_after` and `IDLE-AFTER` are one."""
    return _SEPARATORS.sub("", name.lower())


def nearest(
    word: str, names: Iterable[str], synonyms: Mapping[str, str] | None = None
) -> list[str]:
    """Up to three of the names, best first.

    First come those that differ in case or separators only, then what `synonyms` gives for the
    folded word, then those that are spelled alike.
    """
    known = list(names)
    folded = fold(word[:_COMPARED_CHARACTERS])
    same = [name for name in known if fold(name) == folded]
    if same:
        return same[:_SHOWN]
    meant = (synonyms or {}).get(folded)
    if meant is not None and meant in known:
        return [meant]
    by_fold = {fold(name): name for name in reversed(known)}
    close = difflib.get_close_matches(folded, by_fold, n=_SHOWN, cutoff=_NEAR_ENOUGH)
    return [by_fold[name] for name in close]


def did_you_mean(word: str, names: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str:
    """A hint with the nearest names, or else with those that there are; empty if there are none."""
    known = list(names)
    near = nearest(word, known, synonyms)
    if near:
        return f"Did you mean {or_list(near)}?"
    if len(known) > _LISTED:
        known = [*known[:_LISTED], "…"]
    return f"There {'is' if len(known) == 1 else 'are'} {and_list(known)}." if known else ""


def or_list(names: list[str]) -> str:
    """`a`, `b` or `c`."""
    return _joined(names, "or")


def and_list(names: list[str]) -> str:
    """`a`, `b` and `c`."""
    return _joined(names, "and")


def _joined(names: list[str], word: str) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {word} {quoted[-1]}"
