"""The configuration: one YAML file, validated whole, with the environment laid over it.

`load_config` gives a frozen `Config` or an `InvalidConfig` that lists every problem at once.
"""

from tidemark.config.advice import advise
from tidemark.config.load import load_config
from tidemark.config.model import (
    ALL_TENANTS,
    ApiKey,
    AuthConfig,
    Config,
    FieldConfig,
    FieldType,
    HttpConfig,
    IngestConfig,
    LedgerConfig,
    Scope,
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
    "LedgerConfig",
    "MeterConfig",
    "OrderedConfig",
    "PipelineConfig",
    "Problem",
    "Scope",
    "SequenceConfig",
    "SparkConfig",
    "StreamConfig",
    "StreamKind",
    "ViewConfig",
    "ViewStoreConfig",
    "advise",
    "json_schema",
    "load_config",
    "redact",
    "sample_text",
]
