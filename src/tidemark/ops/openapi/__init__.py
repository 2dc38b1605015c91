"""The OpenAPI 3.1 document of a server, made from its configuration.

codes        how a request can be refused
values       single values: keys, times, numbers, the fields of a stream
events       what can be sent
answers      what is answered
describing   the parts of which operations are described
operations   what can be called
causality    … to read the history of one run
derived      … to read what the pipeline has made
explanations … to learn what became of one event
health       … to learn how the server is, and how far everything is
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from tidemark.config import Config
from tidemark.ops.openapi.answers import answer_schemas
from tidemark.ops.openapi.causality import CausalityOperations, causality_schemas
from tidemark.ops.openapi.codes import REQUEST_CODES
from tidemark.ops.openapi.derived import DerivedOperations, derived_schemas
from tidemark.ops.openapi.events import event_schemas
from tidemark.ops.openapi.explanations import ExplainOperations, explanation_schemas
from tidemark.ops.openapi.health import HealthOperations, health_schemas
from tidemark.ops.openapi.operations import Operations, security_schemes

__all__ = ["openapi_document"]

_DESCRIPTION = """\
Every event has one identity, one place in order, one effect.

Send events to `POST /v1/events`, as often as you like: the same event is stored once. Each gets a
gapless `ingressSequence` in the order of commits. Times are RFC 3339; those shown have six
fractional digits and `Z`. Numbers of 64 bits are decimal strings.

Errors have one shape everywhere: `code` (stable, for programs), `message`, `hint`, and `field`
where one is at fault."""


def openapi_document(config: Config) -> dict[str, Any]:
    """The whole document, ready for JSON."""
    operations = Operations(config)
    schemas = {
        **event_schemas(config),
        **answer_schemas(),
        **causality_schemas(),
        **derived_schemas(),
        **explanation_schemas(),
        **health_schemas(),
    }
    components: dict[str, Any] = {"schemas": schemas}
    if config.auth.keys:
        components["securitySchemes"] = security_schemes()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidemark",
            "version": version("tidemark"),
            "summary": "An event pipeline with one identity, one order, one effect.",
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This server"}],
        "tags": [
            {"name": "Events", "description": "Sending."},
            {"name": "Usage", "description": "What was counted."},
            {"name": "Admin", "description": "Looking at what was sent, and operating."},
            {"name": "Health", "description": "For monitors and orchestrators."},
            {"name": "About", "description": "This description."},
        ],
        "paths": {
            **operations.paths(),
            **CausalityOperations(config).paths(),
            **DerivedOperations(config).paths(),
            **ExplainOperations(config).paths(),
            **HealthOperations(config).paths(),
        },
        "components": components,
        "x-websockets": operations.websockets(),
        "x-request-codes": {code: it._asdict() for code, it in REQUEST_CODES.items()},
        "x-streams": {
            name: {
                "kind": stream.kind,
                "description": stream.description or "",
                "identity": list(stream.identity),
                "schema": f"#/components/schemas/Data.{name}",
            }
            for name, stream in config.streams.items()
        },
    }
