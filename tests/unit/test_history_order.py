"""A history of any size comes back in its order, and memory does not grow with it."""

from __future__ import annotations

import os
import random
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.planted import assert_catches
from tidemark.errors import ImportRefused
from tidemark.ledger import history_order
from tidemark.ledger.history import Place
from tidemark.ledger.history_order import HistoryOrder, open_workspace

KIB = 1024

small = st.integers(min_value=1, max_value=3)
places = st.lists(
    st.builds(
        Place, small, small, st.sampled_from("abé"), st.binary(max_size=3), st.just("f"), small
    )
)

Order = type[HistoryOrder]


def place(number: int, size: int = 10) -> Place:
    return Place(number, number, str(number), bytes(size), "file", number)


class OneRunAfterTheOther(HistoryOrder):
    """The planted bug: runs are not merged."""

    def in_order(self) -> Iterator[Place]:
        if self._run:
            self._write_run()
        return chain.from_iterable(self._read_run(run) for run in range(self._runs))


def places_come_back_sorted(order_type: Order, directory: Path) -> Callable[[], None]:
    @given(places, st.integers(min_value=1, max_value=5), st.integers(min_value=1, max_value=20))
    def check(added: list[Place], run_lines: int, run_bytes: int) -> None:
        with open_workspace(directory) as workspace:
            order = order_type(workspace, run_lines=run_lines, run_bytes=run_bytes)
            for each in added:
                order.add(each)
            assert list(order.in_order()) == sorted(added)

    return check


def test_places_come_back_sorted_however_they_are_cut_into_runs(tmp_path: Path) -> None:
    places_come_back_sorted(HistoryOrder, tmp_path)()


def test_that_property_catches_runs_that_are_not_merged(tmp_path: Path) -> None:
    assert_catches(lambda order: places_come_back_sorted(order, tmp_path), OneRunAfterTheOther)


def test_memory_is_bounded_by_a_run_and_not_by_the_history(tmp_path: Path) -> None:
    count, size = 8_000, 4 * KIB
    numbers = list(range(count))
    random.Random(7).shuffle(numbers)
    with open_workspace(tmp_path) as workspace:
        order = HistoryOrder(workspace, run_bytes=KIB * KIB)
        tracemalloc.start()
        try:
            for number in numbers:
                order.add(place(number, size))
            read = sum(1 for _ in order.in_order())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert read == count
    # One run, or else one block of each of thirty runs, against thirty-two megabytes in all.
    assert peak < 8 * KIB * KIB


def test_the_file_has_no_name_so_nothing_can_be_left_of_it(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "inside"
    with open_workspace(directory) as workspace:
        order = HistoryOrder(workspace, run_lines=2)
        for number in range(5):
            order.add(place(number))
        assert list(directory.iterdir()) == []
        assert len(list(order.in_order())) == 5
    assert list(directory.iterdir()) == []


def test_a_directory_that_cannot_be_used_is_a_clear_error(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(ImportRefused) as caught, open_workspace(in_the_way):
        pass
    assert str(in_the_way) in caught.value.message
    assert caught.value.hint


def test_a_full_disk_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pragmas = (*history_order._PRAGMAS, "max_page_count = 8")
    monkeypatch.setattr(history_order, "_PRAGMAS", pragmas)
    with pytest.raises(ImportRefused, match="full") as caught:
        fill(tmp_path)
    assert "room" in caught.value.hint
    assert os.listdir(tmp_path) == []


def fill(directory: Path) -> None:
    with open_workspace(directory) as workspace:
        order = HistoryOrder(workspace, run_lines=1)
        for number in range(100):
            order.add(place(number, 4 * KIB))
