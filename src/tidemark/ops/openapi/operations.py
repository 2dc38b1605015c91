"""The operations: what can be called, with what, and all that can be answered."""

from __future__ import annotations

from typing import Final

from tidemark.config.access_model import SCOPES
from tidemark.ingress.media import BodyForm
from tidemark.ops.openapi.answers import EXAMPLE_RESULTS
from tidemark.ops.openapi.describing import (
    QUERY_CODES,
    READ_CODES,
    TEXT,
    Describing,
    json_content,
    paging,
    path_parameter,
)
from tidemark.ops.openapi.events import (
    EXAMPLE_KEY,
    EXAMPLE_TENANT,
    cloud_event_reference,
    example_cloud_event,
    example_corrections,
    example_event,
    example_usage,
    reference,
)
from tidemark.ops.openapi.values import Schema
from tidemark.ops.parameters import EVENT_PARAMETERS

INGEST_CODES: Final = (
    *QUERY_CODES,
    "malformed_json",
    "not_utf8",
    "invalid_body",
    "no_events",
    "too_deep",
    "body_timeout",
    "body_too_large",
    "too_many_events",
    "unsupported_media_type",
    "unsupported_content_encoding",
    "cloudevents_binary_mode",
    "queue_full",
    "ledger_unavailable",
    "clock_leap",
)


