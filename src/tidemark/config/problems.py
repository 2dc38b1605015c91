"""What is wrong with a configuration, said so that it can be put right in one go."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.errors import ConfigError

# The place of a setting: `("auth", "keys", 0, "sha256")`.
Location = tuple[str | int, ...]

_SHOWN_CHARACTERS: Final = 60
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
# As far as the last `@`, since a password may hold what it should not.
_CREDENTIALS = re.compile(r"(://)\S*@")
_QUERY_PASSWORD = re.compile(r"([?&](?:password|sslpassword)=)[^&#\s]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: the setting's path, what was expected and found, how to put it right, and where.

    `where` is a line and column of the file, or the environment variable that brought the value.
    """

    path: str
    message: str
    hint: str = ""
    where: str = ""

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, self.path) if part)
        text = f"{place}: {self.message}" if place else self.message
        return f"{text}. {self.hint}" if self.hint else text


class InvalidConfig(ConfigError):
    """A configuration with one or more problems, all of which `problems` lists."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = list(problems)
        first = self.problems[0]
        if len(self.problems) == 1:
            place = ": ".join(part for part in (source, first.where, first.path) if part)
            message, hint = f"{place}: {first.message}", first.hint
        else:
            lines = "".join(f"\n  {problem}" for problem in self.problems)
            message, hint = f"{source} has {len(self.problems)} problems:{lines}", ""
        super().__init__(message, hint=hint, field=first.path or None)


def render_path(location: Location) -> str:
    """A location as people write it: `auth.keys[0].sha256`, `streams."com.acme.order".fields`."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            text = redact(part)
            name = text if _PLAIN_KEY.fullmatch(text) else shorten(text)
            path += f".{name}" if path else name
    return path


def redact(text: str) -> str:
    """The text with the credentials of any URL in it hidden."""
    return _QUERY_PASSWORD.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", text))


def shorten(text: str) -> str:
    """The text in quotes, on one line, with its tail cut off if it is long."""
    cut = text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
    quoted = json.dumps(cut, ensure_ascii=False)
    return quoted.encode("utf-8", "backslashreplace").decode()


def describe_found(value: object, *, secret: bool = False) -> str:
    """What stands where something else was expected; never the content of a secret."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, str):
        return "text" if secret else shorten(redact(value))
    if secret:
        return "a number or a truth value"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
