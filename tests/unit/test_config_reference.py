"""The reference page and the JSON Schema say what the models say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from tests.unit.config_files import A_KEY, ConfigFile
from tidemark.config import (
    Config,
    EventtimeColumn,
    InvalidConfig,
    JwtKey,
    LiveConfig,
    MeterConfig,
    OrderedConfig,
    TriggerConfig,
    ViewConfig,
    json_schema,
    sample_text,
)
from tidemark.config.access_model import SCOPES, ApiKey
from tidemark.config.environment import RESERVED
from tidemark.config.live_model import INTROSPECTION
from tidemark.config.model import FIELD_TYPES, FieldConfig, StreamConfig
from tidemark.config.names import BUILT_IN_EVENTTIME_TYPES
from tidemark.config.pipeline_model import AGGREGATES, PERIODS
from tidemark.config.reference import PAGE_NAME, SCHEMA_NAME, reference_page, schema_text
from tidemark.config.shape import ROOT, Shape, every_setting, settings_of
from tidemark.config.window_model import EMITS, LATE_POLICIES, WindowConfig

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
REGENERATE = "python -m tidemark.config.reference docs/reference"


def test_the_committed_page_is_current() -> None:
    assert (REFERENCE / PAGE_NAME).read_text(encoding="utf-8") == reference_page(), REGENERATE


def test_the_committed_schema_is_current() -> None:
    assert (REFERENCE / SCHEMA_NAME).read_text(encoding="utf-8") == schema_text(), REGENERATE


def test_both_are_written_by_one_command(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "tidemark.config.reference", str(tmp_path)], check=True, timeout=60
    )
    for name in (PAGE_NAME, SCHEMA_NAME):
        assert (tmp_path / name).read_bytes() == (REFERENCE / name).read_bytes()


def test_every_setting_has_one_line_with_its_default_and_a_sentence() -> None:
    settings = {".".join(map(str, place)): setting for place, setting in every_setting()}
    for prefix, model in (
        ("auth.keys[].", ApiKey),
        ("auth.jwt[].", JwtKey),
        ("triggers.<name>.", TriggerConfig),
        ("streams.<name>.", StreamConfig),
        ("streams.<name>.eventtime.", EventtimeColumn),
        ("streams.<name>.fields.<field>.", FieldConfig),
        ("meters.<name>.", MeterConfig),
        ("views.<name>.", ViewConfig),
        ("windows.<name>.", WindowConfig),
        ("pipeline.ordered.<stream>.", OrderedConfig),
    ):
        settings |= {prefix + key: setting for key, setting in settings_of(model).items()}
    settings = {place: s for place, s in settings.items() if s.shape.model is None}
    rows = [line for line in reference_page().splitlines() if line.startswith("| `")]
    assert sorted(row.split("`")[1] for row in rows) == sorted(settings)
    for setting in settings.values():
        assert setting.info.description
        assert setting.info.description.endswith(".")


def test_every_type_scope_and_reserved_variable_is_explained() -> None:
    page = reference_page()
    for name, sentence in [
        *FIELD_TYPES.items(),
        *SCOPES.items(),
        *INTROSPECTION.items(),
        *RESERVED.items(),
        *AGGREGATES.items(),
        *PERIODS.items(),
        *EMITS.items(),
        *LATE_POLICIES.items(),
        *BUILT_IN_EVENTTIME_TYPES.items(),
    ]:
        assert f"- `{name}`: {sentence}" in page
    assert tuple(FIELD_TYPES) == settings_of(FieldConfig)["type"].shape.choices
    assert tuple(AGGREGATES) == settings_of(MeterConfig)["aggregate"].shape.choices
    assert tuple(PERIODS) == settings_of(MeterConfig)["period"].shape.choices
    assert tuple(EMITS) == settings_of(WindowConfig)["emit"].shape.choices
    assert tuple(LATE_POLICIES) == settings_of(WindowConfig)["late"].shape.choices
    scopes = settings_of(ApiKey)["scopes"].shape.item
    assert scopes is not None
    assert tuple(SCOPES) == scopes.choices
    assert tuple(INTROSPECTION) == settings_of(LiveConfig)["introspection"].shape.choices


def walk(shape: Shape) -> list[Shape]:
    inner = [setting.shape for setting in settings_of(shape.model).values()] if shape.model else []
    if shape.item is not None:
        inner.append(shape.item)
    return [shape, *(found for child in inner for found in walk(child))]


def test_every_setting_is_bounded() -> None:
    for shape in walk(ROOT):
        if shape.kind == "number":
            assert {"minimum", "maximum"} <= set(shape.limits)


def test_the_sample_fits_the_schema() -> None:
    jsonschema_rs.validate(json_schema(), yaml.safe_load(sample_text()))


def test_the_defaults_in_the_schema_are_those_of_the_models(tmp_path: Path) -> None:
    schema = json_schema()
    written = {
        key: {name: inner["default"] for name, inner in section.items() if "default" in inner}
        for key, section in (
            (key, schema["$defs"][value["$ref"].rpartition("/")[2]]["properties"])
            for key, value in schema["properties"].items()
            if "$ref" in value
        )
    }
    written["state_dir"] = schema["properties"]["state_dir"]["default"]
    file = ConfigFile(tmp_path)
    assert file.load(json.dumps(written)) == file.load("")
    assert written["ledger"]["tick"] == "1s"


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{http: null, streams: null, auth: {keys: null}}",
        "{streams: {a: {fields: {x: string, y: {type: enum, values: [a]}}, idleAfter: 5s}}}",
        f"{{auth: {{keys: [{A_KEY}]}}}}",
        "{ledger: {url: 'postgres://h/db', salt: x, tick: 250ms}, state_dir: /x}",
        "{streams: {a: {fields: {x: int}, eventtime: null}, b: {kind: usage}}, meters: {m: null}}",
        "{streams: {a: {fields: {x: int}, eventtime: {column: x, type: unixtimestamp_s}}}}",
        "{spark: {options: {spark.a: x, spark.b: 1, spark.c: 0.5, spark.d: true}}}",
    ],
)
def test_the_schema_takes_what_the_loader_takes(tmp_path: Path, text: str) -> None:
    assert isinstance(ConfigFile(tmp_path).load(text), Config)
    jsonschema_rs.validate(json_schema(), yaml.safe_load(text))


@pytest.mark.parametrize(
    "text",
    [
        "{port: 1}",
        "{http: {port: 65536}}",
        "{http: {port: '1'}}",
        "{http: {workers: 0}}",
        "{http: {allowed_hosts: a}}",
        "{http: {allowed_origins: ['a']}}",
        "{ledger: {url: 'mysql://h/db'}}",
        "{ledger: {tick: 5}}",
        "{ledger: {tick: 5 minutes}}",
        "{ledger: {salt: ''}}",
        "{auth: {keys: [{}]}}",
        "{auth: {keys: [{name: a, sha256: x, scopes: [read], tenants: [t]}]}}",
        "{streams: {a b: {fields: {x: int}}}}",
        "{streams: {a: {fields: {x.y: int}}}}",
        "{streams: {a: {fields: {x: float}}}}",
        "{streams: {a: {fields: {x: {type: int, size: 1}}}}}",
        "{streams: {a: {fields: {x: {required: true}}}}}",
        "{streams: {a: {idle_after: 5s, fields: {x: int}}}}",
        "{streams: {a: {kind: metering}}}",
        "{streams: {b: {kind: usage}}, meters: {a__b: {}}}",
        "{streams: {b: {kind: usage}}, meters: {m: {aggregate: median}}}",
        "{streams: {b: {kind: usage}}, meters: {m: {where: ' '}}}",
        "{streams: {a: {fields: {x: int}}}, views: {v: {stream: a, key: []}}}",
        "{streams: {a: {fields: {x: int}}}, views: {v: {stream: a, key: [x], deleteWhen: ''}}}",
        "{streams: {a: {fields: {x: int}}}, views: {v: {stream: a, key: [x], calculated: {é: x}}}}",
        "{pipeline: {eventtime: {types: {t: no_function}}}}",
        "{spark: {options: {driver.memory: 1g}}}",
        "{spark: {options: {spark.x: [1]}}}",
        "[]",
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidConfig):
        ConfigFile(tmp_path).load(text)
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(json_schema(), yaml.safe_load(text))