class Operations(Describing):
    """Describes the operations of a server with this configuration."""

    def paths(self) -> dict[str, Schema]:
        """Every path with its operations."""
        return {
            "/v1/events": {"post": self._post_events()},
            "/admin/events": {"get": self._list_events()},
            "/admin/events/{tenantId}/{key}": {"get": self._get_event()},
            "/admin/rejects": {"get": self._list_rejects()},
            "/admin/clock/confirm": {"post": self._confirm_clock()},
            "/openapi.json": {"get": self._openapi()},
            "/docs": {"get": self._docs()},
            "/": {"get": self._root()},
        }

    def websockets(self) -> dict[str, Schema]:
        """Websockets, for which OpenAPI has no words of its own."""
        return {
            "/admin/events/tail": {
                "summary": "Follow events as they are committed",
                "description": "Sends every event in order as it is committed, from any sequence "
                "on. Each message is a JSON text: `{\"type\": \"event\", \"event\": {...}}` with "
                "an event as `GET /admin/events` shows it, or `{\"type\": \"progress\", "
                "\"ingressSequence\": \"41\"}`, which says that everything up to there was sent "
                "(after each commit, and every 10 s).\n\nTo resume, open it with `after` set to "
                "the last sequence that was seen. When the server stops, it closes with 1001; "
                "while the ledger is away, a tail waits. A handshake that is refused is answered "
                "with the one error shape.",
                "x-scopes": ["read"],
                "parameters": self.query(*EVENT_PARAMETERS, "after"),
            }
        }  # fmt: skip

    def _post_events(self) -> Schema:
        http = self._config.http
        return self.operation(
            "sendEvents",
            "Events",
            "Send events",
            "Takes usage events, stream events and control events, in any mixture, or "
            "CloudEvents. The answer comes when what it says is durable.\n\n"
            "**One bad event never fails its neighbours.** The request is answered with 200 and "
            "one result for each event, in order: `accepted`, `duplicate` (with the place of the "
            "original), `conflict` (same key, other content) or `rejected` (with the reason). "
            "All accepted events of a request are committed together, in request order.\n\n"
            "Sending the same request again is always safe. "
            f"At most {http.max_events} events and {http.max_body_bytes} bytes a request.",
            {
                "description": "One result for each event.",
                "content": json_content("IngestAnswer", example=EXAMPLE_RESULTS),
            },
            INGEST_CODES,
            scopes=("ingest", "control"),
            requestBody={"required": True, "content": self._event_bodies()},
        )

    def _event_bodies(self) -> Schema:
        streams = self._config.streams
        usage = next((s for s in streams.values() if s.kind == "usage"), None)
        others = {name: s for name, s in streams.items() if s.kind != "usage"}
        plain: dict[str, Schema] = {}
        if usage is not None:
            plain["usage"] = _example("Usage", {"events": [example_usage(usage)]})
        for name, stream in others.items():
            plain[name] = _example(
                stream.description or name, {"events": [example_event(name, stream)]}
            )
        if usage is not None:
            corrections = {"events": example_corrections(usage)}
            plain["corrections"] = _example("An event and its corrections", corrections)
        structured = {
            name: _example(f"An event of {name}", example_cloud_event(name, stream))
            for name, stream in streams.items()
        }
        batch = [example_cloud_event(name, stream) for name, stream in streams.items()]
        one = cloud_event_reference(self._config)
        contents: dict[BodyForm, Schema] = {
            BodyForm.EVENTS: {"schema": reference("EventsRequest"), "examples": plain},
            BodyForm.CLOUDEVENT: {"schema": one, "examples": structured},
            BodyForm.CLOUDEVENT_BATCH: {
                "schema": {"type": "array", "minItems": 1, "items": one},
                "examples": {"batch": _example("A batch", batch)} if batch else {},
            },
        }
        for content in contents.values():
            if not content["examples"]:
                del content["examples"]
        return {form.value: content for form, content in contents.items()}

    def _list_events(self) -> Schema:
        return self.operation(
            "listEvents",
            "Admin",
            "List events",
            "Events in the order in which they were committed, filtered. Ranges include their "
            "start and exclude their end. With a key that is for some tenants, only theirs.",
            {"description": "A page of events.", "content": json_content("EventPage")},
            (*READ_CODES, "unknown_cursor"),
            scopes=("read",),
            parameters=[*self.query(*EVENT_PARAMETERS), *paging()],
        )

    def _get_event(self) -> Schema:
        return self.operation(
            "getEvent",
            "Admin",
            "Find one event by its key",
            "The event that a tenant's `idempotencyKey` stands for, as it was answered by "
            "`POST /v1/events`. In the path both are percent-encoded.",
            {"description": "The event.", "content": json_content("StoredEvent")},
            ("not_found", "invalid_path", "ledger_unavailable", "storage_refused", *QUERY_CODES),
            scopes=("read",),
            parameters=[
                path_parameter("tenantId", "The tenant.", EXAMPLE_TENANT),
                path_parameter("key", "The event's `idempotencyKey`.", EXAMPLE_KEY),
            ],
        )

    def _list_rejects(self) -> Schema:
        return self.operation(
            "listRejects",
            "Admin",
            "List refused events",
            "Why was this not stored? The last "
            f"{self._config.ingest.reject_log_size} rejects and conflicts, the newest first.",
            {"description": "A page of refused events.", "content": json_content("RejectPage")},
            (*READ_CODES, "unknown_cursor"),
            scopes=("read",),
            parameters=[*self.query("tenantId", "code", "idempotencyKey"), *paging()],
        )

    def _confirm_clock(self) -> Schema:
        return self.operation(
            "confirmClock",
            "Admin",
            "Confirm that the clock is right",
            "After a leap of the clock ingest is held, because order can never be taken back. "
            "This says that the time is right as it is now. Otherwise it changes nothing.",
            {"description": "Confirmed.", "content": json_content("ClockConfirmed")},
            ("ledger_unavailable", "storage_refused", *QUERY_CODES),
            scopes=("admin",),
        )

    def _openapi(self) -> Schema:
        return self.operation(
            "getOpenapi",
            "About",
            "This description",
            "OpenAPI 3.1, with the streams of the running configuration.",
            {
                "description": "The document.",
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
        )

    def _docs(self) -> Schema:
        return self.operation(
            "getDocs",
            "About",
            "This description, for people",
            "One page that needs nothing from elsewhere.",
            {"description": "The page.", "content": {"text/html": {"schema": TEXT}}},
        )

    def _root(self) -> Schema:
        return self.operation(
            "getRoot",
            "About",
            "To the description",
            "",
            {"description": "To `/docs`.", "headers": {"Location": {"schema": TEXT}}},
            status=307,
        )


def security_schemes() -> Schema:
    """How a caller names its key."""
    scopes = " ".join(f"`{scope}`: {meaning}" for scope, meaning in SCOPES.items())
    return {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "description": f"An API key of `auth.keys`. It has scopes and tenants. {scopes}",
        }
    }


def _example(summary: str, value: object) -> Schema:
    return {"summary": summary, "value": value}
