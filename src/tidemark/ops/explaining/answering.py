"""The answer in a sentence or two: what became of an event, and what it was that decided it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemark.ledger.port import EventRow, RejectRow
from tidemark.ops.explaining.corrections import deciding
from tidemark.ops.explaining.gathering import InViews, MeterFinding
from tidemark.ops.explaining.in_ledger import InLedger
from tidemark.ops.explaining.origins import subject_of
from tidemark.ops.explaining.table_verdicts import TableVerdict
from tidemark.ops.explaining.triggering import TriggerFinding
from tidemark.ops.explaining.verdicts import Outcome
from tidemark.ops.explaining.window_verdicts import WindowVerdict

# How each outcome is told of the meters that it belongs to, in this order.
_TOLD: tuple[tuple[Outcome, str], ...] = (
    ("counted", "Counted by"),
    ("corrected", "Corrected in"),
    ("adjusted", "Not counted but adjusted by"),
    ("no_effect", "Without effect in"),
    ("not_counted", "Not counted by"),
    ("unknown", "Not known of"),
)


def answer_of(
    found: InLedger,
    views: InViews | None,
    why_not: str,
    triggers: Sequence[TriggerFinding] = (),
) -> str:
    """`why_not` says why the views say nothing of it, where they do not."""
    sentences = [_what_it_is(found.event, found.original)]
    if views is None:
        sentences.append(why_not)
    else:
        sentences += _in_views(found.event, views)
    sentences += _fired(triggers)
    if found.original is None:
        sentences += _corrected(found.corrections)
    return " ".join(sentences)


def answer_of_reject(reject: RejectRow) -> str:
    sentences = ["It was not stored", f"{reject.code}: {reject.message}."]
    if reject.original_sequence is not None:
        sentences.append(
            f"An event with its key was there already, as {reject.original_sequence}, and says"
            " something else."
        )
    return f"{sentences[0]}: {' '.join(sentences[1:])}"


def _what_it_is(event: EventRow, original: EventRow | None) -> str:
    sequence = event.ingress_sequence
    if original is not None:
        article = "an" if event.control == "amend" else "a"
        return f"Stored as {sequence}: {article} {event.control} of {original.ingress_sequence}."
    if event.control == "end":
        return f"Stored as {sequence}: the end of the stream {event.stream}."
    if event.control == "adjust":
        return f"Stored as {sequence}: an operator's adjustment."
    if event.control == "swap":
        return f"Stored as {sequence}: the swap of the replay {dict(subject_of(event))['name']}."
    return f"Stored as {sequence}."


def _in_views(event: EventRow, views: InViews) -> Iterable[str]:
    told_below = {f"meter {it.meter.name}" for it in views.meters}
    told_below |= {f"table {it.table.name}" for it in views.tables}
    told_below |= {f"window {it.window.name}" for it in views.windows}
    for error in views.errors:
        if error.stage not in told_below:
            yield f"The stage {error.stage} could not take it: {error.message}."
    if event.metric is not None:
        own = [it for it in views.meters if it.meter.metric == event.metric]
        if not own:
            yield f"No meter counts the metric {event.metric}."
        for outcome, how in _TOLD:
            of_it = [it for it in own if it.verdict.outcome == outcome]
            if of_it:
                yield f"{how} {_listed(of_it)}."
    elif event.control not in ("end", "swap"):
        if not views.tables and not views.windows:
            yield f"No table is made of the stream {event.stream}."
        told: list[tuple[str, TableVerdict | WindowVerdict]] = [
            *((it.table.name, it.verdict) for it in views.tables),
            *((it.window.name, it.verdict) for it in views.windows),
        ]
        for name, verdict in told:
            yield f"{name}: {verdict.outcome.replace('_', ' ')} ({verdict.reason})."


def _corrected(corrections: Sequence[EventRow]) -> Iterable[str]:
    decides = deciding(corrections)
    if decides is not None:
        how = "voided" if decides.control == "void" else "amended"
        yield f"{decides.ingress_sequence} has {how} it since."


def _fired(triggers: Sequence[TriggerFinding]) -> Iterable[str]:
    fired = [
        f"{it.trigger.name} ({it.event_type}, {it.delivery.status})"
        for it in triggers
        if it.delivery is not None
    ]
    if fired:
        yield f"Fired {', '.join(fired)}."


def _listed(findings: Sequence[MeterFinding]) -> str:
    """The meters, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for finding in findings:
        by_reason.setdefault(finding.verdict.reason, []).append(finding.meter.name)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())
