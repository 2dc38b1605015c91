"""The rule that gives events their place, against a ledger that takes one event after the other.

The reference has no groups, no digests and no tables: a list, searched from its beginning. Whatever
the groups, every event must get from the sequencer what it gets there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.events import draft, hash_of, rejection
from tests.unit.planted import assert_catches
from tidemark.ingress.drafts import (
    Correction,
    CorrectionResolver,
    Draft,
    Entry,
    Original,
    Rejection,
    Submission,
)
from tidemark.ledger.sequencer import (
    GENESIS_CHAIN,
    Head,
    Placement,
    Stored,
    correction_targets,
    extend_chain,
    key_digest,
    place,
    place_tick,
    resolve_corrections,
)

Check = Callable[[], None]
Result = tuple[str, int | None, str | None]


class Sequencer(msgspec.Struct, frozen=True):
    """The parts that make up the rule, so that a bug can be planted in each."""

    digest: Callable[[str, str], bytes] = key_digest
    resolve: Callable[
        [Sequence[Submission], Mapping[bytes, Original], CorrectionResolver], list[Submission]
    ] = resolve_corrections
    place: Callable[
        [
            Sequence[Submission],
            Sequence[Sequence[bytes | None]],
            Mapping[bytes, Stored],
            Head,
            int,
        ],
        Placement,
    ] = place


class Group(msgspec.Struct, frozen=True):
    """Requests that are committed together, and what the clock says then."""

    now_us: int
    submissions: list[Submission]


def judge(correction: Correction, original: Original | None) -> Draft | Rejection:
    """Stands for ingress: an original that is no correction can be corrected."""
    if original is None:
        return rejection("unknown_target")
    if original.control is not None:
        return rejection("target_is_correction")
    return draft(
        correction.idempotency_key or "",
        f"{correction.control} {correction.target_key} {original.stream}",
        tenant=correction.tenant_id,
        stream=original.stream,
        control=correction.control,
        target_key=correction.target_key,
    )


class Store:
    """Does with the sequencer's decisions what a store does, in memory."""

    def __init__(self, sequencer: Sequencer) -> None:
        self._sequencer = sequencer
        self.stored: dict[bytes, Stored] = {}
        self._originals: dict[bytes, Original] = {}
        self.head = Head(0, 0, GENESIS_CHAIN)
        self.commits: list[tuple[int, int, int, bytes]] = []
        self.events: list[Draft] = []

    def append(self, group: Group) -> Placement:
        submissions, digests = self.prepared(group.submissions)
        placement = self._sequencer.place(
            submissions, digests, self.stored, self.head, group.now_us
        )
        self.keep(placement)
        return placement

    def prepared(
        self, submissions: Sequence[Submission]
    ) -> tuple[Sequence[Submission], list[list[bytes | None]]]:
        """What is to be placed: no corrections any more, and the digest of each entry."""
        if correction_targets(entry for one in submissions for entry in one.entries):
            submissions = self._sequencer.resolve(submissions, self._originals, judge)
        digests = [
            [
                self._sequencer.digest(entry.tenant_id, entry.idempotency_key)
                if isinstance(entry, Draft)
                else None
                for entry in submission.entries
            ]
            for submission in submissions
        ]
        return submissions, digests

    def keep(self, placement: Placement) -> None:
        for offset, (event, digest) in enumerate(
            zip(placement.drafts, placement.digests, strict=True)
        ):
            self.stored[digest] = Stored(
                event.tenant_id,
                event.idempotency_key,
                placement.first_sequence + offset,
                placement.head.received_at,
                event.content_hash,
            )
            self._originals[digest] = Original(
                event.stream, event.metric, event.customer_ref, event.control
            )
        if placement.drafts:
            self.commits.append(
                (
                    placement.head.received_at,
                    placement.first_sequence,
                    placement.head.last_sequence,
                    placement.head.chain,
                )
            )
        self.events += placement.drafts
        self.head = placement.head


class Plain:
    """The reference: one event after the other into a list."""

    def __init__(self) -> None:
        self.events: list[Draft] = []

    def take(self, entry: Entry) -> Result:
        if isinstance(entry, Correction):
            entry = judge(entry, self._original(entry.tenant_id, entry.target_key))
        if isinstance(entry, Rejection):
            return "rejected", None, entry.code
        for number, event in enumerate(self.events, 1):
            if (event.tenant_id, event.idempotency_key) == (entry.tenant_id, entry.idempotency_key):
                if event.content_hash == entry.content_hash:
                    return "duplicate", number, None
                return "conflict", number, "content_conflict"
        self.events.append(entry)
        return "accepted", len(self.events), None

    def _original(self, tenant_id: str, key: str) -> Original | None:
        for event in self.events:
            if (event.tenant_id, event.idempotency_key) == (tenant_id, key):
                return Original(event.stream, event.metric, event.customer_ref, event.control)
        return None


