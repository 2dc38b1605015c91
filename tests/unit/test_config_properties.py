"""What holds for every configuration, valid or not.

Beside each property stands a test that plants a bug and sees the property catch it.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tidemark.config import (
    Config,
    InvalidConfig,
    checks,
    environment,
    json_schema,
    load_config,
    mismatches,
    yaml_text,
)
from tidemark.config.durations import format_duration
from tidemark.config.problems import Location
from tidemark.config.shape import ROOT, Setting, Shape, every_setting, settings_of

quick = settings(
    max_examples=150,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

# To find a planted bug is enough; the smallest case of it is of no interest.
planted = settings(quick, phases=[Phase.generate], max_examples=1000, derandomize=True)

JARGON = ("pydantic", "Input should", "Extra inputs", "validation error", "type=", "Field required")

# Texts that are right somewhere and wrong elsewhere.
WORDS = [
    *("usage", "events", "string", "enum", "json", "int", "ingest", "read", "*", "a", "b", "name"),
    *("sqlite:///a.db", "postgresql://u@h/db", "https://a.example.com", "0.0.0.0", "localhost"),
    *("5s", "250ms", "5 minutes", "ab" * 32, "", "null", "80", "é", "a.b", "x" * 70),
]
KEYS = sorted(
    {str(place[-1]) for place, _ in every_setting()}
    | {*WORDS, "kind", "fields", "identity", "metrics", "type", "values", "required", "idleAfter"}
)

scalars = (
    st.sampled_from(WORDS)
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
noise = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=8,
)

TEXTS = {
    "url": [
        *("sqlite:///a.db", "postgresql://u:p@h:5432/db", "postgres://h/db"),
        *("https://u:p@h:8443", "chdb:///a"),
    ],
    **{key: ["x", "y"] for key in ("database", "table")},
    "host": ["127.0.0.1", "::1", "localhost"],
    "allowed_hosts": ["a.example.com", "10.0.0.1"],
    "allowed_origins": ["https://a.example.com", "http://localhost:3000"],
    "sha256": ["ab" * 32, "CD" * 32],
    "tenants": ["*", "acme"],
    "identity": ["x", "y"],
    "state_dir": ["data", "/var/lib/tidemark"],
    "timezone": ["UTC", "Europe/Berlin"],
    "type": ["iso8601", "unixtimestamp_ms", "x"],
    "types": ["package.module:function"],
    "secret": ["some text that is a secret of 64 bytes, as the longest digest is"],
    **{key: ["keys/issuer.pem"] for key in ("public_key_file", "jwks_file")},
    "webhook": ["https://a.example.com/hook", "http://127.0.0.1:9000/"],
    "secrets": [f"whsec_{letter * 43}=" for letter in "Mw"],
    "id_prefix": ["prod-", "a_b"],
    "allow": ["hooks.internal", "10.0.0.0/8", "::1"],
    "view": ["x", "y"],
    **{key: ["x", "y"] for key in ("stream", "key", "column", "metric", "metrics", "group_by")},
}

# What may be named in these; elsewhere any letter.
NAMES = {
    "options": ["spark.driver.memory", "spark.x"],
    "views": ["v", "w"],
    "calculated": ["c", "d"],
}

FILTERS = [
    {},
    {"tenant_id": {"_eq": "$jwt.tenant"}},
    {"_or": [{"x": {"_in": [1, 2.5, "a"]}}, {"_not": {"y": {"_is_null": True}}}]},
]

# Such that a request fits into a commit and an event into a request.
NUMBERS = {
    "max_events": (1, 1000),
    "max_group_events": (1000, 100_000),
    "max_queued_events": (1000, 100_000),
    "max_event_bytes": (256, 1024),
    "merge_above": (1, 10_000),
    "close_above": (10_000, 100_000),
    "merge_above_bytes": (1024, 1_048_576),
    "close_above_bytes": (2_000_000, 4_000_000),
    "documents_per_second": (1, 200),
    "document_burst": (200, 1000),
    "max_concurrent": (10, 100),
    "max_concurrent_per_host": (1, 10),
}

# In seconds, such that a retry comes before the end of all retries.
SECONDS = {"first_retry": (1, 100), "max_retry": (1000, 100_000), "retry_for": (100_000, 10**6)}


# What fits together with other settings only by a rare chance is seldom there.
RARE = {"jwt", "rules", "triggers"}


def fitting(shape: Shape, key: str = "") -> st.SearchStrategy[Any]:
    """Values of the right type, though not always such that they fit each other."""
    if key in RARE and shape.kind in ("list", "mapping"):
        return st.integers(0, 7).flatmap(lambda chance: st.none() if chance else _any(shape, key))
    return _any(shape, key)


def _any(shape: Shape, key: str) -> st.SearchStrategy[Any]:
    if shape.model is not None:
        chosen = settings_of(shape.model)
        return st.fixed_dictionaries(
            {name: fitting(s.shape, name) for name, s in chosen.items() if s.required},
            optional={name: fitting(s.shape, name) for name, s in chosen.items() if not s.required},
        )
    if shape.kind == "mapping" and shape.item is not None:
        names = st.sampled_from(NAMES.get(key, ["x", "y", "z"]))
        return st.dictionaries(names, fitting(shape.item, key), max_size=2)
    if shape.kind == "list" and shape.item is not None:
        least = 1 if shape.limits else 0
        as_text = json.dumps if key == "key" else None
        return st.lists(fitting(shape.item, key), min_size=least, max_size=2, unique_by=as_text)
    if shape.kind == "number":
        low, high = shape.limits["minimum"], shape.limits["maximum"]
        assert isinstance(low, int)
        assert isinstance(high, int)
        return st.integers(*NUMBERS[key]) if key in NUMBERS else st.integers(low, high)
    plain: dict[str, st.SearchStrategy[Any]] = {
        "flag": st.booleans(),
        "choice": st.sampled_from(shape.choices or ("",)),
        "duration": st.integers(*SECONDS.get(key, (1, 10**6))).map(
            lambda seconds: format_duration(seconds * 10**6)
        ),
        "text": st.sampled_from(_texts(shape, key)),
        "scalar": st.sampled_from(["some text", 5, 0.5, True]),
        "filter": st.sampled_from(FILTERS).map(copy.deepcopy),
    }
    return plain[shape.kind]


def _texts(shape: Shape, key: str) -> list[str]:
    """Those that may stand there: not every address is one of every database."""
    pattern = str(shape.limits.get("pattern", ""))
    known = TEXTS.get(key, ["some text"])
    return [text for text in known if re.search(pattern, text)] or known


def mixed(document: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The document with noise in one place, at any depth."""

    @st.composite
    def spoiled(draw: st.DrawFn) -> Any:
        root = draw(document)
        node, path = root, []
        while isinstance(node, dict) and node and draw(st.integers(0, 4)):
            key = draw(st.sampled_from(sorted(node)))
            path.append((node, key))
            node = node[key]
        if path:
            owner, key = path[-1]
            owner[key] = draw(noise)
        return root

    return spoiled()


