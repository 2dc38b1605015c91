"""How far a file was sent, kept beside it, so that an interrupted sending can go on.

The place is written after each answer, to a file that then takes the name of the last. Losing it
loses nothing: what is sent again is known to the ledger.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Final

import msgspec

from tidemark.cli.outcome import unreadable
from tidemark.clock import Clock
from tidemark.errors import TidemarkError

SUFFIX: Final = ".tidemark-resume"
_VERSION: Final = 1
_PREFIX_BYTES: Final = 65_536


class Place(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Every line up to `line` has its answer. The beginning of the file tells it from another."""

    version: int
    url: str
    line: int
    is_complete: bool
    began_us: int
    sending_id: str
    prefix_bytes: int
    prefix_sha256: str


class ResumeFile:
    """The place of one file on its way to one server."""

    def __init__(self, source: Path, place: Place) -> None:
        self._path = path_for(source)
        self.place = place

    @classmethod
    def open(cls, source: Path, url: str, clock: Clock) -> ResumeFile:
        """Go on where an earlier sending of the file stopped, or begin.

        Raises `TidemarkError` if what was sent was another file, or went to another server.
        """
        found = _read(path_for(source))
        if found is not None:
            _check_same(source, url, found)
            if found.is_complete:
                # What was added to the file since then is a sending of its own.
                found = msgspec.structs.replace(
                    found, began_us=max(clock.wall_us(), found.began_us + 1)
                )
        opened = cls(source, found or _beginning(source, url, clock))
        # Before anything is sent: the stamps of this sending must outlive it.
        opened.reached(opened.place.line)
        return opened

    def reached(self, line: int, *, is_complete: bool = False) -> None:
        """Everything up to this line is settled."""
        self.place = msgspec.structs.replace(self.place, line=line, is_complete=is_complete)
        aside = self._path.with_name(self._path.name + ".new")
        try:
            aside.write_bytes(msgspec.json.encode(self.place) + b"\n")
            aside.replace(self._path)
        except OSError as error:
            raise unreadable(self._path, error, what="written") from error


def path_for(source: Path) -> Path:
    return source.with_name(source.name + SUFFIX)


def _beginning(source: Path, url: str, clock: Clock) -> Place:
    prefix = _prefix(source, _PREFIX_BYTES)
    return Place(
        version=_VERSION,
        url=url,
        line=0,
        is_complete=False,
        began_us=clock.wall_us(),
        sending_id=secrets.token_hex(8),
        prefix_bytes=len(prefix),
        prefix_sha256=hashlib.sha256(prefix).hexdigest(),
    )


def _read(path: Path) -> Place | None:
    try:
        place = msgspec.json.decode(path.read_bytes(), type=Place)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    except msgspec.MsgspecError:
        raise _mismatch(path, f"{path} does not say how far a file was sent") from None
    if place.version != _VERSION:
        raise _mismatch(path, f"{path} was written by another version of Tidemark")
    return place


def _check_same(source: Path, url: str, place: Place) -> None:
    path = path_for(source)
    if place.url != url:
        raise _mismatch(path, f"{source} was being sent to {place.url}, not to {url}")
    prefix = _prefix(source, place.prefix_bytes)
    if hashlib.sha256(prefix).hexdigest() != place.prefix_sha256:
        raise _mismatch(path, f"{source} is not the file that was being sent: it begins otherwise")


def _prefix(source: Path, length: int) -> bytes:
    try:
        with source.open("rb") as file:
            return file.read(length)
    except OSError as error:
        raise unreadable(source, error) from error


def _mismatch(path: Path, message: str) -> TidemarkError:
    return TidemarkError(
        message,
        hint=f"Remove {path} to begin with the first line; what was stored will be a duplicate.",
        code="resume_mismatch",
    )
