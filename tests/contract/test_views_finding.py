"""One change of one row is found in the log, however much else is in it."""

from __future__ import annotations

import pytest

from tests.contract.views_home import (
    Views,
    at,
    batch,
    changes,
    insertion,
    key_of,
    position,
    writes,
)
from tidemark.pipeline.output.errors import ChangesForgotten
from tidemark.views import history

pytest_plugins = ("tests.contract.views_fixtures",)

ONE, OTHER = position("acme", rank=1), position("other")
CHANGED = {**ONE, "rank": 2}


async def fill(views: Views) -> None:
    """The row `ONE` comes at 1 and changes at 4, `OTHER` comes and goes in between."""
    await views.commit(insertion(ONE))
    await views.commit(insertion(OTHER, commit=2))
    await views.commit(
        batch(2, 3, rows=[writes(commit=3, deleted=[OTHER])], changes=[changes((3, OTHER, None))])
    )
    await views.commit(
        batch(3, 4, rows=[writes(CHANGED, commit=4)], changes=[changes((4, ONE, CHANGED))])
    )


async def test_the_first_change_of_a_row_from_a_time_on_is_found(views: Views) -> None:
    await fill(views)
    key = key_of(ONE)
    for number, found_at in ((1, 1), (2, 4), (4, 4)):
        search = await views.find_change("positions", key, at(number))
        assert search.change is not None
        assert (search.change.received_at, search.complete) == (at(found_at), True)
    assert search.change.changed == ("rank",)
    search = await views.find_change("positions", key_of(OTHER), at(3))
    assert search.change is not None
    assert search.change.op == "delete"


async def test_a_row_that_has_not_changed_since_has_no_change(views: Views) -> None:
    await fill(views)
    search = await views.find_change("positions", key_of(OTHER), at(4))
    assert (search.change, search.complete) == (None, True)
    search = await views.find_change("positions", key_of(ONE), at(4) + 1)
    assert (search.change, search.complete) == (None, True)
    search = await views.find_change("positions", key_of(position("nobody")), at(1))
    assert (search.change, search.complete) == (None, True)


async def test_a_search_ends_somewhere_and_says_so(
    views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(views)
    monkeypatch.setattr(history, "SCAN_WINDOW", 2)
    search = await views.find_change("positions", key_of(ONE), at(2))
    assert (search.change, search.complete) == (None, False)
    search = await views.find_change("positions", key_of(ONE), at(3))
    assert search.change is not None
    assert search.complete


async def test_what_is_forgotten_is_not_taken_for_nothing(views: Views) -> None:
    await fill(views)
    await views.prune_changes(at(2))
    with pytest.raises(ChangesForgotten):
        await views.find_change("positions", key_of(ONE), at(1))
    assert (await views.find_change("positions", key_of(ONE), at(2))).change is not None
