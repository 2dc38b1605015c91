"""What is asked about triggers themselves: making, ending, standing still, moving on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tidemark.crash import crash_point
from tidemark.errors import TidemarkError
from tidemark.live.errors import TooManyTriggers, TriggerExists, UnknownTrigger
from tidemark.live.triggers.definition import MAX_TRIGGERS, NewTrigger, Trigger
from tidemark.live.triggers.outbox_programs import drop_undelivered, enqueue
from tidemark.live.triggers.port import Advance, LeaderReport
from tidemark.live.triggers.programs import (
    Program,
    Row,
    ask,
    for_each,
    in_chunks,
    one_of,
)

_COLUMNS = Trigger.__struct_fields__
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM triggers"
_ENABLED = _COLUMNS.index("enabled")


def listed(view: str | None, ended: bool) -> Program[list[Trigger]]:
    conditions, values = [], []
    if view is not None:
        conditions.append("view = ?")
        values.append(view)
    if not ended:
        conditions.append("until IS NULL")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = yield ask(f"{_SELECT}{where} ORDER BY name, id", *values)
    return [_trigger(row) for row in rows]


def unfinished() -> Program[list[Trigger]]:
    """Those that are enabled and have not reached their `until`, the older of a name first."""
    rows = yield ask(f"{_SELECT} WHERE NOT finished AND enabled ORDER BY name, id")
    return [_trigger(row) for row in rows]


def get(name: str, lineage: int | None = None) -> Program[Trigger]:
    rows = yield ask(f"{_SELECT} WHERE name = ? AND until IS NULL", name)
    trigger = _trigger(rows[0]) if rows else None
    if trigger is None or lineage not in (None, trigger.lineage):
        raise UnknownTrigger(
            f"there is no trigger {name[:80]!r}", hint="List them to see their names.", field="name"
        )
    return trigger


def add(
    trigger: NewTrigger, since: int, created_at: int, disabled_reason: str | None
) -> Program[Trigger]:
    name = trigger.name
    rows = yield ask(
        "SELECT max(until), count(*) - count(until) FROM triggers WHERE name = ?", name
    )
    last_end, current = rows[0]
    if current:
        raise TriggerExists(
            f"there is a trigger {name} already",
            hint="Names are unique in the deployment; choose another, or remove that one first.",
            field="name",
        )
    yield from _check_room()
    rows = yield ask("SELECT coalesce(max(lineage), 0) + 1 FROM triggers")
    # Ids have no other part that tells two lives of a name apart.
    begin = max(since, last_end or 0)
    return (yield from _insert(trigger, rows[0][0], begin, created_at, disabled_reason))


def replace(
    trigger: NewTrigger,
    since: int,
    created_at: int,
    disabled_reason: str | None,
    lineage: int | None,
) -> Program[Trigger]:
    old = yield from get(trigger.name, lineage)
    begin = max(since, old.position)
    if old.enabled:
        yield ask("UPDATE triggers SET until = ? WHERE id = ?", begin, old.id)
    else:
        yield from _end("name = ?", old.name)
    return (yield from _insert(trigger, old.lineage, begin, created_at, disabled_reason))


def remove(name: str, lineage: int | None) -> Program[Trigger]:
    removed = yield from get(name, lineage)
    yield from _end("name = ?", name)
    yield from drop_undelivered(removed.lineage)
    return removed


def set_enabled(
    name: str, enabled: bool, reason: str | None, lineage: int | None = None
) -> Program[Trigger]:
    yield from get(name, lineage)
    yield ask(
        "UPDATE triggers SET enabled = ?, disabled_reason = ? WHERE name = ? AND NOT finished",
        enabled,
        None if enabled else reason,
        name,
    )
    return (yield from get(name))


def halt(trigger_id: int, reason: str) -> Program[Trigger | None]:
    yield ask(
        "UPDATE triggers SET enabled = ?, disabled_reason = ?"
        " WHERE id = ? AND until IS NULL AND enabled",
        False,
        reason,
        trigger_id,
    )
    yield from _end("until IS NOT NULL AND id = ?", trigger_id)
    rows = yield ask(f"{_SELECT} WHERE id = ?", trigger_id)
    return _trigger(rows[0]) if rows else None


def set_webhook(name: str, webhook: str, disabled_reason: str | None) -> Program[Trigger]:
    yield from get(name)
    yield ask("UPDATE triggers SET webhook = ? WHERE name = ? AND until IS NULL", webhook, name)
    return (yield from set_enabled(name, disabled_reason is None, disabled_reason))


def held(trigger_id: int, row_keys: Collection[str]) -> Program[set[str]]:
    found: set[str] = set()
    for keys in in_chunks(row_keys):
        rows = yield ask(
            f"SELECT row_key FROM held_keys WHERE trigger_id = ? AND {one_of('row_key', keys)}",
            trigger_id,
            *keys,
        )
        found.update(row[0] for row in rows)
    return found


def advance(advances: Sequence[Advance]) -> Program[set[int]]:
    triggers: dict[int, Trigger] = {}
    for some in in_chunks(advances):
        ids = [advance.trigger_id for advance in some]
        rows = yield ask(f"{_SELECT} WHERE {one_of('id', ids)}", *ids)
        triggers |= {row[0]: _trigger(row) for row in rows}
    moving = [a for a in advances if _may_move(triggers.get(a.trigger_id), a)]
    yield for_each(
        "UPDATE triggers SET position = ? WHERE id = ?", [(a.end, a.trigger_id) for a in moving]
    )
    yield for_each(
        "DELETE FROM held_keys WHERE trigger_id = ? AND row_key = ?",
        [(a.trigger_id, key) for a in moving for key in a.released],
    )
    yield for_each(
        "INSERT INTO held_keys (trigger_id, row_key) VALUES (?, ?) ON CONFLICT DO NOTHING",
        [(a.trigger_id, key) for a in moving for key in a.held],
    )
    yield from enqueue([(triggers[a.trigger_id], event) for a in moving for event in a.events])
    yield for_each(
        "DELETE FROM held_keys WHERE trigger_id = ?",
        [(a.trigger_id,) for a in moving if triggers[a.trigger_id].until == a.end],
    )
    crash_point("trigger.stepped")
    return {a.trigger_id for a in moving}


def oldest_position() -> Program[int | None]:
    rows = yield ask("SELECT min(position) FROM triggers WHERE NOT finished AND enabled")
    position: int | None = rows[0][0]
    return position


def tell(report: LeaderReport) -> Program[None]:
    trouble = report.trouble
    texts = (None, None, None) if trouble is None else _texts(trouble)
    yield ask(
        "INSERT INTO leader (singleton, told_at, code, message, hint) VALUES (1, ?, ?, ?, ?)"
        " ON CONFLICT (singleton) DO UPDATE SET told_at = excluded.told_at, code = excluded.code,"
        " message = excluded.message, hint = excluded.hint",
        report.told_at,
        *texts,
    )


def told() -> Program[LeaderReport | None]:
    rows = yield ask("SELECT told_at, code, message, hint FROM leader")
    if not rows:
        return None
    told_at, code, message, hint = rows[0]
    trouble = None if code is None else TidemarkError(message, hint=hint, code=code)
    return LeaderReport(told_at, trouble)


def _texts(trouble: TidemarkError) -> tuple[str, str, str]:
    """What a database can hold of it."""
    code, message, hint = (
        text.replace("\0", "").encode(errors="replace").decode()
        for text in (trouble.code, trouble.message, trouble.hint)
    )
    return code, message, hint


def _check_room() -> Program[None]:
    rows = yield ask("SELECT count(*) FROM triggers WHERE until IS NULL")
    if rows[0][0] >= MAX_TRIGGERS:
        raise TooManyTriggers(
            f"there are {MAX_TRIGGERS} triggers, and a deployment may have no more",
            hint="Remove one that is not needed, or let one trigger do for several.",
        )


def _insert(
    trigger: NewTrigger, lineage: int, since: int, created_at: int, disabled_reason: str | None
) -> Program[Trigger]:
    yield ask(
        "INSERT INTO triggers (lineage, name, view, webhook, match, unmatch, creator, origin,"
        " since, position, enabled, disabled_reason, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        lineage,
        trigger.name,
        trigger.view,
        trigger.webhook,
        trigger.match,
        trigger.unmatch,
        trigger.creator,
        trigger.origin,
        since,
        since,
        disabled_reason is None,
        disabled_reason,
        created_at,
    )
    return (yield from get(trigger.name))


def _may_move(trigger: Trigger | None, advance: Advance) -> bool:
    return (
        trigger is not None
        and trigger.enabled
        and trigger.position == advance.start <= advance.end
        and (trigger.until is None or advance.end <= trigger.until)
    )


def _end(condition: str, value: object) -> Program[None]:
    """Whatever meets the condition and is not finished ends where it stands."""
    yield ask(
        "DELETE FROM held_keys WHERE trigger_id IN"
        f" (SELECT id FROM triggers WHERE NOT finished AND {condition})",
        value,
    )
    yield ask(f"UPDATE triggers SET until = position WHERE NOT finished AND {condition}", value)


def _trigger(row: Row) -> Trigger:
    values = list(row)
    values[_ENABLED] = bool(values[_ENABLED])
    return Trigger(*values)
