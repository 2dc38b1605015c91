"""An explanation as text for people: sections in the order of the flow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tidemark.cli.output import compact_json, one_line, pairs, plural

Entry = dict[str, Any]

_CHAIN_LETTERS: Final = 16
_FOLDED: Final = {True: "yes", False: "not yet", None: "not known"}


def explanation_lines(explanation: Entry) -> Iterator[str]:
    """The lines of an explanation as the server answers it."""
    yield one_line(explanation["answer"])
    if explanation["kind"] == "reject":
        sections = _of_reject(explanation)
    else:
        sections = _of_event(explanation)
    for title, lines in sections:
        listed = list(lines)
        if listed:
            yield ""
            yield title
            yield from (one_line(line) for line in listed)


def _of_reject(explanation: Entry) -> Iterator[tuple[str, Iterable[str]]]:
    reject = explanation["reject"]
    yield (
        "refusal",
        pairs(
            [
                ("number", reject["rejectId"]),
                ("refused", f"{reject['rejectedAt']}, {reject['status']}"),
                ("request", f"{reject['requestId']}, event {reject['position']}"),
                *_present(reject, ("tenant", "tenantId"), ("stream", "stream")),
                *_present(reject, ("key", "idempotencyKey")),
            ]
        ),
    )
    error = reject["error"]
    yield (
        "why",
        pairs(
            [
                ("code", error["code"]),
                ("message", error["message"]),
                *_present(error, ("field", "field"), ("hint", "hint")),
            ]
        ),
    )
    yield "what was sent", [f"  {reject['body']}"]
    if "original" in explanation:
        yield "the event that has its key", _event_pairs(explanation["original"])


def _of_event(explanation: Entry) -> Iterator[tuple[str, Iterable[str]]]:
    event = explanation["event"]
    yield "identity", _identity(event, explanation["identity"])
    yield "place in order", _order(event, explanation["commit"])
    yield "mirrored", _mirrored(explanation.get("mirrored"))
    yield "content", _content(event)
    yield "time", _time(explanation["time"])
    yield "pipeline", _pipeline(explanation["pipeline"])
    yield (
        "errors",
        (f"  {it['stage']}: {it['code']}: {it['message']}" for it in explanation.get("errors", [])),
    )
    if "original" in explanation:
        yield "the event that it corrects", _event_pairs(explanation["original"])
    yield "corrections", map(_correction, explanation.get("corrections", []))
    yield "meters", _lines_of(_meter, explanation.get("meters", []))
    yield "tables", _lines_of(_table, explanation.get("tables", []))
    yield "windows", _lines_of(_window, explanation.get("windows", []))
    yield "adjustments", map(_adjustment, explanation.get("adjustments", []))
    yield "views", map(_view, explanation.get("views", []))
    yield "triggers", _lines_of(_trigger, explanation.get("triggers", []))
    yield "refused with the same key", map(_refusal, explanation.get("refusals", []))
    yield "notes", (f"  {note}" for note in explanation.get("notes", []))


def _identity(event: Entry, identity: Entry) -> Iterable[str]:
    origin = "given by the sender"
    if identity["origin"] == "derived":
        values = identity["derivedFrom"].items()
        origin = f"derived from {', '.join(f'{name} {_value(it)}' for name, it in values)}"
    return pairs(
        [
            ("tenant", event["tenantId"]),
            ("stream", event["stream"]),
            ("key", event["idempotencyKey"]),
            ("", origin),
            ("content hash", event["contentHash"]),
        ]
    )


def _order(event: Entry, commit: Entry) -> Iterable[str]:
    first, last = commit["firstSequence"], commit["lastSequence"]
    count = int(last) - int(first) + 1
    return pairs(
        [
            ("sequence", event["ingressSequence"]),
            *_present(event, ("across ledgers", "globalSequence")),
            ("commit", f"{commit['receivedAt']}, {plural(count, 'event')}: {first} to {last}"),
            ("", f"chain {commit['chain'][:_CHAIN_LETTERS]}…"),
            ("commit before", commit.get("previousReceivedAt", "none")),
        ]
    )


def _mirrored(place: Entry | None) -> Iterable[str]:
    if place is None:
        return ()
    return pairs(
        [
            ("topic", place["topic"]),
            ("partition", str(place["partition"])),
            ("offset", place["offset"]),
        ]
    )


def _content(event: Entry) -> Iterable[str]:
    return pairs(
        [
            *_present(event, ("control", "control"), ("target", "target")),
            *_present(event, ("metric", "metric"), ("customer", "customerRef")),
            *_present(event, ("resource", "resourceId"), ("quantity", "quantity")),
            *((name, compact_json(event[name])) for name in ("meta", "data") if name in event),
        ]
    )


def _time(time: Entry) -> Iterable[str]:
    rows = [("happened", time["occurredAt"]), ("plan", time["plan"])]
    if "column" in time:
        value = _value(time["value"]) if "value" in time else "absent"
        rows.append((time["column"], f"{value} ({time['type']})"))
    return pairs(rows)


def _pipeline(pipeline: Entry) -> Iterable[str]:
    rows = [("folded", _FOLDED[pipeline["folded"]])]
    if "frontier" in pipeline:
        rows.append(("views are at", pipeline["frontier"]))
    if "reason" in pipeline:
        rows.append(("", pipeline["reason"]))
    return pairs(rows)


def _correction(correction: Entry) -> str:
    marks = ["decides"] if correction["decides"] else []
    if correction["folded"] is False:
        marks.append("not folded yet")
    told = f" ({', '.join(marks)})" if marks else ""
    reason = f": {correction['reason']}" if "reason" in correction else ""
    sequence, control = correction["ingressSequence"], correction["control"]
    return f"  {sequence} {control} at {correction['receivedAt']}{told}{reason}"


def _lines_of(told: Any, entries: list[Entry]) -> Iterator[str]:
    for entry in entries:
        yield from told(entry)


def _meter(meter: Entry) -> Iterator[str]:
    yield f"  {meter['meter']}: {_outcome(meter)}"
    for judged in meter.get("judged", []):
        yield from pairs(_judged(judged), indent=4)
    yield from _lines_of(_moved, meter.get("moved", []))


def _judged(judged: Entry) -> list[tuple[str, str]]:
    groups = judged.get("groups", {}).items()
    rows = [
        ("says", f"{judged['saidBy']}, of {judged['ts']}"),
        ("period", f"{judged['periodStart']} – {judged['periodEnd']}"),
    ]
    if groups:
        rows.append(("groups", ", ".join(f"{name} {_value(it)}" for name, it in groups)))
    watermark = judged.get("watermarkTs")
    if judged["late"] is None:
        rows.append(("watermark", "not known"))
    elif watermark is None:
        rows.append(("watermark", "none before its commit"))
    else:
        bound = f"late before {judged['lateBefore']} ({judged['lateness']})"
        rows.append(("watermark", f"{watermark} before its commit: {bound}"))
    if "closesAt" in judged:
        rows.append(("closes", f"to what is committed after {judged['closesAt']}"))
    if judged["late"] is not None:
        rows.append(("late", f"yes: {judged['lateReason']}" if judged["late"] else "no"))
    return rows


def _table(table: Entry) -> Iterator[str]:
    yield f"  {table['table']}: {_outcome(table)}"
    if "shownSequence" in table:
        yield f"    the row comes from {table['shownSequence']} now"
    yield from _lines_of(_moved, table.get("moved", []))


def _window(window: Entry) -> Iterator[str]:
    yield f"  {window['window']}: {_outcome(window)}"
    if "watermarkTs" in window:
        least = "" if window.get("watermarkIsExact") else "at least "
        yield f"    watermark  {least}{window['watermarkTs']} before its commit"
    for judged in window.get("judged", []):
        yield f"    {judged['windowStart']} – {judged['windowEnd']}: {judged['state']}"
        yield from pairs(_judged_window(judged, window), indent=6)
    yield from _lines_of(_moved, window.get("moved", []))


def _judged_window(judged: Entry, window: Entry) -> list[tuple[str, str]]:
    late = {True: f"yes: {window['latePolicy']}", False: "no", None: "not known"}
    rows = [("says", f"{judged['saidBy']}, of {judged['ts']}"), ("late", late[judged["late"]])]
    # Where all windows agree, it is said above.
    if "outcome" in judged and judged["outcome"] != window["outcome"]:
        rows.append(("outcome", _outcome(judged)))
    rows += _present(judged, ("refires until", "refiresUntil"))
    aside = judged.get("putAside")
    if aside is not None:
        rows.append(("put aside", f"{aside['amount']}, {aside['reason']}"))
    return rows


def _outcome(entry: Entry) -> str:
    return f"{entry['outcome'].replace('_', ' ')}: {entry['reason']}"


def _moved(moved: Entry) -> Iterator[str]:
    yield f"    {moved['operation']} of the row {_row(moved)}"
    changed = moved["changed"].items()
    yield from pairs(
        ((name, f"{_value(it['from'])} → {_value(it['to'])}") for name, it in changed), indent=6
    )
    shared = moved["sharedWith"]
    if shared or moved.get("moreMayShare"):
        least = "at least " if moved.get("moreMayShare") else ""
        yield f"      as its whole commit moved it, with {least}{plural(shared, 'other event')}"


def _adjustment(it: Entry) -> str:
    corrects = f", correcting {it['originalSequence']}" if "originalSequence" in it else ""
    period = f"the period from {it['periodStart']}"
    return (
        f"  {it['meter']}: {it['quantity']} in {period}, {it['reason']}"
        f" (by {it['ingressSequence']}{corrects})"
    )


def _view(it: Entry) -> str:
    return f"  {it['view']}: {it['operation']} of the row {_row(it)} at {it['tsTimestamp']}"


def _trigger(it: Entry) -> Iterator[str]:
    fired = f"{it['eventType']}: " if "eventType" in it else ""
    outcome = it["outcome"].replace("_", " ")
    yield f"  {it['trigger']} on {it['view']}, row {_row(it)}: {outcome}: {fired}{it['reason']}"
    rows = _present(it, ("event id", "eventId"))
    delivery = it.get("delivery")
    if delivery is not None:
        attempts = plural(delivery["attempts"], "attempt")
        rows.append(("delivery", f"{delivery['status']} after {attempts}"))
        rows += _present(delivery, ("last answer", "responseStatus"), ("", "lastError"))
        rows += _present(delivery, ("enqueued", "createdAt"), ("next attempt", "nextAttemptAt"))
        rows += _present(delivery, ("settled", "settledAt"))
    yield from pairs(rows, indent=4)


def _row(entry: Entry) -> str:
    return ", ".join(_value(value) for value in entry["row"].values())


def _refusal(reject: Entry) -> str:
    error = reject["error"]
    return f"  {reject['rejectId']} at {reject['rejectedAt']}: {error['code']}: {error['message']}"


def _event_pairs(event: Entry) -> list[str]:
    return pairs(
        [
            ("sequence", event["ingressSequence"]),
            ("key", event["idempotencyKey"]),
            ("received", event["receivedAt"]),
            ("happened", event["occurredAt"]),
            *_present(event, ("metric", "metric"), ("customer", "customerRef")),
            *_present(event, ("quantity", "quantity")),
            *((name, compact_json(event[name])) for name in ("meta", "data") if name in event),
        ]
    )


def _present(entry: Entry, *names: tuple[str, str]) -> list[tuple[str, str]]:
    return [(title, _value(entry[name])) for title, name in names if entry.get(name) is not None]


def _value(value: object) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else compact_json(value)
