"""What became of one event, and why: the operation, and the schema of its answer."""

from __future__ import annotations

from typing import Final, get_args

from tidemark.config.window_model import LATE_POLICIES
from tidemark.live.triggers.port import STATUSES
from tidemark.live.triggers.transitions import EventType
from tidemark.ops.explaining.finding import EXPLAIN_PARAMETERS
from tidemark.ops.explaining.table_verdicts import TableOutcome
from tidemark.ops.explaining.triggering import Firing
from tidemark.ops.explaining.verdicts import Outcome
from tidemark.ops.explaining.window_verdicts import WindowOutcome, WindowState
from tidemark.ops.openapi.answers import object_schema
from tidemark.ops.openapi.describing import READ_CODES, TEXT, Describing, json_content
from tidemark.ops.openapi.events import reference
from tidemark.ops.openapi.values import SHOWN_SEQUENCE, SHOWN_TIME, Schema, described
from tidemark.pipeline.time.plans import PLANS

_ASKS: Final = {
    "tenantId": "The tenant. Without it, a key is searched among those that the caller sees; for "
    "a caller who sees all, among the newest events.",
    "key": "The `idempotencyKey` of an event or, if there is none, of a refusal.",
    "sequence": "The `ingressSequence` of an event.",
    "rejectId": "The `rejectId` of a refusal.",
}
_ANYTHING: Final[Schema] = {"description": "Any JSON value."}
_FOLDED: Final[Schema] = {"type": ["boolean", "null"]}
_ROW_KEY: Final[Schema] = {"type": "object", "description": "The columns of the row's key."}


class ExplainOperations(Describing):
    """Describes how one event is explained."""

    def paths(self) -> dict[str, Schema]:
        """Every path with its operations."""
        return {"/admin/explain": {"get": self._explain()}}

    def _explain(self) -> Schema:
        return self.operation(
            "explainEvent",
            "Admin",
            "Why was this not counted?",
            "Everything that is known of one event or refusal, in the order of the flow: its "
            "identity, its place in order, whether it is folded, what meters, tables and windows "
            "made of it and why, what corrected it, what it moved, which views show that, and what "
            "triggers and webhooks made of it. Name it by `key`, by `sequence` or by `rejectId`; "
            "it must fit all that is given. Of triggers only keys with the scope `triggers` are "
            "told.",
            {"description": "The explanation.", "content": json_content("Explanation")},
            (*READ_CODES, "not_found", "ambiguous_key"),
            scopes=("read",),
            parameters=self.query(*EXPLAIN_PARAMETERS, **_ASKS),
        )


def explanation_schemas() -> dict[str, Schema]:
    """The components that describe the answer, by name."""
    kinds = {"event": "Explanation.event", "reject": "Explanation.reject"}
    return {
        "Explanation": {
            "description": "What became of an event, or why it was refused.",
            "oneOf": [reference(name) for name in kinds.values()],
            "discriminator": {
                "propertyName": "kind",
                "mapping": {k: f"#/components/schemas/{name}" for k, name in kinds.items()},
            },
        },
        "Explanation.event": _event(),
        "Explanation.reject": _reject(),
        "Explanation.meter": _meter(),
        "Explanation.table": _table(),
        "Explanation.window": _window(),
        "Explanation.moved": _moved(),
        "Explanation.view": _view(),
        "Explanation.trigger": _trigger(),
    }


