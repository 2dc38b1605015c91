"""Schemas and examples of what can be sent, for the streams of the running configuration."""

from __future__ import annotations

from typing import Any, Final

from tidemark.config.model import Config, StreamConfig
from tidemark.ingress.cloudevents import SPECVERSION
from tidemark.ops.openapi.values import (
    EXAMPLE_TIME,
    Schema,
    example_value,
    field_schema,
    key_text,
    name_text,
    optional,
    sent_decimal,
    sent_time,
    text_of,
)

EXAMPLE_TENANT: Final = "acme"
EXAMPLE_KEY: Final = "order-1042"
EXAMPLE_RUN: Final = "checkout-7"

_NO_USAGE: Final = "No usage stream is declared here, so such an event is rejected."


def reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def event_schemas(config: Config) -> dict[str, Schema]:
    """The components that describe requests, by name."""
    schemas = {"Anything": _anything()}
    plain = []
    for name, stream in config.streams.items():
        if stream.kind == "usage":
            schemas["UsageEvent"] = _usage_event(stream, config)
            plain.append("UsageEvent")
        schemas[f"Data.{name}"] = _data(name, stream, config)
        schemas[f"StreamEvent.{name}"] = _stream_event(name, stream, config)
    if config.streams:
        schemas["StreamEvent"] = _choice(
            "Stream event",
            "An event of a declared stream.",
            "stream",
            "StreamEvent",
            list(config.streams),
        )
        schemas["CloudEvent"] = _cloud_event(config)
        plain += ["StreamEvent"]
    schemas |= _control_events(config)
    plain.append("ControlEvent")
    schemas["Event"] = {
        "description": "One event, of any kind.",
        "anyOf": [*map(reference, plain), reference("Anything")],
    }
    schemas["EventsRequest"] = {
        "type": "object",
        "description": "Events of any kinds, in the order in which they are to be stored.",
        "properties": {
            "events": {
                "type": "array",
                "minItems": 1,
                "items": reference("Event"),
                "description": f"At most {config.http.max_events} (`http.max_events`).",
            }
        },
        "required": ["events"],
        "additionalProperties": False,
    }
    return schemas


def cloud_event_reference(config: Config) -> Schema:
    """One CloudEvent in a request."""
    known = [reference("CloudEvent")] if config.streams else []
    return {"anyOf": [*known, reference("Anything")]}


def example_usage(stream: StreamConfig) -> dict[str, Any]:
    """A usage event that the running server accepts."""
    event: dict[str, Any] = {
        "tenantId": EXAMPLE_TENANT,
        "metric": stream.metrics[0] if stream.metrics else "api_calls",
        "customerRef": "cus_42",
        "ts": EXAMPLE_TIME,
        "quantity": "12.5",
    }
    meta = {name: example_value(field, name) for name, field in stream.fields.items()}
    return event | {"meta": meta or {"region": "eu-central"}}


def example_event(name: str, stream: StreamConfig) -> dict[str, Any]:
    """A stream event that the running server accepts."""
    if stream.kind == "usage":
        data = {k: v for k, v in example_usage(stream).items() if k not in ("tenantId", "ts")}
    else:
        data = {field: example_value(it, field) for field, it in stream.fields.items()}
    event = {
        "stream": name,
        "tenantId": EXAMPLE_TENANT,
        "occurredAt": EXAMPLE_TIME,
        "data": data,
    }
    if stream.kind != "usage" and not stream.identity:
        event["idempotencyKey"] = f"{name}-1"
    return event


def example_cloud_event(name: str, stream: StreamConfig) -> dict[str, Any]:
    return {
        "specversion": SPECVERSION,
        "id": "8f14e45f-1",
        "source": "/checkout",
        "type": name,
        "time": EXAMPLE_TIME,
        "tenantid": EXAMPLE_TENANT,
        "datacontenttype": "application/json",
        "data": example_event(name, stream)["data"],
    }


def example_corrections(stream: StreamConfig) -> list[dict[str, Any]]:
    """An event, then its correction, then a second thought about it."""
    run = {"causalityKey": EXAMPLE_RUN}
    usage = example_usage(stream) | {"idempotencyKey": EXAMPLE_KEY} | run
    changed = {name: usage[name] for name in ("ts", "meta")} | {"quantity": "10"}
    correction = {"tenantId": EXAMPLE_TENANT, "target": EXAMPLE_KEY} | run
    return [
        usage,
        {
            "control": "amend",
            **correction,
            "event": changed,
            "reason": "counted twice by the gateway",
        },
        {"control": "void", **correction, "reason": "was a test"},
    ]


