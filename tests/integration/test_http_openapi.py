"""`/openapi.json` says what the server does, no more and no less."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest

from tests.integration.http_client import Api, trade, usage
from tests.integration.test_http_access import environment_with_keys
from tests.services.tidemark_server import TidemarkServer
from tidemark.config.sample import sample_text

# A configuration with all there is to declare.
EVERYTHING: Final = """
streams:
  usage:
    kind: usage
    metrics: [seats, bytes]
    fields:
      region: {type: enum, values: [eu, us], description: Where.}
      note: {type: string, required: false}
  everything:
    description: One field of each type.
    identity: [a_string, a_bigint]
    fields:
      a_string: {type: string, max_length: 3}
      an_int: int
      a_bigint: bigint
      a_decimal: {type: decimal, required: false}
      a_boolean: boolean
      a_time: {type: timestamp, required: false}
      a_json: json
      an_enum: {type: enum, values: [first, second], required: false}
  com.example.order-placed:
    fields: {order_id: string}
"""
NOTHING: Final = "streams: {}\n"


@pytest.fixture(scope="module", params=["sample", "everything", "nothing"])
def described(request: pytest.FixtureRequest) -> Iterator[Api]:
    """A server with each configuration."""
    texts = {"sample": sample_text(), "everything": EVERYTHING, "nothing": NOTHING}
    with TidemarkServer(texts[request.param]) as server:
        yield Api(server.base_url, "acme")


@pytest.fixture(scope="module")
def sample() -> Iterator[Api]:
    with TidemarkServer() as server:
        yield Api(server.base_url, "acme")


def document_of(api: Api) -> dict[str, Any]:
    answer = api.get("/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    document: dict[str, Any] = answer.json
    return document


def validator(document: dict[str, Any], schema: dict[str, Any]) -> jsonschema_rs.Validator:
    """Of a schema whose references are into the document."""
    return jsonschema_rs.Draft202012Validator(
        {**schema, "components": document["components"]}, validate_formats=True
    )


def component(document: dict[str, Any], name: str) -> jsonschema_rs.Validator:
    return validator(document, {"$ref": f"#/components/schemas/{name}"})


def requests_in(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    content = document["paths"]["/v1/events"]["post"]["requestBody"]["content"]
    for media_type, described in content.items():
        for example in described.get("examples", {}).values():
            yield media_type, described["schema"], example["value"]


def test_every_schema_is_one(described: Api) -> None:
    document = document_of(described)
    assert document["openapi"] == "3.1.0"
    for name in document["components"]["schemas"]:
        component(document, name)


def test_every_example_fits_its_schema_and_is_accepted(described: Api) -> None:
    document = document_of(described)
    for media_type, schema, value in requests_in(document):
        validator(document, schema).validate(value)
        answer = described.post_raw(json.dumps(value).encode(), media_type)
        assert answer.status == 200, answer
        statuses = {result["status"] for result in answer.json["results"]}
        assert statuses <= {"accepted", "duplicate"}, answer
    for name, schema in document["components"]["schemas"].items():
        for example in schema.get("examples", []):
            component(document, name).validate(example)


def test_the_examples_of_the_sample_show_every_kind_of_event(sample: Api) -> None:
    values = [value for _, _, value in requests_in(document_of(sample))]
    events = [event for value in values if "events" in value for event in value["events"]]
    assert any("metric" in event and "control" not in event for event in events)
    assert any(event.get("stream") == "trades" for event in events)
    assert {event["control"] for event in events if "control" in event} == {"amend", "void"}


def test_what_is_asked_for_in_the_examples_is_found(sample: Api) -> None:
    for _, _, value in requests_in(document_of(sample)):
        if "events" in value:
            sample.post(*value["events"])
    for path, operations in document_of(sample)["paths"].items():
        if "get" not in operations:
            continue
        filled, query = path, {}
        for parameter in operations["get"].get("parameters", []):
            if parameter["in"] == "path":
                filled = filled.replace(f"{{{parameter['name']}}}", parameter["example"])
            elif "example" in parameter:
                query[parameter["name"]] = parameter["example"]
        assert sample.get(filled, **query).status in (200, 307), path
        if path == "/admin/events":
            assert sample.get(filled, **query).json["events"]


def test_the_declared_streams_are_described_field_by_field(sample: Api) -> None:
    document = document_of(sample)
    schemas = document["components"]["schemas"]
    data = schemas["Data.trades"]
    assert set(data["properties"]) == set(trade("acme")["data"])
    assert data["properties"]["side"]["enum"] == ["buy", "sell"]
    assert data["properties"]["symbol"]["maxLength"] == 32
    assert set(data["required"]) == set(data["properties"])
    assert document["x-streams"]["trades"]["identity"] == ["trade_id"]


# Events with the name of the schema that they belong to.
GOOD: Final[list[tuple[str, dict[str, Any]]]] = [
    ("UsageEvent", usage("globex")),
    ("UsageEvent", usage("acme", quantity=-1.5, resourceId="", meta={"a": [1]})),
    ("UsageEvent", usage("acme", ts=None, idempotencyKey="without a time")),
    ("StreamEvent", trade("acme")),
    ("StreamEvent", {**trade("acme", "t-2"), "occurredAt": "2025-01-01T00:00:00+01:00"}),
    ("StreamEvent", {**trade("acme", "t-3"), "occurredAt": None, "causalityKey": "run"}),
    (
        "StreamEvent",
        {
            "stream": "usage",
            "tenantId": "acme",
            "occurredAt": "2025-01-01T00:00:00Z",
            "data": {"metric": "m", "customerRef": "c", "quantity": "1"},
        },
    ),
    ("ControlEvent", {"control": "end", "tenantId": "acme", "stream": "trades"}),
]
BAD: Final[list[tuple[str, dict[str, Any]]]] = [
    ("UsageEvent", usage("acme", metric=None)),
    ("UsageEvent", usage("acme", metric="")),
    ("UsageEvent", usage("acme", customerRef="c" * 1025)),
    ("UsageEvent", usage("acme", ts=None)),
    ("UsageEvent", usage("acme", ts="2025-02-30T00:00:00Z")),
    ("UsageEvent", usage("acme", ts="2025-02-01T00:00:00")),
    ("UsageEvent", usage("acme", quantity="1,5")),
    ("UsageEvent", usage("acme", quantity="1.0123456789")),
    ("UsageEvent", usage("acme", quantity=[])),
    ("UsageEvent", usage("acme", colour="red")),
    ("UsageEvent", usage("acme", meta=[])),
    ("UsageEvent", usage("acme", idempotencyKey="k" * 257)),
    ("StreamEvent", trade("acme", side="hold")),
    ("StreamEvent", trade("acme", symbol="S" * 33)),
    ("StreamEvent", trade("acme", symbol=None)),
    ("StreamEvent", trade("acme", colour="red")),
    ("StreamEvent", {**trade("acme"), "stream": "traids"}),
    ("StreamEvent", {**trade("acme"), "tenantId": 7}),
    ("ControlEvent", {"control": "void", "tenantId": "acme"}),
    ("ControlEvent", {"control": "erase", "tenantId": "acme", "target": "k"}),
    ("ControlEvent", {"control": "end", "tenantId": "acme", "stream": "trades", "target": "k"}),
]


@pytest.mark.parametrize(("name", "event"), GOOD)
def test_what_a_schema_allows_is_accepted(sample: Api, name: str, event: dict[str, Any]) -> None:
    component(document_of(sample), name).validate(event)
    [result] = sample.send(event)
    assert result["status"] in ("accepted", "duplicate"), result


@pytest.mark.parametrize(("name", "event"), BAD)
def test_what_a_schema_does_not_allow_is_rejected(
    sample: Api, name: str, event: dict[str, Any]
) -> None:
    assert not component(document_of(sample), name).is_valid(event)
    [result] = sample.send(event)
    assert result["status"] == "rejected", result


# What schemathesis finds: nothing. That it looks is shown by documents that lie.


# Without a pipeline, whoever waits for a sequence of the ledger waits in vain, and is told so.
SETTINGS: Final = """
request-timeout = 60
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "504"]
"""


def schemathesis(place: str, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Everything it can check, with generated input that is right and that is wrong."""
    (directory / "schemathesis.toml").write_text(SETTINGS)
    return subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", place, "--checks", "all"),
            *("--mode", "all", "--no-color"),
            *options,
            # No case is remembered: deterministic generation keeps no database either.
            *(
                ("--generation-deterministic",)
                if "CI" in os.environ
                else ("--generation-database", "none")
            ),
        ],
        cwd=directory,
        env={**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_schemathesis_finds_nothing(server: TidemarkServer, tmp_path: Path) -> None:
    # Both stores get the systematic cases, one of them generated ones as well: these take longer.
    on_postgres = "TIDEMARK_LEDGER__URL" in server.env
    depth = ("--max-examples", "5") if on_postgres else ("--phases", "examples,coverage")
    found = schemathesis(f"{server.base_url}/openapi.json", tmp_path, *depth)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "No issues found" in found.stdout


def test_schemathesis_finds_nothing_where_keys_are_needed(tmp_path: Path) -> None:
    with TidemarkServer(env=environment_with_keys()) as server:
        found = schemathesis(
            f"{server.base_url}/openapi.json",
            tmp_path,
            *("--phases", "coverage", "--include-path-regex", "^/(v1|admin)/"),
            *("--header", "Authorization: Bearer everything"),
        )
        assert found.returncode == 0, found.stdout + found.stderr
        assert "Traceback" not in server.log_text()


def test_schemathesis_finds_planted_lies(sample: Api, tmp_path: Path) -> None:
    document = document_of(sample)
    operation = document["paths"]["/admin/rejects"]["get"]
    [limit] = [it for it in operation["parameters"] if it["name"] == "limit"]
    limit["schema"]["maximum"] = 5000
    document["components"]["schemas"]["RejectPage"]["required"].append("total")
    del operation["responses"]["400"]
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(document))
    found = schemathesis(
        str(file),
        tmp_path,
        *("--url", sample.base_url, "--include-path", "/admin/rejects"),
        *("--phases", "coverage", "--continue-on-failure"),
    )
    assert found.returncode == 1, found.stdout + found.stderr
    assert "Schema-valid request rejected" in found.stdout
    assert "Response violates schema" in found.stdout
    assert "Undocumented status code" in found.stdout
