"""How the server is, and how far everything that follows the ledger: operations and schemas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidemark.mirror.telling import MIRROR
from tidemark.ops.copies import CLICKHOUSE, PARQUET
from tidemark.ops.openapi.answers import object_schema
from tidemark.ops.openapi.describing import QUERY_CODES, TEXT, Describing, json_content
from tidemark.ops.openapi.events import reference
from tidemark.ops.openapi.values import SHOWN_SEQUENCE, SHOWN_TIME, Schema, described
from tidemark.ops.parts import STATES

_STATE: Final[Schema] = {"enum": list(STATES)}
_READY_PARTS: Final = ("ledger", "clock", "sequence", "pipeline", MIRROR, "landing", "live")
_FOLLOWERS: Final = (
    *("ledger", "clock", "sequence", MIRROR, "pipeline", PARQUET, CLICKHOUSE),
    "live",
)


class HealthOperations(Describing):
    """Describes what monitors and orchestrators ask."""

    def paths(self) -> dict[str, Schema]:
        """Every path with its operations."""
        return {
            "/healthz": {"get": self._healthz()},
            "/readyz": {"get": self._readyz()},
            "/admin/event-health": {"get": self._event_health()},
            "/metrics": {"get": self._metrics()},
        }

    def _healthz(self) -> Schema:
        return self.operation(
            "isAlive",
            "Health",
            "Is the process alive?",
            "Says nothing about the ledger.",
            {"description": "Yes.", "content": json_content("Health")},
        )

    def _readyz(self) -> Schema:
        operation = self.operation(
            "isReady",
            "Health",
            "Can events be taken?",
            "Looks at the ledger, the clock, the sequence database, if there is one, and at how "
            "far the pipeline, the mirror, landing and delivery are, without which events can be "
            "taken all the same.",
            {"description": "Yes, perhaps degraded.", "content": json_content("Readiness")},
        )
        operation["responses"]["503"] = {
            "description": "No: a part is unavailable, and its `reason` says why.",
            "content": json_content("Readiness"),
        }
        return operation

    def _event_health(self) -> Schema:
        return self.operation(
            "getEventHealth",
            "Admin",
            "How far is everything?",
            "The highest sequence of the ledger, and which of it is mirrored, in the views, "
            "landed and delivered by triggers; how far each is behind, in events and in seconds, "
            "and what keeps it from going on; whether the sequence database answers, and whether "
            "what is live is served. Answers 200 whatever it finds.",
            {
                "description": "Every part that follows the ledger.",
                "content": json_content("EventHealth"),
            },
            QUERY_CODES,
            scopes=("read",),
        )

    def _metrics(self) -> Schema:
        return self.operation(
            "getMetrics",
            "Health",
            "Metrics",
            "In the text format of Prometheus.",
            {"description": "All metrics.", "content": {"text/plain": {"schema": TEXT}}},
        )


def health_schemas() -> dict[str, Schema]:
    """The components that describe these answers, by name."""
    part = reference("Part")
    delivery = {
        **_part_properties(),
        "slowestTrigger": described(
            TEXT, "The trigger that is furthest behind, with its webhooks."
        ),
        "evaluatedSequence": described(
            SHOWN_SEQUENCE, "The highest sequence that every enabled trigger has evaluated."
        ),
        "evaluationLagSeconds": {
            "type": "number",
            "minimum": 0,
            "description": "How long the oldest commit has waited that one has not evaluated.",
        },
        "webhooks": object_schema(
            "Events of all triggers that are not delivered.",
            {
                "waiting": described(SHOWN_SEQUENCE, "Those that are still to be delivered."),
                "dead": described(SHOWN_SEQUENCE, "Those that were given up."),
                "oldestWaitingSeconds": {
                    "type": "number",
                    "minimum": 0,
                    "description": "How old the oldest is, by its source timestamp, that an "
                    "enabled trigger has still to deliver.",
                },
            },
            ["waiting", "dead"],
        ),
    }
    return {
        "Health": object_schema("The process is alive.", {"status": {"const": "ok"}}),
        "Part": object_schema(
            "One part and, unless it is ready, why.", _part_properties(), ["state"]
        ),
        "DeliveryPart": object_schema(
            "How far triggers and their webhooks are, and what of these is not delivered.",
            delivery,
            ["state"],
        ),
        "Readiness": object_schema(
            "The worst state of all parts, and each of them.",
            {
                "status": _STATE,
                "parts": _parts(_READY_PARTS, part, delivery=reference("DeliveryPart")),
            },
        ),
        "EventHealth": object_schema(
            "The worst state of all parts, and each of them.",
            {
                "status": _STATE,
                "checkedAt": described(SHOWN_TIME, "When it was looked at."),
                "parts": _parts(_FOLLOWERS, part, delivery=reference("DeliveryPart")),
            },
        ),
    }


def _parts(names: Iterable[str], part: Schema, **others: Schema) -> Schema:
    return object_schema("", {**dict.fromkeys(names, part), **others})


def _part_properties() -> Schema:
    return {
        "state": _STATE,
        "reason": TEXT,
        "lastSequence": described(
            SHOWN_SEQUENCE,
            "The highest sequence in the ledger; for a part that follows it, the highest in that.",
        ),
        "receivedAt": described(SHOWN_TIME, "The time of that commit."),
        "lagEvents": described(SHOWN_SEQUENCE, "Events of the ledger that are not in it yet."),
        "lagSeconds": {
            "type": "number",
            "minimum": 0,
            "description": "How long the oldest commit that is not in it has waited.",
        },
        "toldAt": described(
            SHOWN_TIME, "When the process of a mirror or of landing last said how far it is."
        ),
    }