def _anything() -> Schema:
    return {
        "title": "Anything else",
        "description": "Any other value is no reason to refuse the request: its result says "
        "`rejected` and why, and the events beside it are taken all the same.",
    }


def _envelope(config: Config) -> dict[str, Schema]:
    limits = config.ingest
    return {
        "tenantId": name_text(limits, "Whose event it is."),
        "idempotencyKey": optional(
            key_text(
                "The key that makes two events of a tenant the same event. Without it one is "
                "derived from what identifies the event."
            )
        ),
        "causalityKey": optional(
            key_text("What the event is part of: a workflow run, a job, a correlation id.")
        ),
        "source": optional(text_of(limits, "Who sent it.")),
    }


def _usage_content(stream: StreamConfig, config: Config) -> dict[str, Schema]:
    limits = config.ingest
    metric = name_text(limits, "What was used.")
    if stream.metrics is not None:
        metric = {"type": "string", "enum": stream.metrics, "description": "What was used."}
    return {
        "metric": metric,
        "customerRef": name_text(limits, "Who used it."),
        "resourceId": {
            "type": ["string", "null"],
            "maxLength": limits.max_string_length,
            "description": "With what it was used. Left out is not the same as empty.",
        },
        "ts": sent_time("When it was used; needed unless there is an `idempotencyKey`."),
        "quantity": sent_decimal("How much."),
        "meta": _meta(stream, config),
    }


def _meta(stream: StreamConfig, config: Config) -> Schema:
    if not stream.fields:
        return {"type": ["object", "null"], "description": "Anything else worth keeping."}
    return _fields_schema(stream, config, "The declared fields of the stream.")


def _fields_schema(stream: StreamConfig, config: Config, text: str) -> Schema:
    return {
        "type": "object",
        "description": text,
        "properties": {
            name: field_schema(field, config.ingest) for name, field in stream.fields.items()
        },
        "required": [name for name, field in stream.fields.items() if field.required],
        "additionalProperties": False,
    }


def _usage_event(stream: StreamConfig, config: Config) -> Schema:
    identity = "Two with the same tenantId, metric, customerRef, resourceId and ts are one event."
    return {
        "type": "object",
        "title": "Usage event",
        "description": f"So much of a metric, used by a customer at a time. {identity}",
        "properties": {
            "tenantId": _envelope(config)["tenantId"],
            **_usage_content(stream, config),
            **_envelope(config),
        },
        "required": ["tenantId", "metric", "customerRef", "quantity", *_needs_meta(stream)],
        # Without a time there is nothing to derive a key from.
        "anyOf": [{"required": ["ts"]}, {"required": ["idempotencyKey"]}],
        "additionalProperties": False,
        "examples": [example_usage(stream)],
    }


def _needs_meta(stream: StreamConfig) -> list[str]:
    return ["meta"] if any(field.required for field in stream.fields.values()) else []


def _data(name: str, stream: StreamConfig, config: Config) -> Schema:
    if stream.kind == "events":
        return _fields_schema(stream, config, stream.description or f"The data of `{name}`.")
    content = _usage_content(stream, config)
    content["ts"] = optional(content["ts"])
    return {
        "type": "object",
        "description": stream.description or "The data of a usage event.",
        "properties": content,
        "required": ["metric", "customerRef", "quantity", *_needs_meta(stream)],
        "additionalProperties": False,
    }


def _stream_event(name: str, stream: StreamConfig, config: Config) -> Schema:
    needs_key = stream.kind == "events" and not stream.identity
    said = stream.description or f"An event of the stream `{name}`."
    if stream.identity:
        fields = ", ".join(f"`{field}`" for field in stream.identity)
        said += f" Two of one tenant with the same {fields} are one event."
    elif needs_key:
        said += " The stream declares no identity, so each event brings an `idempotencyKey`."
    return {
        "type": "object",
        "title": f"Stream event: {name}",
        "description": said,
        "properties": {
            "stream": {"const": name},
            **_envelope(config),
            "occurredAt": optional(
                sent_time("When it happened; left out, the time at which it was received.")
            ),
            "data": reference(f"Data.{name}"),
        },
        "required": ["stream", "tenantId", "data", *(["idempotencyKey"] if needs_key else [])],
        "additionalProperties": False,
        "examples": [example_event(name, stream)],
    }


