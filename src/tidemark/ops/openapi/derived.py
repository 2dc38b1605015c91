"""What is derived from events: usage, adjustments, and what the pipeline could not take."""

from __future__ import annotations

from typing import Final

from tidemark.ops.adjustments import ADJUSTMENT_FILTERS
from tidemark.ops.listings import CSV_TYPE, CURSOR_HEADER, FORMATS, FRONTIER_HEADER
from tidemark.ops.openapi.answers import CURSOR, object_schema
from tidemark.ops.openapi.describing import (
    QUERY_CODES,
    TEXT,
    Describing,
    json_content,
    paging,
)
from tidemark.ops.openapi.events import EXAMPLE_TENANT, reference
from tidemark.ops.openapi.values import SHOWN_SEQUENCE, SHOWN_TIME, Schema, described
from tidemark.ops.parameters import LONG_CURSOR_PATTERN
from tidemark.ops.pipeline_errors import ERROR_FILTERS
from tidemark.ops.usage import DEFAULT_TIMEOUT_MS, LONGEST_TIMEOUT_MS, USAGE_FILTERS

_LIST_CODES: Final = (*QUERY_CODES, "invalid_parameter", "unknown_cursor", "views_unavailable")
_METER_CODES: Final = (
    *_LIST_CODES,
    "unknown_meter",
    "unknown_sequence",
    "not_yet_folded",
    "ledger_unavailable",
)
_ASKS: Final = {
    "tenantId": "Of this tenant.",
    "metric": "Of this metric.",
    "customerRef": "By this customer.",
    "meter": "Of this meter.",
    "from": "Of periods that end after this time.",
    "to": "Of periods that begin before this time.",
    "stream": "Events of this stream.",
    "code": "With this code.",
    "ingressSequence": "Due to the event with this `ingressSequence`.",
    "originalSequence": "Due to a correction of the event with this `ingressSequence`.",
    "minSequence": "Answer when everything up to this `ingressSequence` is counted: read your own "
    "writes.",
}
_DECIMAL: Final[Schema] = {"type": "string", "pattern": "^-?[0-9]+(?:\\.[0-9]+)?$"}
_FRONTIER: Final = described(
    SHOWN_SEQUENCE, "Everything up to this `ingressSequence` is in the answer."
)
_GROUPS: Final[Schema] = {
    "type": "object",
    "description": "The groups of a meter with `group_by`; left out where there are none.",
    "additionalProperties": {"type": ["string", "null"]},
}
_SOURCE_TIMESTAMP = described(
    SHOWN_TIME, "The time of the commit that made it what it is, on the ledger's clock."
)


class DerivedOperations(Describing):
    """Describes the operations that read what the pipeline has made."""

    def paths(self) -> dict[str, Schema]:
        """Every path with its operations."""
        return {
            "/v1/usage": {"get": self._usage()},
            "/v1/adjustments": {"get": self._adjustments()},
            "/admin/pipeline-errors": {"get": self._errors()},
        }

    def _usage(self) -> Schema:
        return self.operation(
            "listUsage",
            "Usage",
            "Usage by customer and period",
            "One entry for each meter, tenant, customer, group and period, in that order. "
            "`counted` is what the meter has counted, `adjusted` what came too late for that, and "
            "`total` the meter's aggregate over both. Several meters may count one metric: all of "
            "them are listed. With a key that is for some tenants, only theirs.",
            _page("UsagePage", "usage"),
            (*_METER_CODES, "definition_changed"),
            scopes=("read",),
            parameters=[*self.query(*USAGE_FILTERS, **_ASKS), *self._waiting(), *_paging()],
        )

    def _adjustments(self) -> Schema:
        return self.operation(
            "listAdjustments",
            "Usage",
            "Adjustments, each with its event",
            "What is in `adjusted` and not in `counted`: events that came too late, late "
            "corrections, and what operators added. In the order of their events.",
            _page("AdjustmentPage", "adjustments"),
            _METER_CODES,
            scopes=("read",),
            parameters=[*self.query(*ADJUSTMENT_FILTERS, **_ASKS), *self._waiting(), *_paging()],
        )

    def _errors(self) -> Schema:
        return self.operation(
            "listPipelineErrors",
            "Admin",
            "Events that the pipeline could not take",
            "They are in the ledger, and in no meter and no view. In the order of the events.",
            _page("PipelineErrorPage", "errors"),
            _LIST_CODES,
            scopes=("read",),
            parameters=[*self.query(*ERROR_FILTERS, **_ASKS), *_paging()],
        )

    def _waiting(self) -> list[Schema]:
        timeout = {
            "name": "timeoutMs",
            "in": "query",
            "description": "How many milliseconds to wait for `minSequence`.",
            "schema": {
                "type": "integer",
                "minimum": 0,
                "maximum": LONGEST_TIMEOUT_MS,
                "default": DEFAULT_TIMEOUT_MS,
            },
        }
        return [*self.query("minSequence", **_ASKS), timeout]


