"""`void` and `amend` are judged by their original: in the ledger, or earlier in the same group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.events import START, request, statuses
from tests.contract.stores import Ledger, LedgerHome, all_events, append_all
from tidemark.config import Config, load_config, sample_text
from tidemark.ingress.decoder import Decoder
from tidemark.ingress.drafts import Entry, Outcome
from tidemark.ledger import reading, sequencer

SALT = "salt"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    path: Path = tmp_path_factory.mktemp("sample") / "tidemark.yaml"
    path.write_text(sample_text())
    return load_config(path, {})


@pytest.fixture
def desk(ledger: Ledger, config: Config) -> Desk:
    return Desk(ledger, Decoder(config, SALT))


class Desk:
    """Where events are handed in as a client writes them."""

    def __init__(self, ledger: Ledger, decoder: Decoder) -> None:
        self.ledger = ledger
        self._decoder = decoder

    async def send(self, *events: dict[str, Any]) -> list[Outcome]:
        [outcomes] = await self.send_group(events)
        return outcomes

    async def send_group(self, *requests: tuple[dict[str, Any], ...]) -> list[list[Outcome]]:
        return await self.ledger.append_group(
            [request(*map(self._entry, events)) for events in requests], self._decoder.resolve
        )

    def _entry(self, event: dict[str, Any]) -> Entry:
        return self._decoder.decode_event(json.dumps(event).encode(), now_us=START)


def usage(key: str, tenant: str = "acme", quantity: str = "1") -> dict[str, Any]:
    return {
        "tenantId": tenant,
        "metric": "api_calls",
        "customerRef": "customer",
        "ts": "2024-12-31T00:00:00Z",
        "quantity": quantity,
        "idempotencyKey": key,
    }


def void(target: str, tenant: str = "acme", **fields: Any) -> dict[str, Any]:
    return {"control": "void", "tenantId": tenant, "target": target, "reason": "wrong", **fields}


def amend(target: str, quantity: str = "2", **fields: Any) -> dict[str, Any]:
    event = {"ts": "2024-12-30T00:00:00Z", "quantity": quantity}
    return {"control": "amend", "tenantId": "acme", "target": target, "event": event, **fields}


def code(outcome: Outcome) -> str:
    assert outcome.status == "rejected"
    assert outcome.rejection is not None
    return outcome.rejection.code


async def test_a_correction_of_an_event_in_the_ledger_is_an_event(desk: Desk) -> None:
    await desk.send(usage("a"), usage("b"))
    outcomes = await desk.send(void("a"), amend("b"))
    assert statuses(outcomes) == ["accepted", "accepted"]
    voided, amended = (await all_events(desk.ledger))[2:]
    assert (voided.control, voided.target_key, voided.ingress_sequence) == ("void", "a", 3)
    assert (voided.metric, voided.customer_ref) == ("api_calls", "customer")
    assert (amended.control, amended.target_key, amended.quantity) == ("amend", "b", "2")
    assert amended.occurred_at == START - 2 * 86_400_000_000
    assert json.loads(amended.data or "")["event"]["quantity"] == "2"


async def test_a_correction_may_follow_its_original_in_the_same_request(desk: Desk) -> None:
    outcomes = await desk.send(usage("a"), void("a"))
    assert statuses(outcomes) == ["accepted", "accepted"]


async def test_a_correction_may_follow_its_original_in_the_same_group(desk: Desk) -> None:
    first, second = await desk.send_group((usage("a"),), (amend("a"),))
    assert statuses(first) == ["accepted"]
    assert statuses(second) == ["accepted"]
    assert second[0].ingress_sequence == 2


async def test_a_correction_before_its_original_is_rejected(desk: Desk) -> None:
    outcomes = await desk.send(void("a"), usage("a"))
    assert code(outcomes[0]) == "unknown_target"
    assert outcomes[1].status == "accepted"
    first, second = await desk.send_group((void("b"),), (usage("b"),))
    assert code(first[0]) == "unknown_target"
    assert second[0].status == "accepted"


async def test_a_correction_of_nothing_fails_alone(desk: Desk) -> None:
    outcomes = await desk.send(usage("a"), void("nothing"), usage("b"))
    assert statuses(outcomes) == ["accepted", "rejected", "accepted"]
    assert code(outcomes[1]) == "unknown_target"
    assert outcomes[2].ingress_sequence == 2


async def test_a_correction_finds_only_events_of_its_own_tenant(desk: Desk) -> None:
    await desk.send(usage("a", tenant="globex"))
    [stored] = await desk.send(void("a"))
    assert code(stored) == "unknown_target"
    outcomes = await desk.send(usage("b", tenant="globex"), void("b"))
    assert code(outcomes[1]) == "unknown_target"
    [own] = await desk.send(void("a", tenant="globex"))
    assert own.status == "accepted"


async def test_a_correction_of_a_correction_is_rejected(desk: Desk) -> None:
    await desk.send(usage("a"), void("a", idempotencyKey="v"))
    [stored] = await desk.send(void("v"))
    assert code(stored) == "target_is_correction"
    outcomes = await desk.send(amend("a", idempotencyKey="m"), void("m"))
    assert outcomes[0].status == "accepted"
    assert code(outcomes[1]) == "target_is_correction"


async def test_a_correction_sent_again_is_a_duplicate(desk: Desk) -> None:
    await desk.send(usage("a"))
    [first] = await desk.send(void("a"))
    [again] = await desk.send(void("a"))
    same_group = await desk.send_group((void("a"),), (void("a"), amend("a"), amend("a")))
    assert again.status == "duplicate"
    assert again.ingress_sequence == first.ingress_sequence == 2
    assert again.idempotency_key == first.idempotency_key
    assert [statuses(outcomes) for outcomes in same_group] == [
        ["duplicate"],
        ["duplicate", "accepted", "duplicate"],
    ]


async def test_a_correction_under_the_key_of_another_event_is_a_conflict(desk: Desk) -> None:
    await desk.send(usage("a"), usage("b"))
    [outcome] = await desk.send(void("a", idempotencyKey="b"))
    assert outcome.status == "conflict"
    assert outcome.ingress_sequence == 2


async def test_an_amend_may_not_move_an_event(desk: Desk) -> None:
    await desk.send(usage("a"))
    moved = amend("a")
    moved["event"]["customerRef"] = "somebody else"
    assert code((await desk.send(moved))[0]) == "amend_changes_identity"


async def test_the_original_is_the_stored_event_and_not_the_conflict_beside_it(
    desk: Desk,
) -> None:
    """A usage event in conflict with a stored adjustment must not make that amendable."""
    adjust = {
        "control": "adjust",
        "tenantId": "acme",
        "metric": "api_calls",
        "customerRef": "customer",
        "periodStart": "2024-12-01T00:00:00Z",
        "quantity": "5",
        "reason": "goodwill",
        "idempotencyKey": "k",
    }
    await desk.send(adjust)
    outcomes = await desk.send(usage("k"), amend("k"))
    assert outcomes[0].status == "conflict"
    assert code(outcomes[1]) == "target_not_correctable"
    [voided] = await desk.send(void("k"))
    assert voided.status == "accepted"


async def test_a_rejected_event_is_no_original(desk: Desk) -> None:
    outcomes = await desk.send(usage("a", quantity="many"), void("a"))
    assert statuses(outcomes) == ["rejected", "rejected"]
    assert code(outcomes[1]) == "unknown_target"


async def test_two_processes_see_each_others_originals(home: LedgerHome, config: Config) -> None:
    one, other = await home.open(), await home.open()
    decoder = Decoder(config, SALT)
    await Desk(one, decoder).send(usage("a"))
    [outcome] = await Desk(other, decoder).send(void("a"))
    assert outcome.status == "accepted"


async def test_groups_without_corrections_resolve_nothing(ledger: Ledger, config: Config) -> None:
    entry = Decoder(config, SALT).decode_event(json.dumps(usage("a")).encode(), now_us=START)
    [[outcome]] = await append_all(ledger, request(entry))
    assert outcome.status == "accepted"


async def test_a_digest_that_two_keys_share_does_not_make_one_the_original_of_the_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody will see it happen. If it does, nothing is corrected that was not meant."""
    for module in (sequencer, reading):
        monkeypatch.setattr(module, "key_digest", lambda _tenant, key: key[:1].encode() * 16)
    assert statuses(await desk.send(usage("a1"))) == ["accepted"]
    assert await desk.ledger.find_event("acme", "a1") is not None
    assert await desk.ledger.find_event("acme", "a2") is None
    assert await desk.ledger.find_event("globex", "a1") is None
    void = {"control": "void", "tenantId": "acme", "target": "a2", "idempotencyKey": "v"}
    together = await desk.send(usage("b1"), {**void, "target": "b2"})
    assert statuses([*await desk.send(void), *together]) == ["rejected", "accepted", "rejected"]
    assert statuses(await desk.send({**void, "target": "a1"})) == ["accepted"]