def _choice(title: str, text: str, property_name: str, prefix: str, names: list[str]) -> Schema:
    return {
        "title": title,
        "description": text,
        "oneOf": [reference(f"{prefix}.{name}") for name in names],
        "discriminator": {
            "propertyName": property_name,
            "mapping": {name: f"#/components/schemas/{prefix}.{name}" for name in names},
        },
    }


def _control_events(config: Config) -> dict[str, Schema]:
    usage = next((s for s in config.streams.values() if s.kind == "usage"), None)
    reason = text_of(config.ingest, "Why, for those who will ask.")
    target = key_text("The `idempotencyKey` of the event that is meant, of the same tenant.")
    adjust = _usage_content(usage or StreamConfig(kind="usage"), config)
    kinds: dict[str, tuple[str, dict[str, Schema], list[str]]] = {
        "void": (
            "An earlier event no longer counts. This is final.",
            {"target": target, "reason": optional(reason)},
            ["target"],
        ),
        "amend": (
            "An earlier event counts with other content. Tenant, stream, metric and customer "
            "stay what they are; of several amends the last one counts.",
            {
                "target": target,
                "event": {
                    "type": "object",
                    "description": "The new content: `ts`, `quantity`, `resourceId` and `meta` of "
                    "a usage event, or `data` and `occurredAt` of a stream event.",
                },
                "reason": optional(reason),
            },
            ["target", "event"],
        ),
        "adjust": (
            "An operator's adjustment of one period. " + ("" if usage else _NO_USAGE),
            {
                "metric": adjust["metric"],
                "customerRef": adjust["customerRef"],
                "periodStart": sent_time("The start of the period."),
                "quantity": adjust["quantity"],
                "reason": reason,
            },
            ["metric", "customerRef", "periodStart", "quantity", "reason"],
        ),
        "end": (
            "A stream is finished for this tenant.",
            {
                "stream": {"type": "string", "description": "The stream that ends."},
                "reason": optional(reason),
            },
            ["stream"],
        ),
    }
    schemas = {
        f"ControlEvent.{name}": {
            "type": "object",
            "title": f"Control event: {name}",
            "description": text.strip(),
            "properties": {"control": {"const": name}, **_envelope(config), **properties},
            "required": ["control", "tenantId", *required],
            "additionalProperties": False,
        }
        for name, (text, properties, required) in kinds.items()
    }
    text = "An event that changes the meaning of others. It needs a key with the scope `control`."
    return schemas | {
        "ControlEvent": _choice("Control event", text, "control", "ControlEvent", list(kinds))
    }


def _cloud_event(config: Config) -> Schema:
    limits = config.ingest
    first_name, first = next(iter(config.streams.items()))
    return {
        "type": "object",
        "title": "CloudEvent 1.0",
        "description": "The same events in another envelope. Extensions that are not listed here, "
        "`subject` and `dataschema` are the transport's and are not kept.",
        "properties": {
            "specversion": {"const": SPECVERSION},
            "id": text_of(limits, "With `source`, the identity of an event of a stream that "
                          "declares none."),
            "source": text_of(limits, "Who sent it."),
            "type": {
                "type": "string",
                "enum": list(config.streams),
                "description": "The stream.",
            },
            "time": optional(sent_time("When it happened.")),
            "tenantid": optional(
                name_text(limits, "Whose event it is, unless `data.tenantId` says it.")
            ),
            "idempotencykey": optional(key_text("As `idempotencyKey` of a plain event.")),
            "causalitykey": optional(key_text("As `causalityKey` of a plain event.")),
            "datacontenttype": {
                "type": ["string", "null"],
                "description": "`application/json`, or any other type that ends in `json`.",
            },
            "data": {
                "type": ["object", "null"],
                "description": "The data of the stream; `tenantId` may stand in it.",
            },
            "data_base64": {
                "type": ["string", "null"],
                "description": "The data as base64 of its JSON text, in place of `data`.",
            },
        },
        "required": ["specversion", "id", "source", "type"],
        "examples": [example_cloud_event(first_name, first)],
    }  # fmt: skip