# Few names, of which some have the same letters when they are put together.
TENANTS = st.sampled_from(["a", "ab", "1:a"])
KEYS = st.sampled_from(["bc", "c", "b", "k", ""])
CONTENTS = st.sampled_from(["one", "two"])
DRAFTS = st.builds(
    lambda tenant, key, content: draft(key, content, tenant=tenant, stream=f"of {content}"),
    TENANTS,
    KEYS,
    CONTENTS,
)
CORRECTIONS = st.builds(
    lambda tenant, target, key: Correction(tenant, "void", target, key, None, None, None, None),
    TENANTS,
    KEYS,
    KEYS,
)
ENTRIES = st.one_of(DRAFTS, DRAFTS, DRAFTS, CORRECTIONS, st.just(rejection("bad")))
SUBMISSIONS = st.builds(
    lambda entries: Submission("request", entries), st.lists(ENTRIES, max_size=5)
)
GROUPS = st.builds(Group, st.integers(1, 40), st.lists(SUBMISSIONS, max_size=3))


def a_group_is_what_its_events_are_one_by_one(sequencer: Sequencer) -> Check:
    @given(st.lists(GROUPS, max_size=6))
    def check(groups: list[Group]) -> None:
        store, plain = Store(sequencer), Plain()
        chain, last_received_at = GENESIS_CHAIN, 0
        for group in groups:
            known = len(plain.events)
            expected = [[plain.take(entry) for entry in one.entries] for one in group.submissions]
            placement = store.append(group)
            assert [
                [
                    (
                        outcome.status,
                        outcome.ingress_sequence,
                        outcome.rejection.code if outcome.rejection else None,
                    )
                    for outcome in of_request
                ]
                for of_request in placement.outcomes
            ] == expected
            new = plain.events[known:]
            if new:
                last_received_at = max(group.now_us, last_received_at + 1)
                chain = hashlib.sha256(chain + b"".join(e.content_hash for e in new)).digest()
                commit = (last_received_at, known + 1, len(plain.events), chain)
                assert store.commits[-1] == commit
            assert store.head == Head(len(plain.events), last_received_at, chain)
            assert_times_are_those_of_the_originals(store, placement)
            assert_refusals_are_logged(group, expected, placement)
        assert store.events == plain.events

    return check


def assert_times_are_those_of_the_originals(store: Store, placement: Placement) -> None:
    for of_request in placement.outcomes:
        for outcome in of_request:
            if outcome.ingress_sequence is not None:
                [received_at] = [
                    commit[0]
                    for commit in store.commits
                    if commit[1] <= outcome.ingress_sequence <= commit[2]
                ]
                assert outcome.received_at == received_at


def assert_refusals_are_logged(
    group: Group, expected: list[list[Result]], placement: Placement
) -> None:
    assert [
        (refusal.position, refusal.status, refusal.rejection.code, refusal.original_sequence)
        for refusal in placement.refusals
    ] == [
        (position, status, code, number)
        for of_request in expected
        for position, (status, number, code) in enumerate(of_request)
        if status in ("rejected", "conflict")
    ]
    assert all(refusal.request_id == "request" for refusal in placement.refusals)


def test_a_group_is_what_its_events_are_one_by_one() -> None:
    a_group_is_what_its_events_are_one_by_one(Sequencer())()


# The planted bugs.


def digest_without_tenant(tenant_id: str, key: str) -> bytes:
    return key_digest("", key)


def digest_of_the_letters(tenant_id: str, key: str) -> bytes:
    return hashlib.sha256((tenant_id + key).encode()).digest()


def resolve_from_the_ledger_only(
    submissions: Sequence[Submission],
    originals: Mapping[bytes, Original],
    resolve: CorrectionResolver,
) -> list[Submission]:
    return [
        one
        for submission in submissions
        for one in resolve_corrections([submission], originals, resolve)
    ]


def resolve_from_later_events_too(
    submissions: Sequence[Submission],
    originals: Mapping[bytes, Original],
    resolve: CorrectionResolver,
) -> list[Submission]:
    known = dict(originals)
    for submission in submissions:
        for entry in submission.entries:
            if isinstance(entry, Draft):
                digest = key_digest(entry.tenant_id, entry.idempotency_key)
                known.setdefault(digest, Original(entry.stream, None, None, entry.control))
    return resolve_corrections(submissions, known, resolve)


Digests = Sequence[Sequence[bytes | None]]


def place_each_request_alone(
    submissions: Sequence[Submission],
    digests: Digests,
    stored: Mapping[bytes, Stored],
    head: Head,
    now_us: int,
) -> Placement:
    """Requests of one group do not see each other."""
    whole = Placement(head, [], [], [], [], now_us)
    for submission, of_request in zip(submissions, digests, strict=True):
        part = place([submission], [of_request], stored, whole.head, now_us)
        whole = Placement(
            part.head,
            whole.drafts + part.drafts,
            whole.digests + part.digests,
            whole.outcomes + part.outcomes,
            whole.refusals + part.refusals,
            now_us,
        )
    return whole


