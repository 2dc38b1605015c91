"""The settings of Tidemark: names, types, defaults and one sentence each.

Everything else about the configuration (the reference page, the JSON Schema, the environment
variables, what an error says was expected) is derived from these models. `load_config` builds a
`Config` from a file and the environment, and also checks what spans several settings; Python code
that builds a model itself gives durations in microseconds and gets no such checks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from tidemark.config.access_model import AuthConfig
from tidemark.config.durations import UNITS_US
from tidemark.config.faults import Names
from tidemark.config.landing_model import LandingConfig
from tidemark.config.live_model import (
    LiveConfig,
    TriggerConfig,
    TriggerStoreConfig,
    WebhooksConfig,
)
from tidemark.config.mirror_model import MirrorConfig
from tidemark.config.names import (
    FIELD_NAME_PATTERN,
    STREAM_NAME_PATTERN,
    TRIGGER_NAME_PATTERN,
    VIEW_NAME_PATTERN,
)
from tidemark.config.pipeline_model import (
    EventtimeColumn,
    MeterConfig,
    PipelineConfig,
    SparkConfig,
    ViewConfig,
    ViewStoreConfig,
)
from tidemark.config.section import ListOf, MappingOf, Section, Text
from tidemark.config.values import (
    Duration,
    Host,
    LedgerUrl,
    Origin,
    Salt,
    SequenceUrl,
    StateDir,
)
from tidemark.config.window_checks import late_view
from tidemark.config.window_model import WindowConfig

FieldType = Literal["string", "int", "bigint", "decimal", "boolean", "timestamp", "json", "enum"]
StreamKind = Literal["usage", "events"]

FIELD_TYPES: Final[dict[FieldType, str]] = {
    "string": "Text, at most `max_length` characters.",
    "int": "A whole number of 32 bits, as a JSON number.",
    "bigint": "A whole number of 64 bits, as a JSON number or a string.",
    "decimal": "An exact number of up to 19 digits before the point and 9 after it.",
    "boolean": "`true` or `false`.",
    "timestamp": "A time with an offset or `Z`, such as `2025-01-01T00:00:00Z`.",
    "json": "Any JSON value.",
    "enum": "One of `values`.",
}


class LedgerConfig(Section):
    """Where events are kept and how they are put in order."""

    url: LedgerUrl = Field(
        default=None,
        description=(
            "The ledger's database, `sqlite:///path` or `postgresql://user@host/name`; "
            "by default the file `ledger.db` in `state_dir`."
        ),
    )
    salt: Salt = Field(
        default=None,
        repr=False,
        description=(
            "The secret that derived idempotency keys are made with; by default a random one that "
            "is stored when the ledger is made. Starting with another salt is refused."
        ),
    )
    tick_us: Duration = Field(
        default=UNITS_US["s"],
        ge=UNITS_US["ms"],
        validation_alias="tick",
        description=(
            "How long the ledger is silent before a commit without events says that time passed, "
            "when some stream needs to know."
        ),
    )
    max_group_events: int = Field(
        default=10_000,
        ge=1,
        le=100_000,
        description="The most events that are made durable in one commit.",
    )
    max_queued_events: int = Field(
        default=20_000,
        ge=1,
        le=10_000_000,
        description=(
            "The most events that wait for a commit in one process; beyond it requests are "
            "answered with 429."
        ),
    )
    clock_leap_us: Duration = Field(
        default=UNITS_US["h"],
        ge=UNITS_US["s"],
        validation_alias="clock_leap",
        description=(
            "A forward step of the clock beyond this stops ingest until an operator confirms it."
        ),
    )


class SequenceConfig(Section):
    """An optional PostgreSQL database that numbers events across several ledgers."""

    url: SequenceUrl = Field(
        default=None,
        description=(
            "The sequence database, `postgresql://user@host/name`; without it events have no "
            "`global_sequence`."
        ),
    )
    timeout_us: Duration = Field(
        default=250 * UNITS_US["ms"],
        ge=UNITS_US["ms"],
        # It is waited for with the ledger's lock in hand.
        le=5 * UNITS_US["s"],
        validation_alias="timeout",
        description=(
            "How long a commit waits for the sequence database before it goes on without numbers "
            "from it."
        ),
    )


class HttpConfig(Section):
    """Where Tidemark listens and what it accepts in one request."""

    host: Host = Field(
        default="127.0.0.1",
        description="The address to listen on; other than loopback only with `auth.keys`.",
    )
    port: int = Field(
        default=8787,
        ge=0,
        le=65_535,
        description="The port to listen on; 0 takes any that is free.",
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="How many processes serve requests.",
    )
    max_body_bytes: int = Field(
        default=5_242_880,
        ge=1_024,
        le=1_073_741_824,
        description="The most bytes in the body of one request.",
    )
    max_events: int = Field(
        default=1_000,
        ge=1,
        le=100_000,
        description="The most events in one request.",
    )
    max_inflight_bytes: int = Field(
        default=67_108_864,
        ge=1_048_576,
        le=68_719_476_736,
        description=(
            "The most bytes of bodies that one process works on at once; beyond it requests are "
            "answered with 429."
        ),
    )
    allowed_hosts: ListOf[Host] = Field(
        default_factory=list,
        description="Names besides loopback that a `Host` header may carry without `auth.keys`.",
    )
    allowed_origins: ListOf[Origin] = Field(
        default_factory=list,
        description="Origins besides our own whose pages may call, such as `https://app.example.com`.",
    )


class IngestConfig(Section):
    """What makes an event unacceptable."""

    future_limit_us: Duration = Field(
        default=UNITS_US["h"],
        validation_alias="future_limit",
        description="Events further than this in the future are rejected.",
    )
    reject_log_size: int = Field(
        default=100_000,
        ge=0,
        le=100_000_000,
        description="How many rejects and conflicts are kept so that they can be explained.",
    )
    max_string_length: int = Field(
        default=1_024,
        ge=1,
        le=1_048_576,
        description="The most characters in a string, where its field does not say otherwise.",
    )
    max_json_depth: int = Field(
        default=16,
        ge=1,
        le=100,
        description="The deepest nesting of arrays and objects in an event.",
    )
    max_event_bytes: int = Field(
        default=65_536,
        ge=256,
        le=16_777_216,
        description="The most bytes of one event.",
    )


class FieldConfig(Section):
    """One field of a stream's events. `name: string` is short for `name: {type: string}`."""

    type: FieldType = Field(description="The type of the value.")
    required: bool = Field(default=True, description="Whether every event must have it.")
    max_length: int | None = Field(
        default=None,
        ge=1,
        le=1_048_576,
        description="Strings only: the most characters; by default `ingest.max_string_length`.",
    )
    values: list[Text] | None = Field(
        default=None, description="Enums only: the values there are, in their order."
    )
    description: str | None = Field(default=None, description="What it means, for people.")

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value


