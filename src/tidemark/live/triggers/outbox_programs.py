"""What is asked about the outbox: enqueueing, claiming, settling, looking back.

Of the events of one trigger and row at most one is `pending` or `delivering`. The rest wait, and
whatever ends one (`_go_on`) makes the oldest of them pending. So a claim looks at no event that is
not at the head of its row, however many stand behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, zip_longest

from tidemark.live.triggers.definition import Trigger
from tidemark.live.triggers.port import (
    STATUSES,
    AttemptRecord,
    DeliveryPage,
    DeliveryRecord,
    NewEvent,
    OutboxCount,
    Status,
)
from tidemark.live.triggers.programs import Program, ask, for_each, in_chunks, one_of
from tidemark.live.webhooks.outbox import Delivery, Settlement
from tidemark.live.webhooks.targets import host_of

KEPT_ATTEMPTS = 20
GONE_REASON = "the receiver answered 410: it is gone"

_RECORD = (
    "id, event_id, trigger_name, event_type, row_key, received_at, payload, status, attempts,"
    " due_at, last_status, last_error, created_at, settled_at"
)
_PAYLOAD = DeliveryRecord.__struct_fields__.index("payload")


def enqueue(events: Sequence[tuple[Trigger, NewEvent]]) -> Program[None]:
    """Append events, each with its trigger, in their order."""
    yield for_each(
        "INSERT INTO outbox (event_id, lineage, trigger_name, event_type, row_key, received_at,"
        " payload, status, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting', ?)",
        [
            (
                event.event_id,
                trigger.lineage,
                trigger.name,
                event.event_type,
                event.row_key,
                event.received_at,
                event.payload,
                event.created_at,
            )
            for trigger, event in events
        ],
    )
    yield from _go_on((one.name, event.row_key, event.created_at) for one, event in events)


def claim(
    now_us: int, limit: int, lease_us: int, skip_hosts: Collection[str]
) -> Program[list[Delivery]]:
    """Takes turns between triggers, so that a long queue of one keeps no other waiting."""
    queues: list[list[int]] = []
    heads = yield from _heads(skip_hosts)
    for due_at, trigger in sorted(heads)[:limit]:
        if due_at > now_us:
            break
        rows = yield ask(
            "SELECT id FROM outbox WHERE trigger_name = ? AND due_at IS NOT NULL AND due_at <= ?"
            " ORDER BY due_at, id LIMIT ?",
            trigger,
            now_us,
            limit,
        )
        queues.append([row[0] for row in rows])
    turns = chain.from_iterable(zip_longest(*queues))
    chosen = [outbox_id for outbox_id in turns if outbox_id is not None][:limit]
    lease_until = now_us + lease_us
    found: dict[int, Delivery] = {}
    for ids in in_chunks(chosen):
        yield ask(
            f"UPDATE outbox SET status = 'delivering', due_at = ? WHERE {one_of('id', ids)}",
            lease_until,
            *ids,
        )
        rows = yield ask(
            "SELECT o.id, o.event_id, o.trigger_name, t.webhook, o.row_key, o.payload, o.attempts,"
            " o.first_attempt_at FROM outbox AS o JOIN triggers AS t ON t.name = o.trigger_name"
            f" AND t.until IS NULL WHERE {one_of('o.id', ids)}",
            *ids,
        )
        for row in rows:
            outbox_id, event_id, name, url, row_key, payload, attempts, first = row
            found[outbox_id] = Delivery(
                outbox_id,
                event_id,
                name,
                url,
                row_key,
                bytes(payload),
                attempts,
                first,
                lease_until,
            )
    return [found[outbox_id] for outbox_id in chosen]


def settle(settlements: Sequence[Settlement]) -> Program[None]:
    current = yield from _still_claimed((s.outbox_id, s.lease_until) for s in settlements)
    applied = [s for s in settlements if s.outbox_id in current]
    yield for_each(
        "UPDATE outbox SET status = ?, due_at = ?, attempts = ?, first_attempt_at = ?,"
        " last_status = ?, last_error = ?, settled_at = ? WHERE id = ?",
        [
            (
                s.status,
                s.next_attempt_at,
                s.attempts,
                s.first_attempt_at,
                s.last_status,
                s.last_error,
                None if s.status == "pending" else s.attempted_at,
                s.outbox_id,
            )
            for s in applied
        ],
    )
    yield for_each(
        "INSERT INTO delivery_attempts (outbox_id, attempted_at, status, http_status, error)"
        " VALUES (?, ?, ?, ?, ?)",
        [(s.outbox_id, s.attempted_at, s.status, s.last_status, s.last_error) for s in applied],
    )
    yield for_each(
        "DELETE FROM delivery_attempts WHERE outbox_id = ? AND id <= (SELECT id FROM"
        " delivery_attempts WHERE outbox_id = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
        [(s.outbox_id, s.outbox_id, KEPT_ATTEMPTS) for s in applied if s.status != "delivered"],
    )
    yield from _go_on(
        (*current[s.outbox_id], s.attempted_at) for s in applied if s.status != "pending"
    )
    yield for_each(
        "UPDATE triggers SET enabled = ?, disabled_reason = ? WHERE NOT finished AND enabled"
        " AND lineage = (SELECT lineage FROM outbox WHERE id = ?)",
        [(False, GONE_REASON, s.outbox_id) for s in settlements if s.disable_trigger],
    )


def release(deliveries: Sequence[Delivery]) -> Program[None]:
    current = yield from _still_claimed((d.outbox_id, d.lease_until) for d in deliveries)
    yield for_each(
        "UPDATE outbox SET status = 'pending', due_at = 0 WHERE id = ?",
        [(outbox_id,) for outbox_id in current],
    )


def release_all() -> Program[None]:
    """What a process was delivering that is no more."""
    yield ask(
        "UPDATE outbox SET status = 'pending', due_at = 0"
        " WHERE due_at IS NOT NULL AND status = 'delivering'"
    )


def next_due(skip_hosts: Collection[str]) -> Program[int | None]:
    heads = yield from _heads(skip_hosts)
    return min((due_at for due_at, _ in heads), default=None)


def deliveries(
    trigger: str, lineage: int | None, status: Status | None, after: int | None, limit: int
) -> Program[DeliveryPage]:
    current = yield from _lineage(trigger, lineage)
    if current is None:
        return DeliveryPage([], None)
    records: list[DeliveryRecord] = []
    for one in STATUSES if status is None else (status,):
        records += yield from _records(
            "status = ? AND lineage = ? AND id < ? ORDER BY id DESC LIMIT ?",
            one,
            current,
            2**63 - 1 if after is None else after,
            limit + 1,
        )
    records.sort(key=lambda record: record.outbox_id, reverse=True)
    more = len(records) > limit
    page = records[:limit]
    return DeliveryPage(page, page[-1].outbox_id if more and page else None)


def find_event(event_id: str) -> Program[DeliveryRecord | None]:
    records = yield from _records("event_id = ?", event_id)
    return records[0] if records else None


def attempts(outbox_ids: Collection[int]) -> Program[dict[int, list[AttemptRecord]]]:
    found: dict[int, list[AttemptRecord]] = {outbox_id: [] for outbox_id in outbox_ids}
    for ids in in_chunks(found):
        rows = yield ask(
            "SELECT outbox_id, attempted_at, status, http_status, error FROM delivery_attempts"
            f" WHERE {one_of('outbox_id', ids)} ORDER BY outbox_id, id",
            *ids,
        )
        for outbox_id, *attempt in rows:
            found[outbox_id].append(AttemptRecord(*attempt))
    return {outbox_id: made[-KEPT_ATTEMPTS:] for outbox_id, made in found.items()}


def redeliver(trigger: str, lineage: int | None, event_id: str | None, now: int) -> Program[int]:
    # An event whose trigger was removed has nowhere to go, least of all to another of its name.
    current = yield from _lineage(trigger, lineage)
    select = "SELECT id, row_key FROM outbox WHERE lineage = ? AND status"
    if event_id is None:
        rows = yield ask(f"{select} = 'dead' ORDER BY id", current)
    else:
        rows = yield ask(f"{select} IN ('dead', 'delivered') AND event_id = ?", current, event_id)
    yield for_each(
        "UPDATE outbox SET status = 'waiting', attempts = 0, first_attempt_at = NULL,"
        " settled_at = NULL WHERE id = ?",
        [(row[0],) for row in rows],
    )
    yield from _go_on((trigger, row[1], now) for row in rows)
    return len(rows)


def prune(delivered_before: int, dead_before: int | None, at_most: int) -> Program[int]:
    """Forgets at most so many; as many again are perhaps still there if it did."""
    forgotten: list[int] = []
    for status, before in (("delivered", delivered_before), ("dead", dead_before)):
        if before is not None:
            rows = yield ask(
                f"SELECT id FROM outbox WHERE status = '{status}' AND settled_at IS NOT NULL"
                " AND settled_at < ? ORDER BY settled_at LIMIT ?",
                before,
                at_most - len(forgotten),
            )
            forgotten += [row[0] for row in rows]
    yield for_each(
        "DELETE FROM delivery_attempts WHERE outbox_id = ?", [(one,) for one in forgotten]
    )
    yield for_each("DELETE FROM outbox WHERE id = ?", [(one,) for one in forgotten])
    return len(forgotten)


def counts() -> Program[list[OutboxCount]]:
    triggers = yield ask("SELECT lineage, name FROM triggers WHERE until IS NULL")
    names = {row[0]: row[1] for row in triggers}
    # An index has all of this: no event is read, however many there are.
    rows = yield ask(
        "SELECT lineage, status, count(*) FROM outbox"
        " WHERE status IN ('waiting', 'pending', 'delivering', 'dead') GROUP BY status, lineage"
    )
    found = [
        OutboxCount(names[lineage], status, count)
        for lineage, status, count in rows
        if lineage in names
    ]
    return sorted(found, key=lambda count: (count.trigger, count.status))


def oldest_unsettled() -> Program[dict[str, int]]:
    rows = yield ask(
        "SELECT name, (SELECT min(received_at) FROM outbox WHERE trigger_name = triggers.name"
        " AND settled_at IS NULL) FROM triggers WHERE enabled AND until IS NULL"
    )
    return {name: received_at for name, received_at in rows if received_at is not None}


def drop_undelivered(lineage: int) -> Program[None]:
    """Everything of a trigger that was not delivered, and how it was tried."""
    condition = "lineage = ? AND status IN ('waiting', 'pending', 'delivering', 'dead')"
    yield ask(
        "DELETE FROM delivery_attempts WHERE outbox_id IN"
        f" (SELECT id FROM outbox WHERE {condition})",
        lineage,
    )
    yield ask(f"DELETE FROM outbox WHERE {condition}", lineage)


def _lineage(trigger: str, expected: int | None) -> Program[int | None]:
    """That of the trigger which has the name now; None if it is not the expected one."""
    rows = yield ask("SELECT lineage FROM triggers WHERE name = ? AND until IS NULL", trigger)
    found: int | None = rows[0][0] if rows else None
    return found if expected in (None, found) else None


def _go_on(rows: Iterable[tuple[str, str, int]]) -> Program[None]:
    """Where none is pending or delivering, the oldest that waits is due at the given time."""
    due = {(trigger, row_key): due_at for trigger, row_key, due_at in rows}
    yield for_each(
        "UPDATE outbox SET status = 'pending', due_at = ? WHERE id = (SELECT min(id) FROM outbox"
        " WHERE trigger_name = ? AND row_key = ? AND status = 'waiting') AND NOT EXISTS"
        " (SELECT 1 FROM outbox WHERE trigger_name = ? AND row_key = ?"
        " AND status IN ('pending', 'delivering'))",
        [(due_at, *key, *key) for key, due_at in due.items()],
    )


def _heads(skip_hosts: Collection[str]) -> Program[list[tuple[int, str]]]:
    """When each enabled trigger that leads to none of these hosts next has an event to give."""
    rows = yield ask(
        "SELECT (SELECT min(due_at) FROM outbox WHERE trigger_name = triggers.name"
        " AND due_at IS NOT NULL), name, webhook FROM triggers WHERE enabled AND until IS NULL"
    )
    skipped = frozenset(skip_hosts)
    return [
        (due_at, name)
        for due_at, name, webhook in rows
        if due_at is not None and (not skipped or host_of(webhook) not in skipped)
    ]


def _still_claimed(claims: Iterable[tuple[int, int]]) -> Program[dict[int, tuple[str, str]]]:
    """Of claims, by id and lease, those that hold: the trigger and row of each."""
    leases = dict(claims)
    found: dict[int, tuple[str, str]] = {}
    for ids in in_chunks(leases):
        rows = yield ask(
            "SELECT id, due_at, trigger_name, row_key FROM outbox"
            f" WHERE status = 'delivering' AND {one_of('id', ids)}",
            *ids,
        )
        found |= {row[0]: (row[2], row[3]) for row in rows if leases[row[0]] == row[1]}
    return found


def _records(condition: str, *values: object) -> Program[list[DeliveryRecord]]:
    rows = yield ask(f"SELECT {_RECORD} FROM outbox WHERE {condition}", *values)
    records = []
    for row in rows:
        fields = list(row)
        fields[_PAYLOAD] = bytes(fields[_PAYLOAD])
        records.append(DeliveryRecord(*fields))
    return records
