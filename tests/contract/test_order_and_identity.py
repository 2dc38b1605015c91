"""One identity, one place in order: what becomes of the events of a group."""

from __future__ import annotations

import hashlib
from itertools import pairwise

from tests.contract.events import (
    START,
    ManualClock,
    draft,
    drafts,
    hash_of,
    rejection,
    request,
    sequences,
    statuses,
)
from tests.contract.stores import (
    Ledger,
    LedgerHome,
    all_commits,
    all_events,
    append,
    append_all,
    keys_in_order,
)
from tidemark.ledger.port import EventRow
from tidemark.ledger.sequencer import GENESIS_CHAIN, Head, Stored, key_digest


async def test_numbers_are_dense_and_begin_at_one(ledger: Ledger) -> None:
    first = await append(ledger, *drafts("a", "b", "c"))
    second = await append(ledger, *drafts("d", "e"))
    assert sequences(first) == [1, 2, 3]
    assert sequences(second) == [4, 5]
    assert [event.ingress_sequence for event in await all_events(ledger)] == [1, 2, 3, 4, 5]


async def test_nothing_but_an_accepted_event_takes_a_number(ledger: Ledger) -> None:
    await append(ledger, draft("a"))
    await append(ledger, draft("a"))
    await append(ledger, draft("a", "other"))
    await append(ledger, rejection())
    outcomes = await append(
        ledger, rejection(), draft("b"), draft("a"), draft("b", "other"), draft("c")
    )
    assert statuses(outcomes) == ["rejected", "accepted", "duplicate", "conflict", "accepted"]
    assert [event.ingress_sequence for event in await all_events(ledger)] == [1, 2, 3]
    assert await keys_in_order(ledger) == ["a", "b", "c"]


async def test_a_duplicate_has_the_number_and_time_of_its_original(
    ledger: Ledger, clock: ManualClock
) -> None:
    [original] = await append(ledger, draft("a"))
    clock.pass_time(5_000_000)
    [again] = await append(ledger, draft("a"))
    assert again.status == "duplicate"
    assert (again.ingress_sequence, again.received_at) == (1, START)
    assert (original.ingress_sequence, original.received_at) == (1, START)
    assert len(await all_events(ledger)) == 1


async def test_a_repeat_inside_one_batch_is_a_duplicate_of_the_first(ledger: Ledger) -> None:
    outcomes = await append(ledger, draft("a"), draft("b"), draft("a"), draft("a"))
    assert statuses(outcomes) == ["accepted", "accepted", "duplicate", "duplicate"]
    assert sequences(outcomes) == [1, 2, 1, 1]


async def test_a_repeat_in_another_request_of_the_same_group_is_a_duplicate(
    ledger: Ledger,
) -> None:
    first, second = await append_all(
        ledger, request(draft("a"), draft("b")), request(draft("b"), draft("c"))
    )
    assert statuses(first) == ["accepted", "accepted"]
    assert statuses(second) == ["duplicate", "accepted"]
    assert sequences(second) == [2, 3]


async def test_other_content_under_the_same_key_is_a_conflict_and_is_not_stored(
    ledger: Ledger,
) -> None:
    await append(ledger, draft("a", "one", data='{"n":1}'))
    [outcome] = await append(ledger, draft("a", "two", data='{"n":2}'))
    assert outcome.status == "conflict"
    assert outcome.ingress_sequence == 1
    assert outcome.rejection is not None
    assert outcome.rejection.code == "content_conflict"
    assert outcome.rejection.field == "idempotencyKey"
    assert outcome.rejection.hint
    assert [event.data for event in await all_events(ledger)] == ['{"n":1}']


async def test_other_content_inside_one_batch_is_a_conflict_with_the_first(ledger: Ledger) -> None:
    outcomes = await append(ledger, draft("a", "one"), draft("a", "two"), draft("a", "one"))
    assert statuses(outcomes) == ["accepted", "conflict", "duplicate"]
    assert sequences(outcomes) == [1, 1, 1]


async def test_a_conflict_does_not_become_the_original(ledger: Ledger) -> None:
    await append(ledger, draft("a", "one"))
    await append(ledger, draft("a", "two"))
    [again] = await append(ledger, draft("a", "two"))
    [first] = await append(ledger, draft("a", "one"))
    assert again.status == "conflict"
    assert first.status == "duplicate"


async def test_one_tenants_key_never_swallows_anothers_event(ledger: Ledger) -> None:
    outcomes = await append(ledger, draft("k", tenant="acme"), draft("k", tenant="globex"))
    assert statuses(outcomes) == ["accepted", "accepted"]
    [other] = await append(ledger, draft("k", "other", tenant="initech"))
    assert other.status == "accepted"


async def test_tenant_and_key_are_told_apart_where_one_ends_and_the_other_begins(
    ledger: Ledger,
) -> None:
    outcomes = await append(
        ledger,
        draft("bc", tenant="a"),
        draft("c", tenant="ab"),
        draft("1:c", tenant="a"),
        draft("", tenant="abc"),
    )
    assert statuses(outcomes) == ["accepted"] * 4


async def test_the_events_of_a_group_are_one_commit_in_request_order(
    ledger: Ledger, clock: ManualClock
) -> None:
    await append_all(
        ledger, request(*drafts("c", "a")), request(*drafts("z", "b")), request(*drafts("y"))
    )
    events = await all_events(ledger)
    assert [event.idempotency_key for event in events] == ["c", "a", "z", "b", "y"]
    assert {event.received_at for event in events} == {clock.wall_us()}
    [commit] = await all_commits(ledger)
    assert (commit.received_at, commit.first_sequence, commit.last_sequence) == (START, 1, 5)


