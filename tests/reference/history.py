"""A ledger as plain data: commits in order, each with its events.

An event is a dictionary, a commit is `(received_at, events)`, and times are microseconds. A commit
without events is a tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

Control = Literal["void", "amend", "adjust", "end"]


class Content(TypedDict):
    """What an amend puts in place of what was sent; nothing is inherited from there."""

    ts: int
    quantity: str | None
    meta: Mapping[str, Any] | None
    resource_id: str | None


class Event(Content):
    """One event in its place.

    Which of the last four there are depends on `control`: a void has a `target`; an amend has a
    `target` and an `event`; an adjust has a `period_start` and a `reason`. The `quantity` of an
    adjust is its own. The `ts` of a control event has no meaning.
    """

    seq: int
    key: str
    tenant_id: str
    stream: str
    metric: str | None
    customer_ref: str | None
    control: Control | None
    target: NotRequired[str | None]
    event: NotRequired[Content | None]
    period_start: NotRequired[int | None]
    reason: NotRequired[str | None]


Commit = tuple[int, Sequence[Event]]
# Keys are unique within a tenant only.
Name = tuple[str, str]


def name_of(event: Event) -> Name:
    return event["tenant_id"], event["key"]


def target_of(correction: Event) -> Name:
    target = correction.get("target")
    if target is None:
        raise ValueError(f"the correction {correction['seq']} has no target")
    return correction["tenant_id"], target


def check_history(commits: Sequence[Commit]) -> None:
    """Raise `ValueError` for what no ledger can hold."""
    last_received_at = -1
    last_seq = 0
    known: dict[Name, Event] = {}
    for received_at, events in commits:
        _require(received_at > last_received_at, "received_at does not increase", received_at)
        last_received_at = received_at
        for event in events:
            _require(event["seq"] == last_seq + 1, "sequences are not dense", event)
            last_seq = event["seq"]
            _require(name_of(event) not in known, "a key is used twice", event)
            known[name_of(event)] = event
            if event["control"] in ("void", "amend"):
                _check_correction(event, known)
            if event["control"] == "adjust":
                _require(event.get("period_start") is not None, "no period", event)
                _require(event["quantity"] is not None, "no quantity", event)
                _require(event.get("reason") is not None, "no reason", event)


def _check_correction(correction: Event, known: Mapping[Name, Event]) -> None:
    original = known.get(target_of(correction))
    if original is None:
        raise ValueError(f"the original is not known: {correction}")
    correctable = (None,) if correction["control"] == "amend" else (None, "adjust")
    _require(original["control"] in correctable, "the original cannot be corrected", correction)
    same = all(original[name] == correction[name] for name in ("stream", "metric", "customer_ref"))
    _require(same, "a correction stands where its original does", correction)
    if correction["control"] == "amend":
        _require(correction.get("event") is not None, "no new content", correction)


def _require(holds: bool, message: str, culprit: object) -> None:
    if not holds:
        raise ValueError(f"{message}: {culprit}")
