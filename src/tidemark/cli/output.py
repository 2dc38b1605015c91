"""What a command says: results on stdout, everything else on stderr.

Colour is for terminals only, and not there if `NO_COLOR` is set. What comes from events or from a
server may hold anything, so what could drive a terminal is shown and not sent to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from typing import IO, Any

import click

# Control characters but tab and newline, and what turns the direction of writing around.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with each character that a terminal would obey written as an escape."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """The same on one line, without tabs."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def write_line(text: str = "", *, style: str | None = None) -> None:
    """A line of the result."""
    _write(text, style, sys.stdout)


def write_lines(lines: Iterable[str]) -> None:
    for line in lines:
        write_line(line)


def write_note(text: str, *, style: str | None = None) -> None:
    """A line that is no part of the result."""
    _write(text, style, sys.stderr)


def write_json(document: Mapping[str, Any]) -> None:
    """A result for programs, on a line of its own."""
    put(compact_json(document), sys.stdout)


def compact_json(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def pairs(rows: Iterable[tuple[str, str]], *, indent: int = 2) -> list[str]:
    """Names and values, the values beneath each other."""
    listed = list(rows)
    width = max((len(name) for name, _ in listed), default=0)
    return [f"{'':{indent}}{name:{width}}  {value}" for name, value in listed]


def plural(count: int, noun: str) -> str:
    """`1 event`, `2,000 events`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def has_colour(stream: IO[str]) -> bool:
    """Whether to send colours there."""
    return is_live(stream) and not os.environ.get("NO_COLOR")


def is_live(stream: IO[str]) -> bool:
    """Whether a person looks at it on a terminal that can move its cursor."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        # It is closed.
        return False


def survive_any_locale() -> None:
    """Let no text be unwritable because of the terminal's encoding."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def put(line: str, stream: IO[str]) -> bool:
    """Write a line as it is, at once. False when nobody takes it, as behind `| head`.

    What is written from then on goes nowhere: what a command does matters more than who listens.
    """
    try:
        stream.write(line + "\n")
        stream.flush()
    except BrokenPipeError:
        discard(stream)
        return False
    return True


def discard(stream: IO[str]) -> None:
    """Let what is written there go nowhere, also what is still buffered."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _write(text: str, style: str | None, stream: IO[str]) -> None:
    shown = printable(text)
    put(click.style(shown, fg=style) if style and has_colour(stream) else shown, stream)


def program_name() -> str:
    """How this program is called from here: by its name, if the shell would find it."""
    name = "tidemark"
    if shutil.which(name):
        return name
    return sys.argv[0] if os.path.basename(sys.argv[0]) == name else f"python -m {name}"
