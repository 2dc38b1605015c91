"""An outbox in memory that keeps the contract of `tidemark.live.webhooks.outbox`, and its books."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from tidemark.live.webhooks.outbox import Delivery, Settlement
from tidemark.live.webhooks.targets import host_of


@dataclass
class Entry:
    outbox_id: int
    event_id: str
    trigger: str
    url: str
    row_key: str
    payload: bytes
    next_attempt_at: int
    status: str = "pending"
    attempts: int = 0
    first_attempt_at: int | None = None
    last_status: int | None = None
    last_error: str | None = None

    @property
    def is_open(self) -> bool:
        return self.status in ("pending", "delivering")


@dataclass
class MemoryOutbox:
    entries: dict[int, Entry] = field(default_factory=dict)
    disabled: set[str] = field(default_factory=set)
    late_settlements: int = 0
    claims: int = 0

    def enqueue(
        self, url: str, *, event_id: str = "", trigger: str = "t", key: str = "", due: int = 0
    ) -> Entry:
        number = len(self.entries) + 1
        event_id = event_id or f"{number:032x}"
        payload = b'{"event_id":"%s"}' % event_id.encode()
        entry = Entry(number, event_id, trigger, url, key or f"key-{number}", payload, due)
        self.entries[number] = entry
        return entry

    def of(self, status: str) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.status == status]

    @property
    def is_settled(self) -> bool:
        return not any(entry.is_open for entry in self.entries.values())

    async def claim(
        self, now_us: int, limit: int, lease_us: int, skip_hosts: Collection[str]
    ) -> list[Delivery]:
        self.claims += 1
        due = [e for e in self._candidates(skip_hosts) if e.next_attempt_at <= now_us]
        due.sort(key=lambda entry: (entry.next_attempt_at, entry.outbox_id))
        claimed = []
        for entry in due[:limit]:
            lease_until = now_us + lease_us
            entry.status = "delivering"
            entry.next_attempt_at = lease_until
            claimed.append(
                Delivery(
                    entry.outbox_id,
                    entry.event_id,
                    entry.trigger,
                    entry.url,
                    entry.row_key,
                    entry.payload,
                    entry.attempts,
                    entry.first_attempt_at,
                    lease_until,
                )
            )
        return claimed

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        for settled in settlements:
            if settled.disable_trigger:
                self.disabled.add(settled.trigger)
            entry = self.entries[settled.outbox_id]
            if not self._is_held(entry, settled.lease_until):
                self.late_settlements += 1
                continue
            self.entries[settled.outbox_id] = replace(
                entry,
                status=settled.status,
                attempts=settled.attempts,
                first_attempt_at=settled.first_attempt_at,
                next_attempt_at=settled.next_attempt_at or 0,
                last_status=settled.last_status,
                last_error=settled.last_error,
            )

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            entry = self.entries[delivery.outbox_id]
            if self._is_held(entry, delivery.lease_until):
                entry.status = "pending"
                entry.next_attempt_at = 0

    async def next_due(self, skip_hosts: Collection[str]) -> int | None:
        return min((e.next_attempt_at for e in self._candidates(skip_hosts)), default=None)

    def heads(self) -> list[Entry]:
        """The oldest open event of each key."""
        oldest: dict[tuple[str, str], Entry] = {}
        for entry in self.entries.values():
            if entry.is_open:
                oldest.setdefault((entry.trigger, entry.row_key), entry)
        return list(oldest.values())

    def _candidates(self, skip_hosts: Collection[str]) -> list[Entry]:
        return [
            entry
            for entry in self.heads()
            if entry.trigger not in self.disabled and host_of(entry.url) not in skip_hosts
        ]

    @staticmethod
    def _is_held(entry: Entry, lease_until: int) -> bool:
        return entry.status == "delivering" and entry.next_attempt_at == lease_until
