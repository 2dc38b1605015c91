"""What is written about the HTTP API, in the OpenAPI document and in the docs, is complete."""

from __future__ import annotations

import ast
import base64
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

import tidemark
from tests.integration.http_client import Api
from tidemark.config.load import load_config
from tidemark.ingress.endpoint import ErrorBody, IngestAnswer, PlacedResult, RefusedResult
from tidemark.ledger.event_json import EventView, RejectView
from tidemark.ops.adjustments import AdjustmentEntry
from tidemark.ops.causality import RunEventView, RunPage, RunView
from tidemark.ops.delivery import DeliveryPart
from tidemark.ops.openapi import openapi_document
from tidemark.ops.openapi.codes import REQUEST_CODES
from tidemark.ops.parts import Part
from tidemark.ops.pipeline_errors import PipelineErrorEntry
from tidemark.ops.usage import UsageEntry

SOURCE: Final = Path(tidemark.__file__).parent
PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "http-api.md"
# Errors that a request can be answered with, though no line gives them a code of their own.
ANSWERED: Final = {
    "TidemarkError",
    "AccessDenied",
    "NotFound",
    "LedgerUnavailable",
    "QueueFull",
    "ClockLeap",
    "StorageRefused",
    "ViewsUnavailable",
    "DefinitionChanged",
    "_MethodNotAllowed",
}
SAMPLE: Final = load_config(SOURCE / "config" / "sample.yaml", {})


@cache
def source_nodes() -> list[ast.AST]:
    """Every node of every module of the server."""
    return [
        node
        for path in sorted(SOURCE.rglob("*.py"))
        if not {"client", "cli"}.intersection(path.relative_to(SOURCE).parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]


def calls(*names: str) -> Iterator[ast.Call]:
    for node in source_nodes():
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and isinstance(called, ast.Name) and called.id in names:
            yield node


def routes() -> set[tuple[str, str]]:
    """Method and path of every route that the composition root makes."""
    found = set()
    for call in calls("Route", "SocketRoute"):
        texts = [arg.value for arg in call.args[:2] if isinstance(arg, ast.Constant)]
        assert isinstance(call.func, ast.Name)
        method, path = texts if call.func.id == "Route" else ("WS", texts[0])
        # GraphQL describes itself, and has a page of its own in the reference.
        if not str(path).startswith("/graphql"):
            # That a value may hold slashes is told in words.
            found.add((str(method), str(path).replace("...}", "}")))
    assert len(found) > 10
    return found


def codes_in_source() -> set[str]:
    """Every code with which the source can refuse a request."""
    found = set()
    for call in calls("RequestError", "AccessDenied"):
        codes = [keyword.value for keyword in call.keywords if keyword.arg == "code"]
        found |= {str(code.value) for code in codes if isinstance(code, ast.Constant)}
    for node in source_nodes():
        if isinstance(node, ast.ClassDef) and node.name in ANSWERED:
            for line in node.body:
                if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant):
                    found.add(str(line.value.value))
    return found


def test_every_route_is_in_the_openapi_document_and_no_other() -> None:
    document = openapi_document(SAMPLE)
    described = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    described |= {("WS", path) for path in document["x-websockets"]}
    assert described == routes()


def test_every_route_is_in_the_docs_and_no_other() -> None:
    page = PAGE.read_text(encoding="utf-8")
    written = re.findall(r"^\| \[?`([A-Z]+) (/\S*)`", page, re.MULTILINE)
    assert set(written) == routes()


def test_every_code_is_in_the_table_and_no_other() -> None:
    assert codes_in_source() == set(REQUEST_CODES)


def test_every_code_is_in_the_docs_with_its_status_and_meaning() -> None:
    page = PAGE.read_text(encoding="utf-8")
    written = re.findall(r"^\| `(\w+)` \| ([0-9]{3}) \| (.+) \|$", page, re.MULTILINE)
    assert {code: (int(status), meaning) for code, status, meaning in written} == REQUEST_CODES


def test_every_code_is_an_answer_of_some_operation_or_explains_why_not() -> None:
    document = openapi_document(SAMPLE)
    with_keys = openapi_document(
        SAMPLE.model_copy(update={"auth": SAMPLE.auth.model_copy(update={"keys": [object()]})})
    )
    said = "".join(
        response["description"]
        for one in (document, with_keys)
        for methods in one["paths"].values()
        for operation in methods.values()
        for response in operation["responses"].values()
    )
    silent = {code for code in REQUEST_CODES if f"`{code}`" not in said}
    # An operation cannot be called by the wrong method, nor can a websocket be one; and a
    # connection is refused before it is known what is called.
    connection = {"headers_too_large", "too_many_connections"}
    assert silent == {"method_not_allowed", "websocket_only", "too_many_tails"} | connection


def test_the_schemas_of_answers_have_the_fields_that_answers_have() -> None:
    schemas = openapi_document(SAMPLE)["components"]["schemas"]
    for schema, struct in (
        (schemas["IngestAnswer"], IngestAnswer),
        (schemas["Result.accepted"], PlacedResult),
        (schemas["Result.conflict"], RefusedResult),
        (schemas["Error"], ErrorBody),
        (schemas["StoredEvent"], EventView),
        (schemas["RunPage"], RunPage),
        (schemas["RunEvent"], RunEventView),
        (schemas["Run"], RunView),
        (schemas["Reject"], RejectView),
        (schemas["UsageEntry"], UsageEntry),
        (schemas["AdjustmentEntry"], AdjustmentEntry),
        (schemas["PipelineErrorEntry"], PipelineErrorEntry),
        (schemas["Part"], Part),
        (schemas["DeliveryPart"], DeliveryPart),
    ):
        fields = msgspec.structs.fields(struct)
        assert set(schema["properties"]) == {field.encode_name for field in fields}
        if struct is not RefusedResult:
            required = {field.encode_name for field in fields if field.required}
            assert set(schema["required"]) == required


def test_the_docs_page_needs_nothing_from_elsewhere_and_lets_nothing_in(sqlite_api: Api) -> None:
    answer = sqlite_api.get("/docs")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = answer.body.decode()
    policy = dict(
        directive.split(" ", 1)
        for directive in answer.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for element, directive in (("style", "style-src"), ("script", "script-src")):
        [inside] = re.findall(f"<{element}>(.*?)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert policy[directive] == f"'sha256-{digest}'"
    # The name space of SVG is no address.
    addresses = set(re.findall(r"https?://[^\s'\"]+", page)) - {"http://www.w3.org/2000/svg"}
    assert addresses == set()
    assert re.findall(r"""\b(?:src|href)=["'](?!#|data:|openapi\.json)""", page) == []
    assert " style=" not in page
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_root_leads_to_the_docs(sqlite_api: Api) -> None:
    answer = sqlite_api.get("/")
    assert (answer.status, answer.headers["location"], answer.body) == (307, "docs", b"")
