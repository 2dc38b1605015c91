"""Who may see and change which triggers, over a real store: each caller its own, and no more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.triggers_home import TriggersHome, claimed, settled
from tests.contract.views_home import SQLITE_SCHEME, ViewsHome
from tests.integration.trigger_world import WEBHOOK, TriggerWorld, new_trigger, quote, source_time
from tests.unit.live.signed_tokens import config
from tests.unit.live.trigger_models import SCHEMA
from tidemark.errors import AccessDenied, NotFound
from tidemark.live.access import RowRules, Session
from tidemark.live.errors import InvalidTrigger
from tidemark.live.graphql.triggers_port import DeliveryPage, NewTrigger
from tidemark.live.triggers.desk import TriggerDesk, rule_of
from tidemark.live.triggers.evaluation import TriggerEvaluator
from tidemark.live.triggers.registration import SWITCHED_OFF, DeclaredTrigger, TriggerRegistry

QUOTES = SCHEMA.name
OPERATOR = Session("operator", {}, frozenset(["read", "triggers"]), None, None)
BIG = NewTrigger("big", WEBHOOK, {"px": {"_gte": 100}})


def token(desk: str = "a", subject: str | None = "ada") -> Session:
    claims: dict[str, object] = {"desk": desk}
    if subject is not None:
        claims["sub"] = subject
    return Session(f"app:{subject}", claims, OPERATOR.scopes, None, None, by_token=True)


class DeskWorld(TriggerWorld):
    """The view `quotes`, of which a token shows the rows of its desk, and a desk for triggers."""

    desk: TriggerDesk

    def serve(self, *, rules: Any = None, gone: bool = False) -> None:
        """As a server with this rule and, unless it is gone, the view."""
        schemas = {} if gone else {QUOTES: SCHEMA}
        rule = {"desk": {"_eq": "$jwt.desk"}} if rules is None else rules
        of_trigger = rule_of(RowRules(config(quotes=rule), list(schemas.values())), schemas)
        self.registry = TriggerRegistry(
            self.views, self.triggers, of_trigger, self.clock, check_webhook=lambda url: url
        )
        self.evaluator = TriggerEvaluator(
            self.views, self.triggers, of_trigger, self.clock, configured=schemas
        )
        self.desk = TriggerDesk(self.registry, self.triggers, self.clock)

    async def deliver(self) -> list[str]:
        """Everything that is due arrives."""
        await self.catch_up()
        due = await claimed(self.triggers, self.clock.wall_us() + 10**9)
        await self.triggers.settle([settled(one) for one in due])
        return [one.event_id for one in due]

    async def deliveries(self, session: Session, name: str = "big", **asked: Any) -> DeliveryPage:
        page: dict[str, Any] = {"status": None, "limit": 9, "after": None, "with_attempts": False}
        return await self.desk.deliveries(session, QUOTES, name, **(page | asked))

    async def names(self, session: Session, view: str | None = None) -> list[str]:
        return [trigger.name for trigger in await self.desk.listed(session, view)]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[DeskWorld]:
    places = [f"{SQLITE_SCHEME}{tmp_path / name}" for name in ("views.db", "triggers.db")]
    made = DeskWorld(ViewsHome(places[0]), TriggersHome(places[1]))
    await made.open()
    made.serve()
    yield made
    await made.views_home.close()
    await made.triggers_home.close()


async def test_a_name_that_is_used_again_shows_nothing_of_who_had_it_before(
    world: DeskWorld,
) -> None:
    ada, bob = token("a", "ada"), token("b", "bob")
    await world.desk.create(ada, QUOTES, BIG)
    await world.commit(quote(1, 120, "a"))
    [event] = await world.deliver()
    assert [it.event_id for it in (await world.deliveries(ada)).deliveries] == [event]
    await world.desk.delete(ada, QUOTES, "big")
    await world.desk.create(bob, QUOTES, BIG)
    for caller in (bob, OPERATOR):
        assert (await world.deliveries(caller)).deliveries == []
        assert await world.desk.redeliver(caller, QUOTES, "big", event) == 0
    assert await world.deliver() == []


async def test_one_caller_with_other_claims_is_another(world: DeskWorld) -> None:
    mine, same, other = token("a"), token("a"), token("b")
    await world.desk.create(mine, QUOTES, BIG)
    assert await world.names(same) == ["big"]
    assert await world.names(other) == []
    assert await world.desk.find(other, None, "big") is None
    for change in (
        world.desk.delete(other, None, "big"),
        world.desk.disable(other, QUOTES, "big"),
        world.desk.enable(other, QUOTES, "big"),
        world.desk.restart(other, QUOTES, "big"),
        world.desk.redeliver(other, QUOTES, "big", None),
        world.deliveries(other),
    ):
        with pytest.raises(NotFound):
            await change
    assert (await world.desk.disable(same, QUOTES, "big")).enabled is False


async def test_who_is_nobody_in_particular_sees_no_trigger(world: DeskWorld) -> None:
    nobody = token(subject=None)
    await world.desk.create(nobody, QUOTES, BIG)
    assert await world.names(nobody) == []
    assert await world.names(OPERATOR) == ["big"]


async def test_events_are_shown_to_those_only_who_may_still_see_the_view(world: DeskWorld) -> None:
    ada = token()
    await world.desk.create(ada, QUOTES, BIG)
    await world.commit(quote(1, 120, "a"))
    await world.deliver()
    world.serve(rules={"note": {"_eq": "$jwt.note"}})
    assert await world.names(ada) == ["big"]
    with pytest.raises(AccessDenied):
        await world.deliveries(ada)
    with pytest.raises(AccessDenied):
        await world.desk.redeliver(ada, QUOTES, "big", None)
    assert len((await world.deliveries(OPERATOR)).deliveries) == 1


async def test_a_trigger_whose_view_is_gone_is_listed_and_removed(world: DeskWorld) -> None:
    ada, bob = token("a", "ada"), token("a", "bob")
    await world.desk.create(ada, QUOTES, BIG)
    world.serve(gone=True)
    assert await world.names(ada) == await world.names(OPERATOR) == ["big"]
    assert await world.names(bob) == []
    found = await world.desk.find(ada, None, "big")
    assert found is not None
    assert found.view == QUOTES
    with pytest.raises(NotFound):
        await world.desk.delete(bob, None, "big")
    assert (await world.desk.delete(ada, None, "big")).name == "big"
    assert await world.triggers.oldest_position() is None


async def test_a_declared_trigger_goes_on_when_an_operator_says_so(world: DeskWorld) -> None:
    declared = new_trigger("declared", origin="config")
    await world.registry.sync_declared([DeclaredTrigger(declared)])
    trigger = await world.triggers.get("declared")
    await world.triggers.halt(trigger.id, "the receiver answered 410: it is gone")
    on = await world.desk.enable(OPERATOR, QUOTES, "declared")
    assert (on.enabled, on.disabled_reason) == (True, None)
    for change in (world.desk.disable, world.desk.delete):
        with pytest.raises(InvalidTrigger) as refused:
            await change(OPERATOR, QUOTES, "declared")
        assert "configuration" in refused.value.hint
    await world.registry.sync_declared([DeclaredTrigger(declared, enabled=False)])
    for change in (world.desk.enable, world.desk.restart):
        with pytest.raises(InvalidTrigger) as refused:
            await change(OPERATOR, QUOTES, "declared")
        assert "configuration" in refused.value.hint
    assert (await world.triggers.get("declared")).disabled_reason == SWITCHED_OFF


async def test_a_trigger_that_lost_its_place_begins_anew(world: DeskWorld) -> None:
    ada = token()
    await world.desk.create(ada, QUOTES, BIG)
    await world.commit(quote(1, 120, "a"), quote(1, 90, "a"))
    await world.views.prune_changes(source_time(1) + 1)
    await world.catch_up()
    lost = await world.desk.find(ada, QUOTES, "big")
    assert lost is not None
    assert not lost.enabled
    anew = await world.desk.restart(ada, QUOTES, "big")
    assert (anew.since, anew.enabled) == (source_time(2), True)
    await world.commit(quote(1, 130, "a"), quote(2, 130, "b"))
    await world.deliver()
    [event] = (await world.deliveries(ada)).deliveries
    assert event.source_timestamp == source_time(3)
    with pytest.raises(NotFound):
        await world.desk.restart(ada, QUOTES, "nobody")


async def test_the_attempts_of_each_event_are_shown_if_they_are_asked_for(
    world: DeskWorld,
) -> None:
    await world.desk.create(OPERATOR, QUOTES, BIG)
    await world.commit({**quote(1, 120), **quote(2, 120)})
    await world.catch_up()
    first, second = await claimed(world.triggers, world.clock.wall_us())
    await world.triggers.settle([settled(first, "dead"), settled(second)])
    page = await world.deliveries(OPERATOR, with_attempts=True)
    told = {
        one.event_id: [(it.status, it.response_status, it.error) for it in one.last_attempts]
        for one in page.deliveries
    }
    assert told == {
        first.event_id: [("dead", 500, "answered 500")],
        second.event_id: [("delivered", 200, None)],
    }
    plain = await world.deliveries(OPERATOR)
    assert [one.last_attempts for one in plain.deliveries] == [[], []]