def place_by_the_clock(
    submissions: Sequence[Submission],
    digests: Digests,
    stored: Mapping[bytes, Stored],
    head: Head,
    now_us: int,
) -> Placement:
    return place(submissions, digests, stored, msgspec.structs.replace(head, received_at=0), now_us)


def place_the_unchanged_as_a_commit(
    submissions: Sequence[Submission],
    digests: Digests,
    stored: Mapping[bytes, Stored],
    head: Head,
    now_us: int,
) -> Placement:
    placement = place(submissions, digests, stored, head, now_us)
    moved = Head(
        placement.head.last_sequence, max(now_us, head.received_at + 1), placement.head.chain
    )
    return msgspec.structs.replace(placement, head=moved)


def place_with_numbers_for_conflicts(
    submissions: Sequence[Submission],
    digests: Digests,
    stored: Mapping[bytes, Stored],
    head: Head,
    now_us: int,
) -> Placement:
    placement = place(submissions, digests, stored, head, now_us)
    wasted = sum(refusal.status == "conflict" for refusal in placement.refusals)
    return msgspec.structs.replace(
        placement,
        head=msgspec.structs.replace(
            placement.head, last_sequence=placement.head.last_sequence + wasted
        ),
    )


def place_conflicts_as_duplicates(
    submissions: Sequence[Submission],
    digests: Digests,
    stored: Mapping[bytes, Stored],
    head: Head,
    now_us: int,
) -> Placement:
    placement = place(submissions, digests, stored, head, now_us)
    for of_request in placement.outcomes:
        for outcome in of_request:
            if outcome.status == "conflict":
                outcome.status, outcome.rejection = "duplicate", None
    return placement


def place_with_a_chain_of_sorted_hashes(
    submissions: Sequence[Submission],
    digests: Digests,
    stored: Mapping[bytes, Stored],
    head: Head,
    now_us: int,
) -> Placement:
    placement = place(submissions, digests, stored, head, now_us)
    if not placement.drafts:
        return placement
    hashes = sorted(event.content_hash for event in placement.drafts)
    chain = hashlib.sha256(head.chain + b"".join(hashes)).digest()
    return msgspec.structs.replace(
        placement, head=msgspec.structs.replace(placement.head, chain=chain)
    )


@pytest.mark.parametrize(
    "broken",
    [
        Sequencer(digest=digest_without_tenant),
        Sequencer(digest=digest_of_the_letters),
        Sequencer(resolve=resolve_from_the_ledger_only),
        Sequencer(resolve=resolve_from_later_events_too),
        Sequencer(place=place_each_request_alone),
        Sequencer(place=place_by_the_clock),
        Sequencer(place=place_the_unchanged_as_a_commit),
        Sequencer(place=place_with_numbers_for_conflicts),
        Sequencer(place=place_conflicts_as_duplicates),
        Sequencer(place=place_with_a_chain_of_sorted_hashes),
    ],
    ids=lambda broken: next(
        part.__name__
        for part in (broken.digest, broken.resolve, broken.place)
        if part not in (key_digest, resolve_corrections, place)
    ),
)
def test_a_sequencer_with_a_bug_is_caught(broken: Sequencer) -> None:
    assert_catches(a_group_is_what_its_events_are_one_by_one, broken)


def test_the_digest_of_a_key_is_for_ever() -> None:
    """It stands in ledgers that people keep, so a change would let every event in once more."""
    assert key_digest("acme", "key").hex() == hashlib.sha256(b"4:acmekey").hexdigest()[:32]
    assert key_digest("ü", "").hex() == hashlib.sha256(b"2:\xc3\xbc").hexdigest()[:32]


def test_keys_whose_digests_collide_are_told_apart() -> None:
    """Nobody will see it happen. If it does, the event is refused and not taken for another."""
    digest = key_digest("acme", "other")
    stored = {digest: Stored("acme", "other", 7, 5, hash_of("same"))}
    submission = Submission("request", [draft("mine", "same")])
    placement = place([submission], [[digest]], stored, Head(7, 5, GENESIS_CHAIN), 6)
    [[outcome]] = placement.outcomes
    assert outcome.status == "conflict"
    assert placement.drafts == []
    assert outcome.rejection is not None
    assert "digest" in outcome.rejection.message


@pytest.mark.parametrize(("now_us", "received_at"), [(14, None), (15, 15), (3, None)])
def test_a_tick_is_placed_after_silence(now_us: int, received_at: int | None) -> None:
    head = Head(7, 5, GENESIS_CHAIN)
    ticked = place_tick(head, now_us, silent_for_us=10)
    if received_at is None:
        assert ticked is None
    else:
        assert ticked == Head(7, received_at, extend_chain(GENESIS_CHAIN, ()))


def test_a_tick_is_later_than_the_commit_before_it() -> None:
    ticked = place_tick(Head(7, 5, GENESIS_CHAIN), 5, silent_for_us=0)
    assert ticked is not None
    assert ticked.received_at == 6
