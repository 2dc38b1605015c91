"""Values in a verified token, found by their path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Stands for a claim that is not there, which is not the same as one that is null.
MISSING: Final = object()


def claim_at(claims: Mapping[str, object], path: str) -> object:
    """The claim at a path such as `org.tenant`, or `MISSING`.

    Names of claims may hold dots themselves (`https://example.com/tenant`), so the longest name
    that is there is taken for one.
    """
    if path in claims:
        return claims[path]
    end = path.rfind(".")
    while end > 0:
        inner = claims.get(path[:end])
        if isinstance(inner, Mapping):
            found = claim_at(inner, path[end + 1 :])
            if found is not MISSING:
                return found
        end = path.rfind(".", 0, end)
    return MISSING


def texts_in(claim: object, *, split: bool) -> frozenset[str] | None:
    """The texts that a claim names: one, a list of them or, with `split`, words of one text.

    None for what is neither.
    """
    if isinstance(claim, str):
        return frozenset(claim.split()) if split else frozenset([claim])
    if isinstance(claim, list) and all(isinstance(entry, str) for entry in claim):
        return frozenset(claim)
    return None
