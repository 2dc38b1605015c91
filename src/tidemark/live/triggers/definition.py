"""What a trigger is, and what may be one."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Final, Literal, TypeAlias

import msgspec

from tidemark.live.errors import InvalidTrigger

Origin: TypeAlias = Literal["config", "api"]

MAX_TRIGGERS: Final = 1_000
"""How many a deployment has at the most. Each is looked at whenever its view changes."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
# A number of a filter is exact, so it is written as it is and read back as a decimal.
_encode = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


class NewTrigger(msgspec.Struct, frozen=True):
    """A trigger to be made. `match`, `unmatch` and `creator` are JSON texts (see `where_text`).

    `creator` holds the claims of the session that made it; its row rules go on to apply. Raises
    `InvalidTrigger` for a name that cannot be one; the rest is checked by `TriggerRegistry`.
    """

    name: str
    view: str
    webhook: str
    match: str
    unmatch: str | None = None
    creator: str | None = None
    origin: Origin = "api"

    def __post_init__(self) -> None:
        if not _NAME(self.name):
            raise InvalidTrigger(
                f"{self.name[:80]!r} cannot be the name of a trigger",
                hint="Use 1 to 64 of the letters A-Z and a-z, digits, `_` and `-`.",
                field="name",
            )

    @property
    def meaning(self) -> tuple[str, str, str | None, str | None]:
        """What decides which events there are. Where they are sent is no part of it."""
        return self.view, self.match, self.unmatch, self.creator


class Trigger(msgspec.Struct, frozen=True):
    """One trigger as it is kept. Times are microseconds; `since`, `until`, `position` are source
    timestamps.

    It has events for the changes after `since` and up to `until` (None: for ever). Its changes up
    to `position` are in the outbox. `disabled_reason` says why it stands still, if it does. A name
    may have many of them, one after the other; those that replaced each other share a `lineage`,
    and of a name that was free in between they do not.
    """

    id: int
    lineage: int
    name: str
    view: str
    webhook: str
    match: str
    unmatch: str | None
    creator: str | None
    origin: Origin
    since: int
    until: int | None
    position: int
    enabled: bool
    disabled_reason: str | None
    created_at: int

    @property
    def meaning(self) -> tuple[str, str, str | None, str | None]:
        """See `NewTrigger.meaning`."""
        return self.view, self.match, self.unmatch, self.creator


def where_text(where: object) -> str:
    """A `where` as the text that is kept: equal ones have equal texts."""
    return _encode(where).decode()


def read_where(text: str) -> object:
    """The `where` that `where_text` has written."""
    return json.loads(text, parse_float=Decimal)
