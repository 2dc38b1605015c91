"""Patterns for texts: SQL's LIKE, and the regular expressions on which all stores agree.

RE2 and PostgreSQL have dialects of their own. A pattern is taken only if it is in what they share,
and is written anew with all punctuation escaped. Errors here have no `field`; the caller knows
where the pattern stood.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from tidemark.live.errors import InvalidFilter
from tidemark.live.filters.tree import PatternKind
from tidemark.views.matching import CACHED_PATTERNS, PatternTooLarge, TextTest, found_by

MAX_REGEX_CHARACTERS: Final = 1_000
MAX_REPEATS: Final = 100
# Counted with every repeat written out. PostgreSQL takes seconds to prepare larger ones, or fails.
MAX_REGEX_SIZE: Final = 300
MAX_GROUP_DEPTH: Final = 20

_ANY: Final = "%"
_ONE: Final = "_"
_ESCAPE: Final = "\\"
_SHARED_HINT: Final = (
    "A regular expression may have letters, `.`, classes such as `[a-z]` and `[^0-9]`, `^`, `$`,"
    " groups, `|`, `*`, `+`, `?`, `{2}`, `{2,}`, `{2,5}` and escaped punctuation such as `\\.`."
)


@lru_cache(maxsize=CACHED_PATTERNS)
def text_test(kind: PatternKind, pattern: str) -> TextTest:
    """What says whether a text matches a pattern that was checked."""
    if kind == "like":
        simple = _simple_like(pattern)
        if simple is not None:
            return simple
    return found_by(re2_pattern(kind, pattern))


def re2_pattern(kind: PatternKind, pattern: str) -> str:
    """The pattern as RE2 must search for it; `dot_nl` is set."""
    if kind == "regex":
        return pattern
    parts = ["^"]
    for character, literal in _like_parts(pattern):
        if literal:
            both_cases = kind == "ilike" and character.isascii() and character.isalpha()
            parts.append(
                f"[{character.upper()}{character.lower()}]" if both_cases else _literal(character)
            )
        elif character == _ONE:
            parts.append(".")
        elif parts[-1] != ".*":
            parts.append(".*")
    parts.append("$")
    # What may begin or end anywhere needs no end to look for.
    start = 2 if parts[1] == ".*" else 0
    end = -2 if parts[-2] == ".*" else len(parts)
    return "".join(parts[start:end])


def check_like(pattern: str) -> None:
    """Raises `InvalidFilter` unless it is a pattern of LIKE."""
    for _ in _like_parts(pattern):
        pass
    _require_compiled(re2_pattern("ilike", pattern))


def shared_regex(pattern: str) -> str:
    """The pattern as RE2 and PostgreSQL both read it. Raises `InvalidFilter` if they do not."""
    if len(pattern) > MAX_REGEX_CHARACTERS:
        raise InvalidFilter(
            f"a regular expression of {len(pattern)} characters",
            hint=f"At most {MAX_REGEX_CHARACTERS} are allowed.",
        )
    shared = _RegexReader(pattern).read()
    _require_compiled(shared)
    return shared


def ascii_lower(text: str) -> str:
    """A to Z in lower case, everything else as it is: what PostgreSQL does in the collation C."""
    return text.encode().lower().decode()


def _require_compiled(pattern: str) -> None:
    try:
        found_by(pattern)
    except PatternTooLarge:
        raise InvalidFilter(
            "the pattern is too large", hint="Use a shorter pattern, or fewer repeats."
        ) from None


def _like_parts(pattern: str) -> Iterator[tuple[str, bool]]:
    """Each character of the pattern, and whether it stands for itself."""
    characters = iter(pattern)
    for character in characters:
        if character != _ESCAPE:
            yield character, character not in (_ANY, _ONE)
            continue
        escaped = next(characters, None)
        if escaped is None:
            raise InvalidFilter(
                "the pattern ends in the escape character `\\`",
                hint="Write `\\\\` for a backslash; in JSON and GraphQL each of them doubled.",
            )
        yield escaped, True


def _simple_like(pattern: str) -> TextTest | None:
    """The usual patterns without RE2, which takes several times as long."""
    body = pattern.strip(_ANY)
    if not body or _ANY in body or _ONE in body or _ESCAPE in body:
        return None
    open_start, open_end = pattern[0] == _ANY, pattern[-1] == _ANY
    if open_start and open_end:
        return lambda text: body in text
    if open_start:
        return lambda text: text.endswith(body)
    if open_end:
        return lambda text: text.startswith(body)
    return lambda text: text == body


def _literal(character: str) -> str:
    punctuation = character.isascii() and character.isprintable() and not character.isalnum()
    return f"\\{character}" if punctuation and character not in " _" else character


class _RegexReader:
    """Reads a pattern from left to right and writes what it has understood."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._place = 0
        self._depth = 0

    def read(self) -> str:
        text, _ = self._alternatives()
        if self._place < len(self._pattern):
            raise self._refused("a `)` without its `(`")
        return text

    # Each of these gives what it has read, and its size with every repeat written out.

    def _alternatives(self) -> tuple[str, int]:
        branches, size = [], 0
        while True:
            branch, branch_size = self._branch()
            branches.append(branch)
            size += branch_size
            if size > MAX_REGEX_SIZE:
                raise self._refused(
                    f"with its repeats written out it has more than {MAX_REGEX_SIZE} parts"
                )
            if not self._take("|"):
                return "|".join(branches), size

    def _branch(self) -> tuple[str, int]:
        parts, size = [], 1
        while (character := self._next()) not in ("", "|", ")"):
            if character in "^$":
                self._place += 1
                if self._next() in ("*", "+", "?", "{"):
                    raise self._refused(f"`{character}` cannot be repeated")
                parts.append(character)
                continue
            atom, atom_size = self._atom(character)
            quantifier, times = self._quantifier()
            parts.append(atom + quantifier)
            size += atom_size * times
        return "".join(parts), size

    def _atom(self, character: str) -> tuple[str, int]:
        if character in "*+?{":
            raise self._refused(f"`{character}` has nothing to repeat")
        if character in "]}":
            raise self._refused(f"`{character}` stands alone: write `\\{character}`")
        self._place += 1
        if character == "(":
            return self._group()
        if character == "[":
            return self._class(), 1
        if character == ".":
            return ".", 1
        return _literal(self._escaped() if character == _ESCAPE else character), 1

    def _group(self) -> tuple[str, int]:
        if self._take("?") and not self._take(":"):
            raise self._refused("`(?` begins something that not every store knows")
        self._depth += 1
        if self._depth > MAX_GROUP_DEPTH:
            raise self._refused(f"groups more than {MAX_GROUP_DEPTH} deep")
        text, size = self._alternatives()
        if not self._take(")"):
            raise self._refused("a `(` without its `)`")
        self._depth -= 1
        return f"(?:{text})", size

    def _class(self) -> str:
        parts = ["[^" if self._take("^") else "["]
        while not self._take("]"):
            first = self._member()
            last = first
            if self._next() == "-" and self._pattern[self._place + 1 :][:1] not in ("", "]"):
                self._place += 1
                last = self._member()
            if last < first:
                raise self._refused(f"the range {first}-{last} is empty")
            parts.append(
                _literal(first) if last == first else f"{_literal(first)}-{_literal(last)}"
            )
        if len(parts) == 1:
            raise self._refused("a class without characters")
        return "".join((*parts, "]"))

    def _member(self) -> str:
        character = self._next()
        if character == "":
            raise self._refused("a `[` without its `]`")
        if character == "[":
            raise self._refused("a `[` in a class: write `\\[`")
        self._place += 1
        return self._escaped() if character == _ESCAPE else character

    def _escaped(self) -> str:
        character = self._next()
        if not character.isascii() or not character.isprintable() or character.isalnum():
            raise self._refused(f"`\\{character}` is not the same in every store")
        if character == "":
            raise self._refused("a `\\` at the end")
        self._place += 1
        return character

    def _quantifier(self) -> tuple[str, int]:
        character = self._next()
        if character not in ("*", "+", "?", "{"):
            return "", 1
        self._place += 1
        text, times = (character, 1) if character != "{" else self._bounds()
        if self._next() in ("*", "+", "?", "{"):
            raise self._refused(f"`{text}` is followed by another repeat")
        return text, times

    def _bounds(self) -> tuple[str, int]:
        text, closed, _ = self._pattern[self._place :].partition("}")
        least, comma, most = text.partition(",")
        if not closed or not _is_count(least) or not (_is_count(most) or most == ""):
            raise self._refused("a `{` that is not `{2}`, `{2,}` or `{2,5}`")
        if max(int(least), int(most or "0")) > MAX_REPEATS:
            raise self._refused(f"more than {MAX_REPEATS} repeats")
        if most and int(most) < int(least):
            raise self._refused(f"{{{text}}} is an empty range")
        self._place += len(text) + 1
        bounds = f"{{{int(least)}{comma}{int(most) if most else ''}}}"
        return bounds, max(1, int(most or least))

    def _next(self) -> str:
        return self._pattern[self._place : self._place + 1]

    def _take(self, character: str) -> bool:
        if self._next() != character:
            return False
        self._place += 1
        return True

    def _refused(self, why: str) -> InvalidFilter:
        return InvalidFilter(f"at character {self._place + 1}: {why}", hint=_SHARED_HINT)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(MAX_REPEATS))