async def test_commits_cover_the_events_without_gap_or_overlap(ledger: Ledger) -> None:
    for group in (["a"], ["b", "c", "a"], ["a"], ["d", "e", "f"]):
        await append(ledger, *drafts(*group))
    commits = await all_commits(ledger)
    assert [(c.first_sequence, c.last_sequence) for c in commits] == [(1, 1), (2, 3), (4, 6)]
    times = {event.ingress_sequence: event.received_at for event in await all_events(ledger)}
    for commit in commits:
        for sequence in range(commit.first_sequence, commit.last_sequence + 1):
            assert times[sequence] == commit.received_at


async def test_nothing_new_means_no_commit(ledger: Ledger, clock: ManualClock) -> None:
    await append(ledger, draft("a"))
    before = await ledger.head()
    clock.pass_time(1_000_000)
    await append(ledger, draft("a"), draft("a", "other"), rejection())
    await append(ledger)
    assert await append_all(ledger) == []
    assert await ledger.head() == before
    assert len(await all_commits(ledger)) == 1


async def test_a_new_ledger_is_empty(ledger: Ledger) -> None:
    assert await ledger.head() == Head(0, 0, GENESIS_CHAIN)
    assert await all_events(ledger) == []
    assert await all_commits(ledger) == []


async def test_the_chain_can_be_computed_again_from_the_events(
    ledger: Ledger, clock: ManualClock
) -> None:
    for number in range(6):
        clock.pass_time(3_000_000)
        await append(ledger, *(draft(f"{number}-{i}", f"{i}") for i in range(number)))
        await ledger.tick(1_000_000)
    events = await all_events(ledger)
    chain = bytes(32)
    for commit in await all_commits(ledger):
        hashes = [
            event.content_hash
            for event in events
            if commit.first_sequence <= event.ingress_sequence <= commit.last_sequence
        ]
        chain = hashlib.sha256(chain + b"".join(hashes)).digest()
        assert commit.chain == chain
    assert (await ledger.head()).chain == chain


async def test_the_chain_tells_histories_apart_that_differ_in_order_only(
    home: LedgerHome, clock: ManualClock
) -> None:
    ledger = await home.open(clock)
    await append(ledger, draft("a", "one"), draft("b", "two"))
    chain = (await ledger.head()).chain
    assert chain == hashlib.sha256(bytes(32) + hash_of("one") + hash_of("two")).digest()
    assert chain != hashlib.sha256(bytes(32) + hash_of("two") + hash_of("one")).digest()


async def test_an_event_is_kept_as_it_was_given(ledger: Ledger) -> None:
    given = draft(
        "schlüssel 🔑",
        "content",
        tenant="mandant-ü",
        stream="trades",
        occurred_at=START - 1,
        metric="api_calls",
        customer_ref="kunde \N{SNOWMAN}",
        resource_id="",
        quantity="-0.000000001",
        data='{"text":"\\u001f \U0001f680"}',
        causality_key="run-1",
        source="urn:test",
        source_id="id-1",
        control="adjust",
        target_key="target",
    )
    await append(ledger, given)
    assert await all_events(ledger) == [
        EventRow(
            ingress_sequence=1,
            received_at=START,
            occurred_at=START - 1,
            content_hash=hash_of("content"),
            tenant_id="mandant-ü",
            stream="trades",
            idempotency_key="schlüssel 🔑",
            metric="api_calls",
            customer_ref="kunde \N{SNOWMAN}",
            resource_id="",
            quantity="-0.000000001",
            data='{"text":"\\u001f \U0001f680"}',
            causality_key="run-1",
            source="urn:test",
            source_id="id-1",
            control="adjust",
            target_key="target",
            global_sequence=None,
        )
    ]


async def test_an_event_without_a_time_of_its_own_occurred_when_it_was_received(
    ledger: Ledger, clock: ManualClock
) -> None:
    clock.pass_time(7)
    await append(ledger, draft("a", occurred_at=None), draft("b", occurred_at=START))
    assert [event.occurred_at for event in await all_events(ledger)] == [START + 7, START]


async def test_a_large_group_is_one_commit(ledger: Ledger) -> None:
    """More keys than one query of either store can ask for at once."""
    keys = [f"key-{number}" for number in range(2_500)]
    await append(ledger, *drafts(*keys[::2]))
    outcomes = await append(ledger, *drafts(*keys))
    assert statuses(outcomes) == ["duplicate", "accepted"] * 1_250
    assert sequences(outcomes)[::2] == list(range(1, 1_251))
    assert sequences(outcomes)[1::2] == list(range(1_251, 2_501))
    assert len(await all_commits(ledger)) == 2


async def test_two_stores_on_one_ledger_share_identity_and_order(
    home: LedgerHome, clock: ManualClock
) -> None:
    one, other = await home.open(clock), await home.open(clock)
    assert sequences(await append(one, *drafts("a", "b"))) == [1, 2]
    assert sequences(await append(other, *drafts("c", "b"))) == [3, 2]
    assert sequences(await append(one, *drafts("d", "c"))) == [4, 3]
    times = [commit.received_at for commit in await all_commits(other)]
    assert all(earlier < later for earlier, later in pairwise(times))


async def test_lookup_finds_what_is_stored_and_nothing_else(ledger: Ledger) -> None:
    await append(ledger, draft("a", "one"), draft("b", tenant="globex"))
    digests = [key_digest("acme", "a"), key_digest("acme", "b"), key_digest("globex", "b")]
    found = await ledger.lookup(digests)
    assert found == {
        digests[0]: Stored("acme", "a", 1, START, hash_of("one")),
        digests[2]: Stored("globex", "b", 2, START, hash_of("")),
    }
    assert await ledger.lookup([]) == {}
