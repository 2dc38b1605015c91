"""The history of one run: the operation, and the schemas of its answer."""

from __future__ import annotations

from tidemark.ops.openapi.answers import CURSOR, object_schema, stored_event
from tidemark.ops.openapi.describing import (
    READ_CODES,
    TEXT,
    Describing,
    json_content,
    paging,
    path_parameter,
)
from tidemark.ops.openapi.events import EXAMPLE_RUN, reference
from tidemark.ops.openapi.values import SHOWN_SEQUENCE, SHOWN_TIME, Schema, described


class CausalityOperations(Describing):
    """Describes how one run is read."""

    def paths(self) -> dict[str, Schema]:
        """Every path with its operations."""
        return {"/admin/causality/{key}": {"get": self._get_run()}}

    def _get_run(self) -> Schema:
        return self.operation(
            "getRun",
            "Admin",
            "The history of one run",
            "All events with one `causalityKey`, across streams and tenants, in the order in which "
            "they were committed, and on the first page what the run comes to. A correction says "
            "which event it corrects, and an event by which it was corrected. With a key that is "
            "for some tenants, only their events.\n\nIn the path the key is percent-encoded; a "
            "slash may also stand there as it is.",
            {"description": "A page of the run.", "content": json_content("RunPage")},
            (*READ_CODES, "invalid_path", "unknown_cursor", "not_found"),
            scopes=("read",),
            parameters=[
                path_parameter("key", "The `causalityKey` of the run.", EXAMPLE_RUN),
                *self.query("tenantId"),
                *paging(),
            ],
        )


def causality_schemas() -> dict[str, Schema]:
    """The components that describe the answer, by name."""
    return {
        "RunEvent": _run_event(),
        "Run": _run(),
        "RunPage": object_schema(
            "Events of one run in the order in which they were committed.",
            {
                "run": reference("Run"),
                "events": {"type": "array", "items": reference("RunEvent")},
                "nextCursor": CURSOR,
            },
            ["events", "nextCursor"],
        ),
    }


def _run_event() -> Schema:
    event = stored_event()
    more = {
        "targetSequence": described(
            SHOWN_SEQUENCE, "Of a correction: the `ingressSequence` of the event it corrects."
        ),
        "voidedBy": described(SHOWN_SEQUENCE, "The void that makes this event none."),
        "amendedBy": described(
            SHOWN_SEQUENCE, "The last amend, which says what this event is, unless it is void."
        ),
    }
    return object_schema(
        "One event of a run, and how it hangs together with others. What it does not have is left "
        "out.",
        event["properties"] | more,
        event["required"],
    )


def _run() -> Schema:
    count: Schema = {"type": "integer", "minimum": 1}
    duration: Schema = {
        "type": "integer",
        "minimum": 0,
        "description": "Whole milliseconds from the first to the last.",
    }

    def counted(name: str) -> Schema:
        return {"type": "array", "items": object_schema("", {name: TEXT, "count": count})}

    return object_schema(
        "What a run comes to, among the tenants that are seen.",
        {
            "causalityKey": TEXT,
            "count": count,
            "complete": {
                "type": "boolean",
                "description": "Whether every event is counted; if not, the first ones are.",
            },
            "tenants": counted("tenantId"),
            "streams": counted("stream"),
            "firstSequence": SHOWN_SEQUENCE,
            "lastSequence": SHOWN_SEQUENCE,
            "firstReceivedAt": SHOWN_TIME,
            "lastReceivedAt": SHOWN_TIME,
            "receivedDurationMs": duration,
            "firstOccurredAt": described(SHOWN_TIME, "The earliest, whenever it was received."),
            "lastOccurredAt": described(SHOWN_TIME, "The latest, whenever it was received."),
            "occurredDurationMs": duration,
        },
    )