# Meters and views fit only together with streams, which are seldom drawn by chance.
STREAMS = {
    "u": {"kind": "usage"},
    **{name: {"fields": {"x": "int", "y": "string"}} for name in "xy"},
    "z": {"fields": {"x": "int"}, "eventtime": {"column": "x", "type": "unixtimestamp_ns"}},
}
folded = st.fixed_dictionaries(
    {
        "streams": st.just(STREAMS).map(copy.deepcopy),
        **{
            key: fitting(settings_of(Config)[key].shape, key)
            for key in ("meters", "views", "pipeline", "view_store", "spark")
        },
        **{
            key: st.just({}) | fitting(settings_of(Config)[key].shape, key)
            for key in ("http", "landing", "live", "triggers", "trigger_store", "webhooks")
        },
    }
)

documents = fitting(ROOT) | folded | mixed(fitting(ROOT) | folded) | noise
variables = st.dictionaries(
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=4).map(
        lambda parts: environment.variable(tuple(parts))
    )
    | st.text(st.sampled_from("ABHTP_"), max_size=9).map(lambda text: "TIDEMARK_" + text),
    st.sampled_from(WORDS) | st.text(max_size=8),
    max_size=3,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tidemark.yaml"


Outcome = Config | list[tuple[str, str, str]]


