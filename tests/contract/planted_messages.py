"""What a mirror might do wrong, to see who notices: messages that are not those of the ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pytest

from tidemark.mirror.chunks import Chunk
from tidemark.mirror.messages import Messages, checksum_of

Change: TypeAlias = Callable[[Messages], Messages]
# All in one commit.
EVENTS: Final = 8


def in_reverse(messages: Messages) -> Messages:
    return Messages(*([*column][::-1] for column in messages))


def with_another_key(messages: Messages) -> Messages:
    return messages._replace(keys=[b"run-1"] * EVENTS)


def with_another_header(messages: Messages) -> Messages:
    return messages._replace(headers=[[("tidemark-ingress-sequence", b"7")]] * EVENTS)


def numbered_on(messages: Messages) -> Messages:
    """As if each were the event behind it, in all that is said of it."""
    named = b'"ingressSequence":"%d"'
    numbers = range(1, EVENTS + 1)
    values = [
        v.replace(named % n, named % (n + 1)) for n, v in zip(numbers, messages.values, strict=True)
    ]
    after = [b"%d" % (n + 1) for n in numbers]
    headers = [[("tidemark-ingress-sequence", number)] for number in after]
    return messages._replace(values=values, keys=after, headers=headers)


def with_another_hash(messages: Messages) -> Messages:
    """Of the content of one of the events."""
    values = [*messages.values]
    before, name, rest = values[2].partition(b'"contentHash":"')
    values[2] = before + name + (b"1" if rest[:1] == b"0" else b"0") + rest[1:]
    return messages._replace(values=values)


def plant(monkeypatch: pytest.MonkeyPatch, change: Change, *, is_summed: bool) -> None:
    """What a mirror sends is not what the ledger has, with a checksum of it or of the ledger's."""
    honest = Chunk.of

    def planted(*arguments: Any) -> Chunk:
        chunk = honest(*arguments)
        if not chunk.commits:
            return chunk
        messages = change(chunk.messages)
        checksums = [sum(map(checksum_of, messages.values))] if is_summed else chunk.checksums
        return chunk._replace(messages=messages, checksums=checksums)

    monkeypatch.setattr(Chunk, "of", planted)
