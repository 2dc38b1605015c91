"""The events of a file that were not taken: which line, why, what to do about it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from tidemark.cli.outcome import unreadable
from tidemark.errors import TidemarkError

# More are counted; a file takes them all.
MAX_LISTED: Final = 100

_one_value = msgspec.json.Decoder(msgspec.Raw).decode


class Refusals:
    """Counts refused events, writes each of them to a file, or keeps some of them to be listed."""

    def __init__(self, file: BinaryIO | None) -> None:
        self._file = file
        self.codes: Counter[str] = Counter()
        self.listed: list[dict[str, Any]] = []

    def add(self, line: int, status: str, error: TidemarkError, raw: bytes, file: str = "") -> bool:
        """Take note of one; says whether it is to be shown now."""
        self.codes[error.code] += 1
        document: dict[str, Any] = {
            **({"file": file} if file else {}),
            "line": line,
            "status": status,
            **error.as_dict(),
        }
        if self._file is not None:
            self._file.write(msgspec.json.encode({**document, "event": _verbatim(raw)}) + b"\n")
            return False
        if self.codes.total() > MAX_LISTED:
            return False
        self.listed.append(document)
        return True

    def flush(self) -> None:
        """Let what was written be there before anybody relies on it."""
        if self._file is not None:
            self._file.flush()

    @property
    def left_out(self) -> int:
        """How many are neither listed nor in a file."""
        return 0 if self._file is not None else self.codes.total() - len(self.listed)

    def summary(self) -> str:
        """How many there are of each kind."""
        return ", ".join(f"{code} × {count}" for code, count in self.codes.most_common())


@contextlib.contextmanager
def collect_refusals(path: Path | None, *, append: bool = False) -> Iterator[Refusals]:
    """Refusals, into a file of JSON lines if there is one."""
    if path is None:
        yield Refusals(None)
        return
    try:
        file = path.open("ab" if append else "wb")
    except OSError as error:
        raise unreadable(path, error, what="written") from error
    with file:
        yield Refusals(file)


def refusal_text(line: int, status: str, error: TidemarkError, file: str = "") -> str:
    """One refusal on one line."""
    field = f" ({error.field})" if error.field else ""
    hint = f" {error.hint}" if error.hint else ""
    place = f"{file}, line {line}" if file else f"line {line}"
    return f"{place}: {status}, {error.code}{field}: {error.message}.{hint}"


def _verbatim(raw: bytes) -> msgspec.Raw | str:
    """The event to the digit as it was, where it is JSON; else its text."""
    try:
        return _one_value(raw)
    except (msgspec.MsgspecError, RecursionError):
        return raw.decode("utf-8", "replace")
