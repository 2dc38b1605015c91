"""The configuration: one YAML file, validated whole, with the environment laid over it.

`load_config` gives a frozen `Config` or an `InvalidConfig` that lists every problem at once.
"""

from tidemark.config.access_model import (
    ALL_TENANTS,
    Algorithm,
    ApiKey,
    AuthConfig,
    JwtKey,
    Scope,
)
from tidemark.config.advice import advise
from tidemark.config.live_model import (
    LiveConfig,
    TriggerConfig,
    TriggerStoreConfig,
    WebhooksConfig,
)
from tidemark.config.load import load_config
from tidemark.config.model import (
    Config,
    FieldConfig,
    FieldType,
    HttpConfig,
    IngestConfig,
    LedgerConfig,
    SequenceConfig,
    StreamConfig,
    StreamKind,
)
from tidemark.config.pipeline_model import (
    EventtimeColumn,
    EventtimeConfig,
    MeterConfig,
    OrderedConfig,
    PipelineConfig,
    SparkConfig,
    ViewConfig,
    ViewStoreConfig,
)
from tidemark.config.problems import InvalidConfig, Problem, redact
from tidemark.config.sample import sample_text
from tidemark.config.schema import json_schema

__all__ = [
    "ALL_TENANTS",
    "Algorithm",
    "ApiKey",
    "AuthConfig",
    "Config",
    "EventtimeColumn",
    "EventtimeConfig",
    "FieldConfig",
    "FieldType",
    "HttpConfig",
    "IngestConfig",
    "InvalidConfig",
    "JwtKey",
    "LedgerConfig",
    "LiveConfig",
    "MeterConfig",
    "OrderedConfig",
    "PipelineConfig",
    "Problem",
    "Scope",
    "SequenceConfig",
    "SparkConfig",
    "StreamConfig",
    "StreamKind",
    "TriggerConfig",
    "TriggerStoreConfig",
    "ViewConfig",
    "ViewStoreConfig",
    "WebhooksConfig",
    "advise",
    "json_schema",
    "load_config",
    "redact",
    "sample_text",
]
