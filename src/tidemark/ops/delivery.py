"""How far triggers are, and what of their webhooks is not delivered."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidemark.errors import TidemarkError
from tidemark.ledger.port import LedgerStore
from tidemark.ledger.sequencer import Head
from tidemark.live.triggers.definition import Trigger
from tidemark.live.triggers.port import OutboxCount, TriggerStore
from tidemark.ops.lag import Lags
from tidemark.ops.parts import UNMEASURED, Part
from tidemark.timestamps import format_timestamp

_NOTHING_LIVE = "there is nothing to subscribe to, or live.enabled is false"
_NO_TRIGGER = "there is no enabled trigger"


class Webhooks(msgspec.Struct, rename="camel"):
    """Events of triggers that are still to be delivered, and those that were given up."""

    waiting: str
    dead: str


class DeliveryPart(Part):
    """The sequence up to which every enabled trigger has put its events into the outbox."""

    slowest_trigger: str | None = None
    webhooks: Webhooks | None = None


class Delivering(msgspec.Struct, frozen=True):
    """What the store of triggers has."""

    triggers: list[Trigger]
    counts: list[OutboxCount]


class Delivery:
    """`live` is the state of what triggers stand on; None where there is nothing live."""

    def __init__(
        self,
        ledger: LedgerStore,
        lags: Lags,
        live: Callable[[], Part] | None,
        triggers: Callable[[], TriggerStore | None],
    ) -> None:
        self._ledger = ledger
        self._lags = lags
        self._live = live
        self._triggers = triggers

    async def look(self) -> Delivering | None:
        """None if there are no triggers yet."""
        store = self._triggers()
        if store is None:
            return None
        return Delivering(await store.unfinished(), await store.counts())

    async def part(
        self, found: Delivering | TidemarkError | None, head: Head | None
    ) -> DeliveryPart:
        """`found` is what `look` gave before this was the ledger's head; None if that is away."""
        if self._live is None:
            return DeliveryPart("disabled", _NOTHING_LIVE)
        if isinstance(found, TidemarkError):
            return DeliveryPart("degraded", found.message)
        live = self._live()
        state, reason = (live.state, live.reason) if live.state == "degraded" else ("ready", "")
        if found is None:
            return DeliveryPart(state if reason else "disabled", reason or live.reason)
        waiting = sum(count.count for count in found.counts if count.status != "dead")
        dead = sum(count.count for count in found.counts if count.status == "dead")
        webhooks = Webhooks(str(waiting), str(dead))
        if dead and not reason:
            state, reason = "degraded", dead_letters(dead)
        if not found.triggers:
            state, reason = (state, reason) if reason else ("disabled", _NO_TRIGGER)
            return DeliveryPart(state, reason, webhooks=webhooks)
        slowest = min(found.triggers, key=lambda trigger: trigger.position)
        if head is None:
            return DeliveryPart(
                "degraded", UNMEASURED, slowest_trigger=slowest.name, webhooks=webhooks
            )
        commit = await self._ledger.last_commit(slowest.position + 1)
        sequence = 0 if commit is None else commit.last_sequence
        lag = await self._lags.of_commits(head, sequence, slowest.position)
        return DeliveryPart(
            state,
            reason,
            str(sequence),
            format_timestamp(slowest.position) if slowest.position else None,
            str(lag.events),
            round(lag.seconds, 3),
            slowest_trigger=slowest.name,
            webhooks=webhooks,
        )


def dead_letters(count: int) -> str:
    """Of webhooks that were given up, what to do about them."""
    said = "1 webhook was" if count == 1 else f"{count:,} webhooks were"
    return (
        f"{said} given up. `tidemark triggers deliveries NAME --status dead` shows why, and"
        " `tidemark triggers redeliver NAME` sends them again."
    )
