"""A view that is committed to, triggers that watch it, and an evaluator that can be restarted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.contract.events import START, ManualClock
from tests.contract.triggers_home import Triggers, TriggersHome
from tests.contract.views_home import ViewsHome, at, batch, changes, writes
from tests.unit.live.trigger_models import SCHEMA, Row, Rules
from tidemark.live.filters import Filter, parse_filter
from tidemark.live.triggers.definition import NewTrigger, Trigger, where_text
from tidemark.live.triggers.evaluation import TriggerEvaluator
from tidemark.live.triggers.port import DeliveryRecord
from tidemark.live.triggers.registration import TriggerRegistry
from tidemark.views.port import ViewsStore

WEBHOOK = "https://one.example/hook"


class TriggerWorld:
    """Commits have the numbers 1, 2, …; the commit with number n is at `at(n)`."""

    def __init__(self, views_home: ViewsHome, triggers_home: TriggersHome) -> None:
        self.views_home = views_home
        self.triggers_home = triggers_home
        self.clock = ManualClock()
        self.last = 0
        self.rows: dict[int, Row] = {}
        self.views: ViewsStore
        self.triggers: Triggers
        self.evaluator: TriggerEvaluator
        self.registry: TriggerRegistry

    async def open(self, **options: Any) -> TriggerWorld:
        self.views = await self.views_home.open()
        await self.views.declare([SCHEMA])
        self.triggers = await self.triggers_home.open()
        self.restart(**options)
        return self

    def restart(self, **options: Any) -> None:
        """A new evaluator, as after a crash: it knows what is stored."""
        self.evaluator = TriggerEvaluator(self.views, self.triggers, rule_of, self.clock, **options)
        self.registry = TriggerRegistry(
            self.views, self.triggers, rule_of, self.clock, check_webhook=lambda url: url
        )

    async def commit(self, *commits: Mapping[int, Row | None]) -> None:
        """Some commits of the ledger, in one batch of the pipeline."""
        start = self.last or None
        lines, touched = [], {}
        for commit in commits:
            self.last += 1
            for key, new in commit.items():
                old = self.rows.pop(key, None)
                if new is not None:
                    self.rows[key] = new
                if old != new:
                    lines.append((self.last, _values(old), _values(new)))
                    touched[key] = _values(new) or {"id": key}
        present = [touched[key] for key in touched if key in self.rows]
        gone = [touched[key] for key in touched if key not in self.rows]
        assert await self.views.commit(
            batch(
                start,
                self.last,
                rows=[writes(*present, commit=self.last, deleted=gone, schema=SCHEMA)],
                changes=[changes(*lines, schema=SCHEMA)],
            )
        )

    async def create(self, name: str = "hot", rules: Rules | None = None) -> Trigger:
        return await self.registry.create(new_trigger(name, rules))

    async def catch_up(self) -> None:
        while await self.evaluator.round():
            pass

    async def events(self, name: str = "hot") -> list[DeliveryRecord]:
        """All that were ever enqueued, the oldest first."""
        page = await self.triggers.deliveries(name, limit=10_000)
        return page.deliveries[::-1]

    async def told(self, name: str = "hot") -> list[tuple[str, int, int, Row]]:
        """Them as the reference tells them."""
        return [as_told(one) for one in await self.events(name)]


def as_told(one: DeliveryRecord) -> tuple[str, int, int, Row]:
    content = json.loads(one.payload)
    assert content["event_id"] == one.event_id
    assert content["trigger_name"] == one.trigger
    assert content["source_timestamp"] == str(one.received_at)
    number = (one.received_at - START) // 1_000_000
    return content["event_type"], content["data"]["id"], number, content["data"]


def new_trigger(name: str = "hot", rules: Rules | None = None, **fields: Any) -> NewTrigger:
    rules = rules or Rules(match_from=100)
    values: dict[str, Any] = {
        "view": SCHEMA.name,
        "webhook": WEBHOOK,
        "match": where_text({"px": {"_gte": rules.match_from}}),
        "unmatch": None
        if rules.unmatch_below is None
        else where_text({"px": {"_lt": rules.unmatch_below}}),
        "creator": None if rules.desk is None else json.dumps({"desk": rules.desk}),
    }
    return NewTrigger(name, **(values | fields))


def rule_of(trigger: Trigger | NewTrigger) -> Filter:
    """Whoever has a desk sees its rows only."""
    if trigger.creator is None:
        return parse_filter(SCHEMA, {})
    return parse_filter(SCHEMA, {"desk": {"_eq": json.loads(trigger.creator)["desk"]}})


def quote(key: int, px: int | None, desk: str = "a", note: str = "") -> dict[int, Row | None]:
    return {key: {"id": key, "px": px, "desk": desk, "note": note}}


def all_of(commits: Sequence[Mapping[int, Row | None]]) -> dict[int, Row | None]:
    return {key: row for commit in commits for key, row in commit.items()}


def source_time(number: int) -> int:
    return at(number)


def _values(row: Row | None) -> Any:
    return None if row is None else dict(row)
