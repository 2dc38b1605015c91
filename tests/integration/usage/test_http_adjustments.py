"""`/v1/adjustments` and `/admin/pipeline-errors`: what was late, and what could not be taken."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from tests.integration.filled_views import FilledViews
from tests.integration.http_client import Api
from tests.integration.usage.metered import (
    ADJUSTMENTS,
    ERRORS,
    FEBRUARY,
    commit,
    entries,
    late,
)


@pytest.fixture
def adjusted(api: Api, views: FilledViews) -> dict[str, int]:
    """A late event, a late amend in two parts, and one of another meter; by name."""
    base = commit(api, views) * 100
    sequences = {"late": base + 1, "amend": base + 2, "day": base + 3}
    amend = {"original_key": "old", "original_sequence": base, "reason": "amend"}
    commit(
        api,
        views,
        adjustments=[
            late(api, base + 1),
            late(api, base + 2, part=0, amount="-1", **amend),
            late(api, base + 2, part=1, amount="3", **amend),
            late(
                api,
                base + 3,
                view="bytes_day",
                customer_ref="y",
                period_start="2025-01-31T05:00:00Z",
                group_values='{"region":"eu"}',
            ),
        ],
    )
    return sequences


def test_an_adjustment_names_its_event(api: Api, adjusted: dict[str, int]) -> None:
    answer = api.get(ADJUSTMENTS, tenantId=api.tenant)
    first, minus, plus, day = entries(answer, "adjustments")
    assert set(answer.json) == {"adjustments", "frontier", "nextCursor"}
    assert first == {
        "meter": "bytes_month",
        "tenantId": api.tenant,
        "metric": "bytes",
        "customerRef": "x",
        "periodStart": "2025-01-01T00:00:00.000000Z",
        "periodEnd": "2025-02-01T00:00:00.000000Z",
        "quantity": "1.5",
        "reason": "late",
        "idempotencyKey": f"key-{adjusted['late']}",
        "ingressSequence": str(adjusted["late"]),
        "part": 0,
        "sourceTimestamp": api.events()[-1]["receivedAt"],
    }
    assert [(it["part"], it["quantity"], it["originalKey"]) for it in (minus, plus)] == [
        (0, "-1", "old"),
        (1, "3", "old"),
    ]
    assert day["groups"] == {"region": "eu"}
    assert day["periodEnd"] == "2025-02-01T05:00:00.000000Z"


def test_every_filter_finds_exactly_its_adjustments(api: Api, adjusted: dict[str, int]) -> None:
    late, amend, day = (str(adjusted[name]) for name in ("late", "amend", "day"))
    original = str(adjusted["late"] - 1)
    for query, expected in (
        ({}, [late, amend, amend, day]),
        ({"metric": "bytes", "customerRef": "x"}, [late, amend, amend]),
        ({"meter": "bytes_day"}, [day]),
        ({"ingressSequence": amend}, [amend, amend]),
        ({"originalSequence": original}, [amend, amend]),
        ({"originalSequence": "0"}, []),
        # As with usage, periods that overlap.
        ({"from": FEBRUARY}, [day]),
        ({"from": "2025-01-31T23:59:59Z"}, [late, amend, amend, day]),
        ({"from": "2025-02-01T05:00:00Z"}, []),
        ({"to": "2025-01-31T05:00:00Z"}, [late, amend, amend]),
        ({"from": "2300-01-01T00:00:00Z"}, []),
    ):
        answer = api.get(ADJUSTMENTS, tenantId=api.tenant, **query)
        found = [entry["ingressSequence"] for entry in entries(answer, "adjustments")]
        assert found == expected, query


def test_adjustments_and_errors_come_in_pages_and_as_csv(
    api: Api, views: FilledViews, adjusted: dict[str, int]
) -> None:
    first = adjusted["late"]
    commit(
        api,
        views,
        errors=[
            {
                "ingress_sequence": first + number,
                "code": "overflow",
                "message": 'too, "large"',
                "tenant_id": api.tenant,
                "stream": "usage",
                "idempotency_key": f"bad-{number}",
            }
            for number in range(3)
        ],
    )
    for path, name in ((ADJUSTMENTS, "adjustments"), (ERRORS, "errors")):
        whole = entries(api.get(path, tenantId=api.tenant), name)
        query = {"tenantId": api.tenant, "limit": "1"}
        paged: list[dict[str, Any]] = []
        while True:
            answer = api.get(path, **query)
            paged += entries(answer, name)
            if answer.json["nextCursor"] is None:
                break
            query["cursor"] = answer.json["nextCursor"]
        assert paged == whole
        text = api.get(path, tenantId=api.tenant, format="csv").body.decode()
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        assert [row["ingressSequence"] for row in rows] == [it["ingressSequence"] for it in whole]
        if path == ERRORS:
            assert rows == [dict(it) for it in whole]
            assert (whole[0]["stage"], whole[0]["message"]) == ("decode", 'too, "large"')
    for query, count in (
        ({"code": "overflow"}, 3),
        ({"code": "other"}, 0),
        ({"stream": "usage"}, 3),
        ({"stream": "trades"}, 0),
        ({"ingressSequence": str(first + 2)}, 1),
    ):
        assert len(entries(api.get(ERRORS, tenantId=api.tenant, **query), "errors")) == count, query