def outcome(path: Path, text: str | bytes, environ: dict[str, str] | None = None) -> Outcome:
    """The config, or its problems without the places by which they are ordered."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        return load_config(path, environ or {})
    except InvalidConfig as error:
        refused = error
    assert refused.problems
    assert not [word for word in JARGON if word in str(refused)]
    return sorted((problem.path, problem.message, problem.hint) for problem in refused.problems)


def check_that_nothing_crashes(path: Path, how: settings = quick) -> None:
    seen = {"valid": 0, "invalid": 0}

    @how
    @given(documents, variables, st.booleans())
    def loads_or_says_why(document: Any, environ: dict[str, str], as_json: bool) -> None:
        if as_json:
            text = json.dumps(document, ensure_ascii=False)
        else:
            text = yaml.safe_dump(document, allow_unicode=True)
        result = outcome(path, text, environ)
        seen["valid" if isinstance(result, Config) else "invalid"] += 1

    loads_or_says_why()
    assert min(seen.values()) > 5, seen


def test_any_mapping_is_a_config_or_a_list_of_problems(path: Path) -> None:
    check_that_nothing_crashes(path)


def test_the_crash_check_catches_a_rule_that_trusts_its_input(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trusting(raw: dict[str, Any], key: str) -> dict[str, Any]:
        return dict(raw.get(key, {}))

    monkeypatch.setattr(checks, "mapping_of", trusting)
    with pytest.raises((TypeError, ValueError, ExceptionGroup)):
        check_that_nothing_crashes(path, planted)


@quick
@given(st.text() | st.binary() | st.text("{}[]:,-&*!|>'\"%@`#?~<= \n\tab1", max_size=40))
def test_any_text_at_all_is_a_config_or_a_list_of_problems(path: Path, text: str | bytes) -> None:
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    outcome(path, text)


LEAVES = [(place, setting) for place, setting in every_setting() if setting.shape.model is None]


@st.composite
def one_setting(draw: st.DrawFn) -> tuple[Location, Setting, Any]:
    place, setting = draw(st.sampled_from(LEAVES))
    shape = setting.shape
    value = draw(fitting(shape, str(place[-1])))
    spoiled: st.SearchStrategy[Any]
    if shape.kind in ("text", "choice", "duration"):
        # An empty variable is null, which text is not.
        spoiled = st.sampled_from([word for word in WORDS if word]) | st.integers().map(str)
    else:
        spoiled = noise
    return place, setting, draw(st.just(value) | spoiled)


def check_that_environment_equals_file(path: Path, how: settings = quick) -> None:
    @how
    @given(one_setting())
    def are_equal(case: tuple[Location, Setting, Any]) -> None:
        place, setting, value = case
        document: Any = value
        for key in reversed(place):
            document = {key: document}
        in_file = outcome(path, json.dumps(document))
        is_text = setting.shape.kind in ("text", "choice", "duration")
        variable = environment.variable(place)
        in_environment = outcome(path, "", {variable: value if is_text else json.dumps(value)})
        assert in_environment == in_file

    are_equal()


def test_a_setting_means_the_same_in_the_environment_and_in_the_file(path: Path) -> None:
    check_that_environment_equals_file(path)


def test_the_comparison_catches_text_that_is_read_as_yaml(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_yaml(shape: Shape, value: str) -> Any:
        return yaml_text.parse(value).value

    monkeypatch.setattr(environment, "_read", all_yaml)
    with pytest.raises((AssertionError, ExceptionGroup)):
        check_that_environment_equals_file(path, planted)


SECRET = "hunter2"
secrets = st.sampled_from(
    [SECRET, f"{SECRET}:{SECRET}@h", f"postgresql://u:{SECRET}@h:x/db", f"mysql://{SECRET}@h/db"]
)
hidden = st.recursive(
    secrets,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=3,
)
token_keys = st.dictionaries(
    st.sampled_from(["secret", "public_key_file", "jwks_file", "key"]), hidden
)
hooks = st.fixed_dictionaries({"webhook": hidden})
with_secrets = st.fixed_dictionaries(
    {},
    optional={
        "ledger": hidden | st.dictionaries(st.sampled_from(["url", "salt", "slat"]), hidden),
        "sequence": hidden | st.dictionaries(st.sampled_from(["url", "dsn"]), hidden),
        "auth": hidden
        | st.fixed_dictionaries(
            {"keys": hidden | st.lists(hidden | st.fixed_dictionaries({"sha256": hidden}))},
            optional={"jwt": hidden | st.lists(hidden | token_keys)},
        ),
        "webhooks": hidden | st.fixed_dictionaries({"secrets": hidden | st.lists(hidden)}),
        "triggers": hidden
        | st.fixed_dictionaries({"t": st.fixed_dictionaries({"webhook": hidden})}),
        "http": st.just({"port": "wrong"}),
    },
)


def check_that_secrets_are_hidden(path: Path, how: settings = quick) -> None:
    @how
    @given(with_secrets)
    def are_hidden(document: dict[str, Any]) -> None:
        result = outcome(path, json.dumps(document))
        assert SECRET not in repr(result)

    are_hidden()


def test_no_secret_is_shown_wherever_it_stands(path: Path) -> None:
    check_that_secrets_are_hidden(path)


def test_the_search_for_secrets_catches_an_error_that_shows_its_input(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def frank(value: object, *, secret: bool = False) -> str:
        return str(value)

    monkeypatch.setattr(mismatches, "describe_found", frank)
    with pytest.raises((AssertionError, ExceptionGroup)):
        check_that_secrets_are_hidden(path, planted)


def check_that_the_schema_takes_what_loads(
    path: Path, schema: dict[str, Any], how: settings = quick
) -> None:
    validator = jsonschema_rs.validator_for(schema)
    taken = {"all": 0, "meters": 0, "views": 0}

    @how
    @given(fitting(ROOT) | folded | mixed(fitting(ROOT) | folded))
    def loaded_means_valid(document: Any) -> None:
        config = outcome(path, json.dumps(document))
        if isinstance(config, Config):
            taken["all"] += 1
            taken["meters"] += bool(config.meters)
            taken["views"] += bool(config.views)
            assert validator.is_valid(document)

    loaded_means_valid()
    assert taken["all"] > 5
    assert all(taken.values()), taken


def test_an_editor_never_marks_what_loads(path: Path) -> None:
    check_that_the_schema_takes_what_loads(path, json_schema())


def test_the_comparison_catches_a_schema_that_forgets_a_setting(path: Path) -> None:
    schema = json_schema()
    del schema["$defs"]["Http"]["properties"]["port"]
    with pytest.raises((AssertionError, ExceptionGroup)):
        check_that_the_schema_takes_what_loads(path, schema, planted)


def test_the_strategies_reach_every_setting() -> None:
    reached: set[str] = set()

    # Many, and the same each time: with few, some setting is missed by chance.
    @settings(quick, max_examples=500, derandomize=True)
    @given(fitting(ROOT))
    def collect(document: dict[str, Any]) -> None:
        waiting = list(document.items())
        for place, value in waiting:
            reached.add(place)
            if isinstance(value, dict):
                waiting += [(f"{place}.{key}", inner) for key, inner in value.items()]

    collect()
    assert {".".join(map(str, place)) for place, _ in LEAVES} <= reached