def _event() -> Schema:
    always: Schema = {
        "kind": {"const": "event"},
        "answer": described(TEXT, "What became of it, in a sentence or two, for people."),
        "event": reference("StoredEvent"),
        "identity": object_schema(
            "Where its key comes from.",
            {
                "origin": {"enum": ["given", "derived"]},
                "derivedFrom": {
                    "type": "object",
                    "description": "The tuple of a derived key, in its order.",
                },
            },
            ["origin"],
        ),
        "commit": object_schema(
            "Its commit, and when the one before it was.",
            {
                "receivedAt": SHOWN_TIME,
                "firstSequence": SHOWN_SEQUENCE,
                "lastSequence": SHOWN_SEQUENCE,
                "chain": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                "previousReceivedAt": SHOWN_TIME,
            },
            ["receivedAt", "firstSequence", "lastSequence", "chain"],
        ),
        "pipeline": object_schema(
            "Whether the views hold it; null if nobody can say, and `reason` says why.",
            {
                "folded": _FOLDED,
                "frontier": described(SHOWN_SEQUENCE, "How far the views are."),
                "reason": TEXT,
            },
            ["folded"],
        ),
        "time": object_schema(
            "How its stream tells time.",
            {
                "plan": {"enum": list(PLANS)},
                "occurredAt": SHOWN_TIME,
                "column": TEXT,
                "type": TEXT,
                "value": _ANYTHING,
            },
            ["plan", "occurredAt"],
        ),
    }
    sometimes: Schema = {
        "errors": _list("PipelineErrorEntry"),
        "mirrored": object_schema(
            "Where it is in Kafka.",
            {
                "topic": TEXT,
                "partition": {"type": "integer", "minimum": 0},
                "offset": described(SHOWN_SEQUENCE, "Its offset in the partition."),
            },
            ["topic", "partition", "offset"],
        ),
        "original": reference("StoredEvent"),
        "corrections": {"type": "array", "items": _correction()},
        "meters": _list("Explanation.meter"),
        "tables": _list("Explanation.table"),
        "windows": _list("Explanation.window"),
        "adjustments": _list("AdjustmentEntry"),
        "views": _list("Explanation.view"),
        "triggers": _list("Explanation.trigger"),
        "refusals": _list("Reject"),
        "notes": {
            "type": "array",
            "items": TEXT,
            "description": "What could not be told, and where a search was bounded.",
        },
    }
    return object_schema("What is known of an event.", always | sometimes, list(always))


def _reject() -> Schema:
    always: Schema = {
        "kind": {"const": "reject"},
        "answer": TEXT,
        "reject": reference("Reject"),
    }
    original = {"original": reference("StoredEvent")}
    return object_schema(
        "Why it was refused, and the event that has its key.", always | original, list(always)
    )


def _correction() -> Schema:
    always: Schema = {
        "ingressSequence": SHOWN_SEQUENCE,
        "receivedAt": SHOWN_TIME,
        "control": {"enum": ["void", "amend"]},
        "idempotencyKey": TEXT,
        "folded": _FOLDED,
        "decides": {"type": "boolean", "description": "Whether it says what the original is."},
    }
    return object_schema(
        "A correction of the event or, if it is one itself, of its original.",
        always | {"reason": TEXT},
        list(always),
    )


def _meter() -> Schema:
    always: Schema = {
        "meter": TEXT,
        "outcome": {"enum": list(get_args(Outcome))},
        "reason": TEXT,
    }
    judged_always: Schema = {
        "saidBy": described(SHOWN_SEQUENCE, "The event whose content this is."),
        "ts": SHOWN_TIME,
        "periodStart": SHOWN_TIME,
        "periodEnd": SHOWN_TIME,
        "lateness": TEXT,
        "late": {"type": ["boolean", "null"]},
    }
    judged_sometimes: Schema = {
        "watermarkTs": described(SHOWN_TIME, "Of the row, before the commit."),
        "lateBefore": described(SHOWN_TIME, "What happened before this was late."),
        "closesAt": described(SHOWN_TIME, "What is committed later than this is late."),
        "lateReason": {"enum": ["late", "closed"]},
        "groups": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
    }
    judged = object_schema(
        "What it says, against the row that it belongs to.",
        judged_always | judged_sometimes,
        list(judged_always),
    )
    return object_schema(
        "What one meter made of it.",
        always
        | {"judged": {"type": "array", "items": judged}, "moved": _list("Explanation.moved")},
        list(always),
    )


def _table() -> Schema:
    always: Schema = {
        "table": TEXT,
        "outcome": {"enum": list(get_args(TableOutcome))},
        "reason": TEXT,
    }
    sometimes: Schema = {
        "moved": _list("Explanation.moved"),
        "shownSequence": described(SHOWN_SEQUENCE, "The event that its row comes from now."),
    }
    return object_schema("What one table made of it.", always | sometimes, list(always))


