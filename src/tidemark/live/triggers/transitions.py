"""Which changes of a view are a MATCH or an UNMATCH for a trigger. Pure: no store, no clock.

A row is matched from when `match` holds for it until `unmatch` does and `match` does not (without
an `unmatch`: until `match` does not), or until it is deleted or leaves the creator's row rule. The
log of changes has each row as it was before a change, and mostly that alone says whether it was
matched. Only where neither condition holds does it depend on the past, so only of such rows a key
is kept: it is `held` while its row is matched. At the beginning none is: a row that matches already
is known by its own content, and of the others no past counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import msgspec

from tidemark.pipeline.output.batch import UPDATE
from tidemark.pipeline.output.encoding import decode_row
from tidemark.pipeline.output.schema import Value, ViewSchema
from tidemark.views.port import ChangeRow

EventType: TypeAlias = Literal["MATCH", "UNMATCH"]
Predicate: TypeAlias = Callable[[Sequence[Value]], bool]


class Transition(msgspec.Struct, frozen=True, gc=False):
    """A row has entered the condition or left it; `row` is its last text that may be seen."""

    event_type: EventType
    received_at: int
    row_key: str
    row: str


class Step(msgspec.Struct, frozen=True):
    """What follows from some changes: events, keys to hold from now on, keys to hold no more."""

    transitions: list[Transition]
    held: frozenset[str]
    released: frozenset[str]


@dataclass(frozen=True)
class Condition:
    """The filters of a trigger. `columns` are all that any of them looks at."""

    match: Predicate
    unmatch: Predicate | None
    rule: Predicate
    columns: frozenset[str]

    def verdict(self, values: Sequence[Value] | None) -> bool | None:
        """Whether a row with these values is matched; None if its past decides.

        Without values there is no row.
        """
        if values is None or not self.rule(values):
            return False
        if self.match(values):
            return True
        if self.unmatch is None or self.unmatch(values):
            return False
        return None


class Change:
    """One line of the log, decoded at most once for however many triggers look at it."""

    def __init__(self, schema: ViewSchema, line: ChangeRow) -> None:
        self.line = line
        self._schema = schema
        self._changed = frozenset(line.changed) if line.op == UPDATE else None

    @cached_property
    def old(self) -> tuple[Value, ...] | None:
        return None if self.line.old_row is None else decode_row(self._schema, self.line.old_row)

    @cached_property
    def new(self) -> tuple[Value, ...] | None:
        return None if self.line.row is None else decode_row(self._schema, self.line.row)

    def concerns(self, condition: Condition) -> bool:
        """Whether the condition could see a difference at all."""
        return self._changed is None or not self._changed.isdisjoint(condition.columns)


def keys_in_doubt(condition: Condition, changes: Iterable[Change]) -> set[str]:
    """The keys of which `step` has to be told whether they are held.

    Also those that can be held only if the creator's rule has changed since: they are released.
    """
    if condition.unmatch is None:
        return set()
    return {change.line.row_key for change in changes if change.concerns(condition)}


def step(condition: Condition, changes: Iterable[Change], held: Iterable[str] = ()) -> Step:
    """What changes in their order mean, given which of the `keys_in_doubt` are held."""
    before_all = frozenset(held)
    holding = set(before_all)
    transitions: list[Transition] = []
    for change in changes:
        if not change.concerns(condition):
            continue
        line = change.line
        before = condition.verdict(change.old)
        was_matched = line.row_key in holding if before is None else before
        after = condition.verdict(change.new)
        is_matched = was_matched if after is None else after
        if after is None and is_matched:
            holding.add(line.row_key)
        else:
            holding.discard(line.row_key)
        if is_matched != was_matched:
            transitions.append(_transition(condition, change, is_matched))
    return Step(transitions, frozenset(holding - before_all), before_all - holding)


def _transition(condition: Condition, change: Change, is_matched: bool) -> Transition:
    line = change.line
    seen = change.new is not None and condition.rule(change.new)
    row = line.row if seen else line.old_row
    assert row is not None
    return Transition("MATCH" if is_matched else "UNMATCH", line.received_at, line.row_key, row)
