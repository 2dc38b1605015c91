"""How far triggers and their webhooks are, and what of these is not delivered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.errors import TidemarkError
from tidemark.ledger.port import LedgerStore
from tidemark.ledger.sequencer import Head
from tidemark.live.triggers.definition import Trigger
from tidemark.live.triggers.outbox_programs import GONE_REASON
from tidemark.live.triggers.port import OutboxCount, TriggerStore
from tidemark.live.triggers.registration import SWITCHED_OFF
from tidemark.ops.lag import Lag, Lags
from tidemark.ops.parts import UNMEASURED, Part
from tidemark.timestamps import format_timestamp

_NOTHING_LIVE = "there is nothing to subscribe to, or live.enabled is false"
_NO_TRIGGER = "there is no enabled trigger"
# By a person, who need give no reason, or by the receiver: what that one refused is a dead letter.
_DISABLED_BY_OTHERS: Final = frozenset({None, SWITCHED_OFF, GONE_REASON})


class Webhooks(msgspec.Struct, rename="camel", omit_defaults=True):
    """Events of triggers that are still to be delivered, and those that were given up.

    The oldest is that of all enabled triggers, by its source timestamp.
    """

    waiting: str
    dead: str
    oldest_waiting_seconds: float | None = None


class DeliveryPart(Part):
    """The sequence up to which everything is delivered that enabled triggers made of it.

    Evaluated is what each of them has put into the outbox.
    """

    slowest_trigger: str | None = None
    evaluated_sequence: str | None = None
    evaluation_lag_seconds: float | None = None
    webhooks: Webhooks | None = None

    @property
    def is_up(self) -> bool:
        # What was given up keeps nothing else waiting, and has a metric and an alert of its own.
        if self.webhooks is not None and self.reason == dead_letters(int(self.webhooks.dead)):
            return True
        return super().is_up


class Delivering(msgspec.Struct, frozen=True):
    """What the store of triggers has. `oldest` has the source timestamps of waiting events, and
    `halted` are those that could not go on."""

    triggers: list[Trigger]
    halted: list[Trigger]
    counts: list[OutboxCount]
    oldest: dict[str, int]

    def delivered_to(self, trigger: Trigger) -> int:
        """The source timestamp up to which nothing of it is missing."""
        oldest = self.oldest.get(trigger.name)
        return trigger.position if oldest is None else min(trigger.position, oldest - 1)


class _Reached(NamedTuple):
    """A commit, and how far it is behind."""

    sequence: int
    received_at: int
    lag: Lag


class Delivery:
    """`triggering` is the state of what triggers stand on; None where there is nothing live."""

    def __init__(
        self,
        ledger: LedgerStore,
        lags: Lags,
        clock: Clock,
        triggering: Callable[[], Part] | None,
        triggers: Callable[[], TriggerStore | None],
    ) -> None:
        self._ledger = ledger
        self._lags = lags
        self._clock = clock
        self._triggering = triggering
        self._triggers = triggers

    async def look(self) -> Delivering | None:
        """None if there are no triggers yet."""
        store = self._triggers()
        if store is None:
            return None
        # Positions come first: whatever was made of events up to there is in the outbox by then.
        triggers = await store.unfinished()
        halted = [
            trigger
            for trigger in await store.listed()
            if not trigger.enabled and trigger.disabled_reason not in _DISABLED_BY_OTHERS
        ]
        counts, oldest = await store.counts(), await store.oldest_unsettled()
        return Delivering(triggers, halted, counts, oldest)

    async def part(
        self, found: Delivering | TidemarkError | None, head: Head | None
    ) -> DeliveryPart:
        """`found` is what `look` gave before this was the ledger's head; None if that is away."""
        if self._triggering is None:
            return DeliveryPart("disabled", _NOTHING_LIVE)
        if isinstance(found, TidemarkError):
            return DeliveryPart("degraded", found.message)
        own = self._triggering()
        state, reason = (own.state, own.reason) if own.state == "degraded" else ("ready", "")
        if found is None:
            return DeliveryPart(state if reason else "disabled", reason or own.reason)
        webhooks = self._webhooks(found)
        dead = int(webhooks.dead)
        if not reason and (found.halted or dead):
            state = "degraded"
            reason = disabled(found.halted) if found.halted else dead_letters(dead)
        # Whoever explains an event opens the store, perhaps before anything is evaluated.
        is_early = own.state == "disabled"
        if is_early or not found.triggers:
            why = own.reason if is_early else _NO_TRIGGER
            state, reason = (state, reason) if reason else ("disabled", why)
            return DeliveryPart(state, reason, webhooks=webhooks)
        slowest = min(found.triggers, key=found.delivered_to)
        if head is None:
            return DeliveryPart(
                "degraded", UNMEASURED, slowest_trigger=slowest.name, webhooks=webhooks
            )
        delivered = await self._reached(head, found.delivered_to(slowest))
        evaluated = await self._reached(head, min(trigger.position for trigger in found.triggers))
        return DeliveryPart(
            state,
            reason,
            str(delivered.sequence),
            format_timestamp(delivered.received_at) if delivered.received_at else None,
            str(delivered.lag.events),
            round(delivered.lag.seconds, 3),
            slowest_trigger=slowest.name,
            evaluated_sequence=str(evaluated.sequence),
            evaluation_lag_seconds=round(evaluated.lag.seconds, 3),
            webhooks=webhooks,
        )

    async def _reached(self, head: Head, upto: int) -> _Reached:
        """The last commit up to a source timestamp, and how far that is behind."""
        commit = await self._ledger.last_commit(upto + 1)
        sequence, received_at = (
            (0, 0) if commit is None else (commit.last_sequence, commit.received_at)
        )
        return _Reached(sequence, received_at, await self._lags.of_commits(head, sequence, upto))

    def _webhooks(self, found: Delivering) -> Webhooks:
        waiting = sum(count.count for count in found.counts if count.status != "dead")
        dead = sum(count.count for count in found.counts if count.status == "dead")
        now_us = self._clock.wall_us()
        ages = [age_s(received_at, now_us) for received_at in found.oldest.values()]
        return Webhooks(str(waiting), str(dead), max(ages, default=None))


def age_s(received_at: int, now_us: int) -> float:
    """Seconds since a source timestamp."""
    return round(max(0, now_us - received_at) / MICROS_PER_SECOND, 3)


def disabled(halted: list[Trigger]) -> str:
    """Of triggers that could not go on, why the first could not."""
    first, count = halted[0], len(halted)
    more = "" if count == 1 else f" It is one of {count:,}: see `tidemark triggers list`."
    return f"trigger {first.name} is disabled: {first.disabled_reason}.{more}"


def dead_letters(count: int) -> str:
    """Of webhooks that were given up, what to do about them."""
    said = "1 webhook was" if count == 1 else f"{count:,} webhooks were"
    return (
        f"{said} given up. `tidemark triggers deliveries NAME --status dead` shows why, and"
        " `tidemark triggers redeliver NAME` sends them again."
    )
