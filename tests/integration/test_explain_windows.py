"""`/admin/explain` of events that fall in windows, told from what the real pipeline left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from tests.acceptance.cli_runs import tidemark
from tests.integration.explained_history import History, control, fold
from tests.integration.http_client import Api
from tests.services.tidemark_server import TidemarkServer

CONFIG = """
streams:
  trades:
    identity: [trade_id]
    fields:
      trade_id: string
      symbol: string
      quantity: {type: decimal, required: false}
      executed_at: timestamp
    eventtime: {column: executed_at, type: iso8601}
  orders:
    identity: [order_id]
    fields: {order_id: string}
pipeline:
  eventtime: {enabled: true, lateTolerance: 10s}
windows:
  aside:
    {stream: trades, size: 1m, value: quantity, emit: change, late: side_output, group_by: [symbol]}
  by_close: {stream: trades, size: 1m, aggregate: count}
  by_change: {stream: trades, size: 1m, aggregate: count, emit: change}
  choosy: {stream: trades, size: 1m, aggregate: count, where: quantity > 5}
  hopping: {stream: trades, size: 1m, every: 20s, aggregate: count, emit: change}
  refiring:
    {stream: trades, size: 1m, aggregate: count, emit: change, late: refire, refireFor: 1m}
  received: {stream: orders, size: 365d, aggregate: count, emit: change}