def derived_schemas() -> dict[str, Schema]:
    """The components that describe these answers, by name."""
    return {
        "UsageEntry": _usage_entry(),
        "UsagePage": _listing("usage", "UsageEntry"),
        "AdjustmentEntry": _adjustment_entry(),
        "AdjustmentPage": _listing("adjustments", "AdjustmentEntry"),
        "PipelineErrorEntry": _error_entry(),
        "PipelineErrorPage": _listing("errors", "PipelineErrorEntry"),
    }


def _paging() -> list[Schema]:
    return [
        *paging(LONG_CURSOR_PATTERN),
        {
            "name": "format",
            "in": "query",
            "description": "The form of the answer; left out, as `Accept` says, else JSON.",
            "schema": {"type": "string", "enum": list(FORMATS)},
        },
    ]


def _page(schema: str, what: str) -> Schema:
    return {
        "description": f"A page of {what}. In CSV the frontier and the cursor are headers.",
        "headers": {
            FRONTIER_HEADER: {"description": "Of CSV: the frontier.", "schema": TEXT},
            CURSOR_HEADER: {"description": "Of CSV: the `nextCursor`, if any.", "schema": TEXT},
        },
        "content": {**json_content(schema), CSV_TYPE: {"schema": TEXT}},
    }


def _listing(name: str, entry: str) -> Schema:
    return object_schema(
        "A page, as of a sequence.",
        {
            name: {"type": "array", "items": reference(entry)},
            "frontier": _FRONTIER,
            "nextCursor": CURSOR,
        },
    )


def _nullable(schema: Schema, text: str) -> Schema:
    return described({**schema, "type": ["string", "null"]}, text)


def _usage_entry() -> Schema:
    always: Schema = {
        "meter": TEXT,
        "tenantId": TEXT,
        "metric": TEXT,
        "customerRef": TEXT,
        "periodStart": SHOWN_TIME,
        "periodEnd": described(SHOWN_TIME, "Where the next period begins."),
        "sum": _nullable(_DECIMAL, "Of the counted values."),
        "max": _nullable(_DECIMAL, "Of the counted values."),
        "min": _nullable(_DECIMAL, "Of the counted values."),
        "count": _nullable(SHOWN_SEQUENCE, "How many events are counted."),
        "last": _nullable(_DECIMAL, "The counted value that happened last."),
        "counted": _nullable(_DECIMAL, "The meter's aggregate over the counted events."),
        "adjusted": _nullable(_DECIMAL, "`total` less `counted`."),
        "total": _nullable(_DECIMAL, "The meter's aggregate over counted and adjusted events."),
        "watermarkTs": _nullable(SHOWN_TIME, "When the last counted event happened."),
        "sourceTimestamp": _SOURCE_TIMESTAMP,
    }
    schema = object_schema("Usage of one period.", always | {"groups": _GROUPS}, list(always))
    schema["examples"] = [
        {
            "meter": "api_calls",
            "tenantId": EXAMPLE_TENANT,
            "metric": "api_calls",
            "customerRef": "cus_42",
            "periodStart": "2025-01-01T00:00:00.000000Z",
            "periodEnd": "2025-02-01T00:00:00.000000Z",
            "sum": "12.5",
            "max": "10",
            "min": "2.5",
            "count": "2",
            "last": "2.5",
            "counted": "12.5",
            "adjusted": "1",
            "total": "13.5",
            "watermarkTs": "2025-01-31T12:00:00.000000Z",
            "sourceTimestamp": "2025-01-31T12:00:00.123456Z",
        }
    ]
    return schema


def _adjustment_entry() -> Schema:
    always: Schema = {
        "meter": TEXT,
        "tenantId": TEXT,
        "metric": TEXT,
        "customerRef": TEXT,
        "periodStart": SHOWN_TIME,
        "quantity": described(_DECIMAL, "What is added; less than zero takes away."),
        "reason": TEXT,
        "idempotencyKey": described(TEXT, "Of the event that it is due to."),
        "ingressSequence": described(SHOWN_SEQUENCE, "Of the event that it is due to."),
        "part": {
            "type": "integer",
            "minimum": 0,
            "description": "A late amend has two: 0 takes the old value away, 1 adds the new one.",
        },
        "sourceTimestamp": _SOURCE_TIMESTAMP,
    }
    sometimes = {
        "periodEnd": described(
            SHOWN_TIME, "Left out for a meter that is not defined any more as it was."
        ),
        "originalKey": described(TEXT, "Of a correction: the event that it corrects."),
        "originalSequence": described(SHOWN_SEQUENCE, "Of a correction: the same event's place."),
        "groups": _GROUPS,
    }
    return object_schema("One adjustment and its event.", always | sometimes, list(always))


def _error_entry() -> Schema:
    return object_schema(
        "One event that a stage of the pipeline could not take.",
        {
            "ingressSequence": SHOWN_SEQUENCE,
            "stage": TEXT,
            "code": described(TEXT, "What programs test for."),
            "message": described(TEXT, "What is wrong with it."),
            "tenantId": TEXT,
            "stream": TEXT,
            "idempotencyKey": TEXT,
            "receivedAt": SHOWN_TIME,
        },
    )
