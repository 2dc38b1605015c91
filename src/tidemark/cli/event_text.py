"""An event on one line, for people."""

from __future__ import annotations

from typing import Final

import click
import msgspec

from tidemark.cli.output import one_line

_NOTHING: Final = msgspec.Raw(b"")


class ShownEvent(msgspec.Struct, rename="camel"):
    """What a line for people shows of an event."""

    ingress_sequence: str
    received_at: str
    occurred_at: str
    tenant_id: str
    stream: str
    metric: str | None = None
    customer_ref: str | None = None
    resource_id: str | None = None
    quantity: str | None = None
    control: str | None = None
    target: str | None = None
    causality_key: str | None = None
    meta: msgspec.Raw = _NOTHING
    data: msgspec.Raw = _NOTHING


def event_text(event: ShownEvent, *, has_colour: bool) -> str:
    """An event with its place in order and its time."""
    text = content_text(event)
    if event.causality_key is not None:
        text = f"{text} of {one_line(event.causality_key)}".lstrip()
    sequence, received_at = f"{event.ingress_sequence:>8}", event.received_at
    place = one_line(f"{event.tenant_id}/{event.stream}")
    if has_colour:
        sequence, place = click.style(sequence, fg="cyan"), click.style(place, bold=True)
        received_at = click.style(received_at, dim=True)
    return f"{sequence}  {received_at}  {place}  {text}"


def content_text(event: ShownEvent) -> str:
    """What an event says."""
    words = [event.control, event.target, event.metric, event.customer_ref, event.resource_id]
    words.append(event.quantity)
    words += [bytes(content).decode() for content in (event.meta, event.data)]
    # To the minute: nearly every event happened a moment before it was received.
    if event.occurred_at[:16] != event.received_at[:16]:
        words.append(f"occurred {event.occurred_at}")
    return one_line(" ".join(word for word in words if word))