def _window() -> Schema:
    outcome: Schema = {"enum": list(get_args(WindowOutcome))}
    judged_always: Schema = {
        "saidBy": described(SHOWN_SEQUENCE, "The event whose content this is."),
        "ts": SHOWN_TIME,
        "windowStart": SHOWN_TIME,
        "windowEnd": described(SHOWN_TIME, "What happened then is in the next window."),
        "state": {
            "enum": list(get_args(WindowState)),
            "description": "What the window is now; `empty` if nothing is counted in it.",
        },
        "late": {"type": ["boolean", "null"]},
    }
    judged_sometimes: Schema = {
        "outcome": outcome,
        "reason": TEXT,
        "refiresUntil": described(SHOWN_TIME, "Late events count until the watermark is there."),
        "putAside": object_schema(
            "The row for what was too late.", {"amount": TEXT, "reason": TEXT}
        ),
    }
    judged = object_schema(
        "What it says, against one window that it falls in.",
        judged_always | judged_sometimes,
        list(judged_always),
    )
    always: Schema = {
        "window": TEXT,
        "outcome": outcome,
        "reason": TEXT,
        "latePolicy": {"enum": list(LATE_POLICIES)},
    }
    sometimes: Schema = {
        "watermarkTs": described(SHOWN_TIME, "How far time had come before the commit."),
        "watermarkIsExact": {
            "const": True,
            "description": "Without it, time may have come further.",
        },
        "judged": {"type": "array", "items": judged},
        "moved": _list("Explanation.moved"),
    }
    return object_schema(
        "What the windows of one definition made of it.", always | sometimes, list(always)
    )


def _moved() -> Schema:
    column = object_schema("", {"from": _ANYTHING, "to": _ANYTHING})
    always: Schema = {
        "operation": {"enum": ["insert", "update", "delete"]},
        "row": _ROW_KEY,
        "changed": {"type": "object", "additionalProperties": column},
        "sharedWith": {
            "type": "integer",
            "minimum": 0,
            "description": "How many other events of the commit may be in this change.",
        },
    }
    return object_schema(
        "The change of a row at the event's commit, which is that of the whole commit.",
        always | {"moreMayShare": {"const": True}},
        list(always),
    )


def _view() -> Schema:
    always: Schema = {
        "view": TEXT,
        "row": _ROW_KEY,
        "operation": {"enum": ["insert", "update", "delete"]},
        "tsTimestamp": described(SHOWN_SEQUENCE, "The change's `ts_timestamp` in subscriptions."),
    }
    return object_schema("A view that shows the change of a row.", always, list(always))


def _trigger() -> Schema:
    delivered_always: Schema = {
        "status": {"enum": list(STATUSES)},
        "attempts": {"type": "integer", "minimum": 0},
        "createdAt": SHOWN_TIME,
    }
    delivered_sometimes: Schema = {
        "nextAttemptAt": SHOWN_TIME,
        "settledAt": described(SHOWN_TIME, "When it was delivered or given up."),
        "responseStatus": described({"type": "integer"}, "The status of the last answer."),
        "lastError": described(TEXT, "Why the last attempt failed."),
    }
    always: Schema = {
        "trigger": TEXT,
        "view": TEXT,
        "row": _ROW_KEY,
        "outcome": {"enum": list(get_args(Firing))},
        "reason": TEXT,
    }
    sometimes: Schema = {
        "eventType": {"enum": list(get_args(EventType))},
        "eventId": TEXT,
        "delivery": object_schema(
            "What became of the event on its way to the webhook.",
            delivered_always | delivered_sometimes,
            list(delivered_always),
        ),
    }
    return object_schema(
        "What a trigger that watched the row made of its change.",
        always | sometimes,
        list(always),
    )


def _list(name: str) -> Schema:
    return {"type": "array", "items": reference(name)}
