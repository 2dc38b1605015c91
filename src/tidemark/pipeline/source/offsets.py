"""A place in the ledger at which a batch may end: a commit, by its time and what it reaches."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from tidemark.errors import ConfigError


class OffsetJson(TypedDict):
    """As Spark keeps it in its checkpoint."""

    received_at: int
    ingress_sequence: int


@dataclass(frozen=True, order=True)
class Offset:
    """The commit at `received_at`, after which the ledger has `ingress_sequence` events."""

    received_at: int
    ingress_sequence: int

    def as_json(self) -> OffsetJson:
        return {"received_at": self.received_at, "ingress_sequence": self.ingress_sequence}

    @classmethod
    def from_json(cls, value: Any) -> Offset:
        return cls(value["received_at"], value["ingress_sequence"])

    @classmethod
    def from_option(cls, text: str) -> Offset:
        """From the option `start`; nothing is the beginning."""
        if not text:
            return BEGINNING
        try:
            offset = cls.from_json(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"the option start is {text!r}, which is not an offset",
                hint='Give {"received_at": …, "ingress_sequence": …} of a commit, or nothing.',
                field="start",
            ) from error
        return offset


# Before the first commit: no commit has this time.
BEGINNING: Final = Offset(0, 0)
