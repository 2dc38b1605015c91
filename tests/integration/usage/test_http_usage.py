"""`/v1/usage`: what was made of the events.

The views are filled through the port that the pipeline writes to, on both stores.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import threading
import time

import pytest

from tests.integration.filled_views import FilledViews, MeterRow, counters
from tests.integration.http_client import Api, assert_refused, usage
from tests.integration.usage.metered import (
    ADJUSTMENTS,
    CONFIG,
    ERRORS,
    FEBRUARY,
    JANUARY,
    USAGE,
    commit,
    entries,
    row,
)
from tests.services.http_calls import Answer
from tests.services.tidemark_server import TidemarkServer
from tidemark.timestamps import parse_timestamp


def places(answer: Answer) -> list[tuple[str, str, str]]:
    """Which rows: meter, customer and day."""
    return [
        (entry["meter"], entry["customerRef"], entry["periodStart"][:10])
        for entry in entries(answer)
    ]


def test_an_entry_shows_all_there_is_of_a_row(api: Api, views: FilledViews) -> None:
    last = parse_timestamp("2025-01-31T23:59:59.000001Z")
    values = counters("12.500", adjusted="-0.5", watermark_ts=last)
    sequence = commit(api, views, MeterRow("bytes_month", api.tenant, "c", JANUARY, values))
    answer = api.get(USAGE, tenantId=api.tenant)
    [entry] = entries(answer)
    received_at = api.events()[-1]["receivedAt"]
    assert entry == {
        "meter": "bytes_month",
        "tenantId": api.tenant,
        "metric": "bytes",
        "customerRef": "c",
        "periodStart": "2025-01-01T00:00:00.000000Z",
        "periodEnd": "2025-02-01T00:00:00.000000Z",
        "sum": "12.5",
        "max": "12.5",
        "min": "12.5",
        "count": "1",
        "last": "12.5",
        "counted": "12.5",
        "adjusted": "-0.5",
        "total": "12",
        "watermarkTs": "2025-01-31T23:59:59.000001Z",
        "sourceTimestamp": received_at,
    }
    assert set(answer.json) == {"usage", "frontier", "nextCursor"}
    assert (answer.json["frontier"], answer.json["nextCursor"]) == (str(sequence), None)


def test_what_a_row_does_not_have_is_null(api: Api, views: FilledViews) -> None:
    commit(api, views, MeterRow("bytes_month", api.tenant, "c", JANUARY))
    [entry] = entries(api.get(USAGE, tenantId=api.tenant))
    absent = {name for name, value in entry.items() if value is None}
    assert absent == {
        *("sum", "max", "min", "count", "last"),
        *("counted", "adjusted", "total", "watermarkTs"),
    }


def test_groups_are_shown_where_a_meter_has_them(api: Api, views: FilledViews) -> None:
    commit(
        api,
        views,
        row(api, "seats", "c", JANUARY, groups=("eu",)),
        row(api, "seats", "c", JANUARY, groups=(None,)),
        row(api, "bytes_month", "c", JANUARY),
    )
    found = entries(api.get(USAGE, tenantId=api.tenant))
    assert [entry.get("groups") for entry in found] == [None, {"region": "eu"}, {"region": None}]
    assert "groups" not in found[0]


def test_a_local_day_ends_where_the_next_begins(api: Api, views: FilledViews) -> None:
    commit(api, views, row(api, "bytes_day", "c", "2025-11-02T04:00:00Z"))
    [entry] = entries(api.get(USAGE, tenantId=api.tenant))
    assert entry["periodEnd"] == "2025-11-03T05:00:00.000000Z"


@pytest.fixture
def several(api: Api, views: FilledViews) -> None:
    """Two months of two customers by two meters of one metric, and seats."""
    commit(
        api,
        views,
        row(api, "bytes_month", "x", JANUARY),
        row(api, "bytes_month", "x", FEBRUARY),
        row(api, "bytes_month", "y", FEBRUARY),
        row(api, "bytes_day", "x", "2025-01-31T05:00:00Z"),
        row(api, "bytes_day", "x", "2025-02-01T05:00:00Z"),
        row(api, "seats", "y", JANUARY, groups=("eu",)),
    )


X, Y = "x", "y"
DAY_31, DAY_1 = ("bytes_day", X, "2025-01-31"), ("bytes_day", X, "2025-02-01")
MONTH_1, MONTH_2 = ("bytes_month", X, "2025-01-01"), ("bytes_month", X, "2025-02-01")
MONTH_2Y, SEATS = ("bytes_month", Y, "2025-02-01"), ("seats", Y, "2025-01-01")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, [DAY_31, DAY_1, MONTH_1, MONTH_2, MONTH_2Y, SEATS]),
        # Two meters count one metric, and both are listed.
        ({"metric": "bytes"}, [DAY_31, DAY_1, MONTH_1, MONTH_2, MONTH_2Y]),
        ({"metric": "nothing"}, []),
        ({"meter": "bytes_day"}, [DAY_31, DAY_1]),
        ({"meter": "bytes_day", "metric": "seats"}, []),
        ({"customerRef": "y"}, [MONTH_2Y, SEATS]),
        ({"customerRef": "nobody"}, []),
        # A period is found if it overlaps the time asked for.
        ({"from": FEBRUARY}, [DAY_31, DAY_1, MONTH_2, MONTH_2Y]),
        ({"from": "2025-02-01T05:00:00Z"}, [DAY_1, MONTH_2, MONTH_2Y]),
        ({"to": FEBRUARY}, [DAY_31, MONTH_1, SEATS]),
        ({"to": "2025-02-01T00:00:00.000001Z"}, [DAY_31, MONTH_1, MONTH_2, MONTH_2Y, SEATS]),
        ({"from": "2025-01-15T00:00:00Z", "to": "2025-01-16T00:00:00+01:00"}, [MONTH_1, SEATS]),
        ({"from": "2025-02-28T23:59:59Z"}, [MONTH_2, MONTH_2Y]),
        ({"from": "2025-03-01T00:00:00Z"}, []),
        ({"from": "1960-01-01T00:00:00Z", "to": JANUARY}, []),
        ({"from": "2300-01-01T00:00:00Z"}, []),
        (
            {"to": "2300-01-01T00:00:00Z"},
            [DAY_31, DAY_1, MONTH_1, MONTH_2, MONTH_2Y, SEATS],
        ),
    ],
)
def test_every_filter_finds_exactly_its_rows(
    api: Api, several: None, query: dict[str, str], expected: list[tuple[str, str, str]]
) -> None:
    assert places(api.get(USAGE, tenantId=api.tenant, **query)) == expected


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 1000])
def test_pages_go_on_from_row_to_row_and_meter_to_meter(
    api: Api, several: None, limit: int
) -> None:
    query = {"tenantId": api.tenant, "limit": str(limit)}
    found: list[tuple[str, str, str]] = []
    while True:
        answer = api.get(USAGE, **query)
        assert len(entries(answer)) <= limit
        found += places(answer)
        if answer.json["nextCursor"] is None:
            break
        query["cursor"] = answer.json["nextCursor"]
    assert found == [DAY_31, DAY_1, MONTH_1, MONTH_2, MONTH_2Y, SEATS]


def test_a_row_that_changes_between_two_pages_is_neither_lost_nor_repeated(
    api: Api, views: FilledViews, several: None
) -> None:
    first = api.get(USAGE, tenantId=api.tenant, limit="3")
    commit(
        api,
        views,
        row(api, "bytes_month", "x", JANUARY, "7"),
        row(api, "bytes_month", "x", FEBRUARY, "8"),
        row(api, "bytes_month", "a", JANUARY),
    )
    rest = api.get(USAGE, tenantId=api.tenant, cursor=first.json["nextCursor"])
    assert places(rest) == [MONTH_2, MONTH_2Y, SEATS]
    assert entries(rest)[0]["total"] == "8"
    assert int(rest.json["frontier"]) > int(first.json["frontier"])


def test_a_cursor_belongs_to_its_filters(api: Api, several: None) -> None:
    cursor = api.get(USAGE, tenantId=api.tenant, limit="2").json["nextCursor"]
    # How to answer is no filter.
    same = {"tenantId": api.tenant, "cursor": cursor}
    assert api.get(USAGE, **same, limit="1", format="csv", minSequence="1").status == 200
    assert_refused(api.get(USAGE, cursor=cursor), 404, "unknown_cursor", "cursor")
    assert_refused(api.get(USAGE, **same, metric="bytes"), 404, "unknown_cursor", "cursor")
    assert_refused(api.get(ADJUSTMENTS, **same), 404, "unknown_cursor", "cursor")
    assert_refused(api.get(ERRORS, **same), 404, "unknown_cursor", "cursor")


def test_a_key_as_long_as_can_be_is_paged_over(api: Api, views: FilledViews) -> None:
    names = [f'"\\{"é" * 400}{number}' for number in range(3)]
    commit(api, views, *(row(api, "bytes_month", name, JANUARY) for name in names))
    query = {"tenantId": api.tenant, "limit": "1"}
    found: list[str] = []
    while len(found) < 10:
        answer = api.get(USAGE, **query)
        found += [entry["customerRef"] for entry in entries(answer)]
        if answer.json["nextCursor"] is None:
            break
        query["cursor"] = answer.json["nextCursor"]
    assert sorted(found) == names
    [entry] = entries(api.get(USAGE, tenantId=api.tenant, customerRef=names[1]))
    assert entry["customerRef"] == names[1]


@pytest.mark.parametrize("headers", [{}, {"Accept": "application/json, text/csv;q=0.5"}])
def test_csv_has_the_same_rows_as_json(api: Api, several: None, headers: dict[str, str]) -> None:
    path = f"{USAGE}?tenantId={api.tenant}&limit=5"
    by_header = {"Accept": "text/csv, */*;q=0.1"}
    answers = [
        api.call("GET", f"{path}&format=csv", headers=headers),
        api.call("GET", path, headers=by_header),
    ]
    json_answer = api.call("GET", path, headers=headers)
    assert json_answer.headers["content-type"] == "application/json"
    assert api.call("GET", f"{path}&format=json", headers=by_header).json == json_answer.json
    for answer in answers:
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        assert answer.headers["tidemark-frontier"] == json_answer.json["frontier"]
        assert answer.headers["tidemark-next-cursor"] == json_answer.json["nextCursor"]
        rows = list(csv.DictReader(io.StringIO(answer.body.decode(), newline="")))
        assert rows == [
            {**{name: value or "" for name, value in entry.items()}, "groups": ""}
            for entry in json_answer.json["usage"]
        ]
    rest = api.call("GET", f"{path}&format=csv&cursor={answers[0].headers['tidemark-next-cursor']}")
    [last] = csv.DictReader(io.StringIO(rest.body.decode(), newline=""))
    assert (last["meter"], last["groups"]) == ("seats", '{"region":"eu"}')
    assert "tidemark-next-cursor" not in rest.headers


@pytest.mark.parametrize(
    ("query", "status", "code", "field"),
    [
        ({"format": "xml"}, 400, "invalid_parameter", "format"),
        ({"from": "yesterday"}, 400, "invalid_parameter", "from"),
        ({"to": "2025-01-01"}, 400, "invalid_parameter", "to"),
        ({"minSequence": "-1"}, 400, "invalid_parameter", "minSequence"),
        ({"timeoutMs": "30001"}, 400, "invalid_parameter", "timeoutMs"),
        ({"timeoutMs": "soon"}, 400, "invalid_parameter", "timeoutMs"),
        ({"limit": "1001"}, 400, "invalid_parameter", "limit"),
        ({"tenant": "a"}, 400, "unknown_parameter", "tenant"),
        ({"meter": "byte_month"}, 404, "unknown_meter", "meter"),
        ({"minSequence": "9999999999999999999"}, 404, "unknown_sequence", "minSequence"),
        # Positions that no page ended at: an unknown meter, a NUL, a number that is too large.
        ({"cursor": "eyJ2IjoxLCJwIjpbIm5vIixudWxsXSwicSI6IiJ9"}, 404, "unknown_cursor", "cursor"),
        ({"cursor": "x" * 4097}, 400, "invalid_parameter", "cursor"),
    ],
)
@pytest.mark.parametrize("path", [USAGE, ADJUSTMENTS])
def test_what_cannot_be_asked_is_refused_by_name(
    api: Api,
    views: FilledViews,
    path: str,
    query: dict[str, str],
    status: int,
    code: str,
    field: str,
) -> None:
    commit(api, views)
    assert_refused(api.get(path, **query), status, code, field)


def test_a_cursor_that_somebody_made_up_is_refused(sqlite_api: Api) -> None:
    query = hashlib.sha256(b"[]").hexdigest()[:16]
    for path, position in (
        (USAGE, ["nothing", None]),
        (USAGE, ["bytes", "a\0b"]),
        (USAGE, 7),
        (ADJUSTMENTS, [2**64, "v", 0]),
        (ADJUSTMENTS, [1, "v\0", 0]),
        (ADJUSTMENTS, [-1, "v", 0]),
        (ERRORS, [2**64, "decode"]),
        (ERRORS, [1, "\0"]),
        (ERRORS, None),
    ):
        text = json.dumps({"v": 1, "p": position, "q": query}).encode()
        cursor = base64.urlsafe_b64encode(text).rstrip(b"=").decode()
        assert_refused(sqlite_api.get(path, cursor=cursor), 404, "unknown_cursor", "cursor")


def test_a_meter_that_is_not_there_has_the_nearest_name_as_a_hint(api: Api) -> None:
    answer = api.get(USAGE, meter="bytes-month")
    assert_refused(answer, 404, "unknown_meter", "meter")
    assert "`bytes_month`" in answer.error["hint"]


# Read your own writes.


def test_a_sequence_that_is_there_is_not_waited_for(api: Api, views: FilledViews) -> None:
    sequence = commit(api, views, row(api, "bytes_month", "c", JANUARY))
    began = time.monotonic()
    answer = api.get(USAGE, tenantId=api.tenant, minSequence=str(sequence))
    assert len(entries(answer)) == 1
    assert time.monotonic() - began < 5


def test_an_answer_waits_for_its_sequence(api: Api, views: FilledViews) -> None:
    [result] = api.accept(usage(api.tenant))
    sequence = result["ingressSequence"]
    answers: list[Answer] = []

    def ask() -> None:
        answers.append(api.get(USAGE, tenantId=api.tenant, minSequence=sequence, timeoutMs="30000"))

    readers = [threading.Thread(target=ask) for _ in range(5)]
    for reader in readers:
        reader.start()
    time.sleep(0.3)
    assert answers == []
    views.commit(row(api, "bytes_month", "c", JANUARY, "41"))
    for reader in readers:
        reader.join()
    for answer in answers:
        assert [entry["total"] for entry in entries(answer)] == ["41"]
        assert int(answer.json["frontier"]) >= int(sequence)


@pytest.mark.parametrize("path", [USAGE, ADJUSTMENTS])
def test_a_wait_has_an_end_and_says_how_far_the_views_are(
    api: Api, views: FilledViews, path: str
) -> None:
    reached = commit(api, views)
    [result] = api.accept(usage(api.tenant, customerRef="not yet"))
    began = time.monotonic()
    answer = api.get(path, minSequence=result["ingressSequence"], timeoutMs="200")
    assert 0.2 <= time.monotonic() - began < 10
    assert_refused(answer, 504, "not_yet_folded", "minSequence")
    assert f"at {reached}" in answer.error["message"]
    assert int(answer.headers["retry-after"]) >= 1


def test_a_server_that_stops_lets_nobody_wait() -> None:
    with TidemarkServer(CONFIG) as server:
        api = Api(server.base_url, "acme")
        [result] = api.accept(usage("acme"))
        answers: list[Answer] = []
        query = {"minSequence": result["ingressSequence"], "timeoutMs": "30000"}
        reader = threading.Thread(target=lambda: answers.append(api.get(USAGE, **query)))
        reader.start()
        time.sleep(0.3)
        began = time.monotonic()
        assert server.stop() == 0
        reader.join()
        assert time.monotonic() - began < 8
        assert_refused(answers[0], 504, "not_yet_folded", "minSequence")
        assert "Traceback" not in server.log_text()