"""
DAY = "2025-01-31T"


def trade(name: str, time: str, **changes: Any) -> dict[str, Any]:
    data = {"trade_id": name, "symbol": "TIDE", "quantity": "2", "executed_at": f"{DAY}{time}Z"}
    return {"stream": "trades", "tenantId": "acme", "data": {**data, **changes}}


@pytest.fixture(scope="module")
def history() -> Iterator[History]:
    """Each event is a commit of its own; the watermark follows 10 s behind the latest."""
    with TidemarkServer(CONFIG) as server:
        history = History(server, Api(server.base_url, "acme"), {})

        def send(name: str, event: dict[str, Any]) -> None:
            [history.results[name]] = history.api.accept(event)

        send("first", trade("first", "12:00:10"))
        send("second", trade("second", "12:00:30"))
        send("late", trade("late", "12:00:15", quantity="7"))
        send("later", trade("later", "12:01:30"))
        send("closed", trade("closed", "12:00:50"))
        send("far", trade("far", "12:05:00"))
        send("gone", trade("gone", "12:00:55"))
        send("void", control("void", history.results["first"]))
        send("fresh", trade("fresh", "12:05:05"))
        amended = trade("fresh", "12:05:06", quantity="9")["data"]
        send("amend", control("amend", history.results["fresh"], event={"data": amended}))
        send("null", trade("null", "12:05:07", quantity=None))
        send("order", {"stream": "orders", "tenantId": "acme", "data": {"order_id": "o"}})
        send("end", {"control": "end", "tenantId": "acme", "stream": "orders"})
        send("ended", {"stream": "orders", "tenantId": "acme", "data": {"order_id": "p"}})
        asyncio.run(fold(server))
        yield history
        assert "Traceback" not in server.log_text(), server.log_text()


def window(history: History, name: str, view: str) -> dict[str, Any]:
    [found] = [it for it in history.explain(name)["windows"] if it["window"] == view]
    entry: dict[str, Any] = found
    return entry


def outcomes(history: History, name: str) -> dict[str, str]:
    return {it["window"]: it["outcome"] for it in history.explain(name)["windows"]}


def test_an_event_in_time_is_counted_in_its_window(history: History) -> None:
    assert window(history, "second", "by_change") == {
        "window": "by_change",
        "outcome": "counted",
        "reason": "it was not late",
        "latePolicy": "drop",
        "watermarkTs": f"{DAY}12:00:00.000000Z",
        "watermarkIsExact": True,
        "judged": [
            {
                "saidBy": history.sequence("second"),
                "ts": f"{DAY}12:00:30.000000Z",
                "windowStart": f"{DAY}12:00:00.000000Z",
                "windowEnd": f"{DAY}12:01:00.000000Z",
                "state": "closed",
                "late": False,
                "outcome": "counted",
                "reason": "it was not late",
            }
        ],
        "moved": [
            {
                "operation": "update",
                "row": {"tenant_id": "acme", "window_start": f"{DAY}12:00:00.000000Z"},
                "changed": {
                    "agg_count": {"from": "1", "to": "2"},
                    "agg_sum": {"from": "1", "to": "2"},
                    "value": {"from": "1", "to": "2"},
                },
                "sharedWith": 0,
            }
        ],
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "first",
            {"aside": "counted", "by_close": "counted", "by_change": "counted",
             "choosy": "unknown", "hopping": "counted", "refiring": "counted"},
        ),
        (
            "second",
            {"aside": "counted", "by_close": "counted", "by_change": "counted",
             "choosy": "not_counted", "hopping": "counted", "refiring": "counted"},
        ),
        (
            "late",
            {"aside": "put_aside", "by_close": "dropped", "by_change": "dropped",
             "choosy": "dropped", "hopping": "dropped", "refiring": "refired"},
        ),
        (
            "closed",
            {"aside": "put_aside", "by_close": "dropped", "by_change": "dropped",
             "choosy": "dropped", "hopping": "dropped", "refiring": "refired"},
        ),
        (
            "gone",
            {"aside": "put_aside", "by_close": "dropped", "by_change": "dropped",
             "choosy": "dropped", "hopping": "dropped", "refiring": "dropped"},
        ),
        (
            "void",
            {"aside": "put_aside", "by_close": "dropped", "by_change": "dropped",
             "choosy": "dropped", "hopping": "dropped", "refiring": "dropped"},
        ),
        (
            "null",
            {"aside": "not_counted", "by_close": "counted", "by_change": "counted",
             "choosy": "unknown", "hopping": "counted", "refiring": "counted"},
        ),
        (
            "amend",
            {"aside": "corrected", "by_close": "corrected", "by_change": "no_effect",
             "choosy": "unknown", "hopping": "no_effect", "refiring": "no_effect"},
        ),
    ],
)  # fmt: skip
def test_each_window_says_what_it_made_of_it(
    history: History, name: str, expected: dict[str, str]
) -> None:
    assert outcomes(history, name) == expected


def test_what_is_put_aside_names_its_row(history: History) -> None:
    found = window(history, "late", "aside")
    [judged] = found["judged"]
    assert (judged["late"], judged["putAside"]) == (True, {"amount": "7", "reason": "late"})
    assert found["reason"] == "the watermark had reached its time: it is a row of aside_late"
    [judged] = window(history, "void", "aside")["judged"]
    assert judged["putAside"] == {"amount": "-2", "reason": "void"}


def test_a_window_is_open_or_closed_as_the_views_say(history: History) -> None:
    for view in ("aside", "by_close", "by_change", "refiring"):
        for name, state in (("first", "closed"), ("fresh", "open")):
            assert {it["state"] for it in window(history, name, view)["judged"]} == {state}
    # Nothing is counted in it.
    assert [it["state"] for it in window(history, "first", "choosy")["judged"]] == ["empty"]
    reason = window(history, "fresh", "by_close")["reason"]
    assert reason == "it was not late: its window shows it when it closes"


def test_an_event_is_in_all_windows_that_overlap(history: History) -> None:
    judged = window(history, "first", "hopping")["judged"]
    assert [it["windowStart"] for it in judged] == [
        f"{DAY}11:59:20.000000Z",
        f"{DAY}11:59:40.000000Z",
        f"{DAY}12:00:00.000000Z",
    ]
    assert len(window(history, "first", "hopping")["moved"]) == 3


def test_a_late_event_that_still_counts_says_until_when(history: History) -> None:
    found = window(history, "closed", "refiring")
    [judged] = found["judged"]
    assert (judged["late"], judged["refiresUntil"]) == (True, f"{DAY}12:02:00.000000Z")
    assert found["watermarkTs"] == f"{DAY}12:01:20.000000Z"
    assert found["moved"][0]["changed"]["agg_count"] == {"from": "3", "to": "4"}
    reason = window(history, "gone", "refiring")["reason"]
    assert reason == "the watermark was 1m or more beyond the end of its window"


def test_without_event_time_only_the_end_of_a_stream_makes_late(history: History) -> None:
    found = window(history, "order", "received")
    assert (found["outcome"], found["judged"][0]["state"]) == ("counted", "closed")
    found = window(history, "ended", "received")
    assert (found["outcome"], found["reason"]) == ("dropped", "its window was closed")
    assert "windows" not in history.explain("end")


def test_the_answer_and_the_views_tell_of_windows(history: History) -> None:
    explained = history.explain("late")
    assert "by_change: dropped (the watermark had reached its time)." in explained["answer"]
    assert [it["view"] for it in explained["views"]] == ["refiring"]


def test_every_explanation_fits_its_description(history: History) -> None:
    document = history.api.get("/openapi.json").json
    validator = jsonschema_rs.Draft202012Validator(
        {"$ref": "#/components/schemas/Explanation", "components": document["components"]},
        validate_formats=True,
    )
    for name in history.results:
        validator.validate(history.explain(name))


def test_people_read_it_too(history: History) -> None:
    args = ["explain", history.sequence("closed"), "--url", history.server.base_url]
    ran = tidemark(*args, cwd=history.server.directory)
    assert (ran.code, ran.err) == (0, "")
    section = ran.out.partition("\nwindows\n")[2].partition("\n\n")[0]
    assert (
        "  aside: put aside: the watermark had reached its time: it is a row of aside_late\n"
        "    watermark  2025-01-31T12:01:20.000000Z before its commit\n"
        "    2025-01-31T12:00:00.000000Z – 2025-01-31T12:01:00.000000Z: closed\n"
    ) in section
    assert "      late       yes: side_output\n" in section
    assert "      put aside  2, late\n" in section
