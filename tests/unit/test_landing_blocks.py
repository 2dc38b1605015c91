"""Blocks: every sequence in exactly one, the same whoever asks and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemark.pipeline.landing.blocks import Block, Schedule

SIZES = st.integers(1, 1_000)
SEQUENCES = st.integers(1, 10**15)


@given(SIZES, SEQUENCES)
def test_a_sequence_is_in_its_block_and_so_is_every_other_of_it(size: int, sequence: int) -> None:
    schedule = Schedule(size)
    block = schedule.block_of(sequence)
    assert block.first <= sequence <= block.last
    assert block.last - block.first + 1 == size
    assert schedule.block_of(block.first) == schedule.block_of(block.last) == block
    assert schedule.block_of(block.last + 1).first == block.last + 1


@given(SIZES, st.integers(0, 5_000), st.integers(0, 5_000))
def test_the_blocks_of_a_range_hold_it_without_gap(size: int, after: int, more: int) -> None:
    upto = after + more
    blocks = list(Schedule(size).blocks(after, upto))
    held = [n for block in blocks for n in range(block.first, block.last + 1)]
    assert [n for n in held if after < n <= upto] == list(range(after + 1, upto + 1))
    assert all(block.last > after and block.first <= upto for block in blocks)
    assert held == sorted(set(held))


@given(SIZES, SEQUENCES, SEQUENCES)
def test_names_are_read_back_and_sort_as_blocks_do(size: int, one: int, other: int) -> None:
    blocks = [Schedule(size).block_of(sequence) for sequence in (one, other)]
    assert [Block.of_name(block.name) for block in blocks] == blocks
    assert sorted(block.name for block in blocks) == [block.name for block in sorted(blocks)]


def test_other_files_are_no_blocks() -> None:
    for name in ("_landing.json", "events-1-2.parquet", f"{Block(1, 2).name}.unfinished"):
        assert Block.of_name(name) is None
