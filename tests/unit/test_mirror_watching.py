"""What is told of a transaction before it is committed."""

from __future__ import annotations

import pytest

from tidemark.mirror.errors import MirrorRefused
from tidemark.mirror.watching import require_not_back


def test_a_partition_may_be_further_than_was_foreseen_and_never_before() -> None:
    for offset in (31, 32):
        require_not_back(("usage", 2), 31, offset)
    with pytest.raises(MirrorRefused) as raised:
        require_not_back(("usage", 2), 1_031, 1_030)
    said = "partition 2 of the topic usage had come to offset 1,031, and goes on at 1,030"
    assert raised.value.message.startswith(said)
    assert raised.value.hint