class StreamConfig(Section):
    """One kind of event: what it carries and what makes two of them the same."""

    kind: StreamKind = Field(
        default="events",
        description=(
            "`usage` for usage events (`tenantId, metric, customerRef, ts, quantity`, at most one "
            "such stream), `events` for everything else."
        ),
    )
    description: str | None = Field(default=None, description="What it means, for people.")
    identity: ListOf[Text] = Field(
        default_factory=list,
        description=(
            "The fields that make two events of one tenant the same event; without any, each "
            "event needs an `idempotencyKey` or is a CloudEvent. Usage events have their own."
        ),
    )
    fields: Annotated[MappingOf[FieldConfig], Names(FIELD_NAME_PATTERN)] = Field(
        default_factory=dict,
        description=(
            "The fields of `data`, each a type or a mapping; in a usage stream the fields of "
            "`meta`, which without any is a free JSON object."
        ),
    )
    truncate: bool = Field(
        default=False,
        description="Whether times finer than a microsecond are cut instead of rejected.",
    )
    idle_after_us: Duration | None = Field(
        default=None,
        ge=UNITS_US["ms"],
        validation_alias="idleAfter",
        description="How long a tenant's silence lasts before time moves on without its events.",
    )
    eventtime: EventtimeColumn | None = Field(
        default=None,
        description="The field that holds the time of an event, and how it is written.",
    )
    metrics: list[Text] | None = Field(
        default=None,
        description="Usage streams only: the metrics there are; by default any name is one.",
    )


class Config(Section):
    """Everything that can be set."""

    state_dir: StateDir = Field(
        default=Path("tidemark-state"),
        # So that the default, too, becomes a path beside the file.
        validate_default=True,
        description="The directory for everything Tidemark keeps, relative to the config file.",
    )
    ledger: LedgerConfig = Field(default_factory=LedgerConfig)
    sequence: SequenceConfig = Field(default_factory=SequenceConfig)
    http: HttpConfig = Field(default_factory=HttpConfig)
    ingest: IngestConfig = Field(default_factory=IngestConfig)
    auth: AuthConfig = Field(default_factory=AuthConfig)
    streams: Annotated[MappingOf[StreamConfig], Names(STREAM_NAME_PATTERN)] = Field(
        default_factory=dict,
        description="The streams by name, which is also the `type` of their CloudEvents.",
    )
    meters: Annotated[MappingOf[MeterConfig], Names(VIEW_NAME_PATTERN)] = Field(
        default_factory=dict,
        description="The meters by name: what usage comes to. Each is also a view of its name.",
    )
    views: Annotated[MappingOf[ViewConfig], Names(VIEW_NAME_PATTERN)] = Field(
        default_factory=dict,
        description="The tables by name: the last event of each key of a stream.",
    )
    windows: Annotated[MappingOf[WindowConfig], Names(VIEW_NAME_PATTERN)] = Field(
        default_factory=dict,
        description="The windows by name: what events come to in each stretch of time.",
    )
    pipeline: PipelineConfig = Field(default_factory=PipelineConfig)
    view_store: ViewStoreConfig = Field(default_factory=ViewStoreConfig)
    landing: LandingConfig = Field(default_factory=LandingConfig)
    mirror: MirrorConfig = Field(default_factory=MirrorConfig)
    spark: SparkConfig = Field(default_factory=SparkConfig)
    live: LiveConfig = Field(default_factory=LiveConfig)
    triggers: Annotated[MappingOf[TriggerConfig], Names(TRIGGER_NAME_PATTERN)] = Field(
        default_factory=dict,
        description="The triggers by name: which rows are told of, and to whom.",
    )
    trigger_store: TriggerStoreConfig = Field(default_factory=TriggerStoreConfig)
    webhooks: WebhooksConfig = Field(default_factory=WebhooksConfig)

    @property
    def view_names(self) -> frozenset[str]:
        """The names of everything that has rows to be seen."""
        side_outputs = {
            late_view(name) for name, window in self.windows.items() if window.late == "side_output"
        }
        return frozenset({*self.meters, *self.views, *self.windows, *side_outputs})
