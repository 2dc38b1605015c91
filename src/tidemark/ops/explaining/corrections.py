"""The corrections of an event: which one says what it is, and what it was before a commit."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.ledger.port import EventRow
from tidemark.ops.explaining.contents import Content, content_of


def deciding(corrections: Sequence[EventRow]) -> EventRow | None:
    """Of corrections in order: the first void, which is final, or else the last amend."""
    for correction in corrections:
        if correction.control == "void":
            return correction
    return corrections[-1] if corrections else None


def content_after(original: EventRow, corrections: Sequence[EventRow]) -> Content | None:
    """What an event says after these corrections; None if it is void."""
    decides = deciding(corrections)
    return content_of(original if decides is None else decides)


def sides_of(correction: EventRow, original: EventRow, others: Sequence[EventRow]) -> list[Content]:
    """What the original was before the correction's commit, and what the correction makes of it.

    `others` are all corrections of the original, in order.
    """
    earlier = [other for other in others if other.received_at < correction.received_at]
    sides = (content_after(original, earlier), content_of(correction))
    return [content for content in sides if content is not None]


def overruled_by(correction: EventRow, others: Sequence[EventRow]) -> EventRow | None:
    """The correction that kept this one from deciding when it was committed, if one did."""
    known = [other for other in others if other.received_at <= correction.received_at]
    decides = deciding(known)
    if decides is None or decides.ingress_sequence == correction.ingress_sequence:
        return None
    return decides
