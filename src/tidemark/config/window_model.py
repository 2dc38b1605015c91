"""The settings of windows: what the events of a stream come to in each stretch of time."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from tidemark.config.pipeline_model import Aggregate
from tidemark.config.section import ListOf, Section, Text
from tidemark.config.values import Duration, Expression

Emit = Literal["close", "change"]
LatePolicy = Literal["drop", "side_output", "refire"]

EMITS: Final[dict[Emit, str]] = {
    "close": "A row appears when its window closes.",
    "change": "A row appears with the first event of its window and changes with every other.",
}
LATE_POLICIES: Final[dict[LatePolicy, str]] = {
    "drop": "A late event is not counted.",
    "side_output": "A late event is not counted, and becomes a row of the view `<name>_late`.",
    "refire": "A late event is counted for as long as `refireFor` says, and the row changes.",
}


class WindowConfig(Section):
    """Windows over a stream: what its events come to per tenant, group and stretch of time."""

    stream: Text = Field(description="The stream whose events it takes.")
    size_us: Duration = Field(validation_alias="size", description="How long a window is.")
    every_us: Duration | None = Field(
        default=None,
        validation_alias="every",
        description=(
            "How far apart windows begin; by default their size, so that each event is in exactly "
            "one. With less, windows overlap."
        ),
    )
    group_by: ListOf[Text] = Field(
        default_factory=list,
        description="Fields of the stream by which rows are told apart, besides the tenant.",
    )
    aggregate: Aggregate = Field(
        default="sum", description="What the events of one window come to."
    )
    value: Expression | None = Field(
        default=None,
        description=(
            "The Spark SQL expression over the fields that is aggregated; only `count` needs none."
        ),
    )
    where: Expression | None = Field(
        default=None,
        description="A Spark SQL condition; only events for which it is true are taken.",
    )
    emit: Emit = Field(default="close", description="When rows appear.")
    late: LatePolicy = Field(
        default="drop", description="What becomes of events that the watermark has passed."
    )
    refire_for_us: Duration | None = Field(
        default=None,
        validation_alias="refireFor",
        description=(
            "How far the watermark may be beyond a window's end for late events to be counted "
            "still; to be given with `late: refire`, and only then."
        ),
    )
    live: bool = Field(
        default=True,
        description="Whether its changes are kept for subscribers (rows only if false).",
    )
    description: str | None = Field(default=None, description="What it means, for people.")
