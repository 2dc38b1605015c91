"""`/admin/explain`: what became of one event, told from what the real pipeline left behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from tests.integration.explained_history import CONFIG, History, control, make_history, usage
from tests.integration.http_client import Api, assert_refused
from tests.integration.test_http_access import environment_with_keys
from tests.services.postgres import PostgresServer
from tests.services.tidemark_server import TidemarkServer

EXPLAIN = "/admin/explain"
DAY = "2025-01-31T"


@pytest.fixture(scope="module")
def history(store_url: str | None) -> Iterator[History]:
    """A folded history, on each store."""
    with TidemarkServer(CONFIG, ledger_url=store_url) as running:
        yield make_history(running)
        assert "Traceback" not in running.log_text(), running.log_text()


def outcomes(explained: dict[str, Any]) -> dict[str, str]:
    return {it["meter"]: it["outcome"] for it in explained["meters"]}


def test_an_event_is_explained_from_identity_to_what_it_moved(history: History) -> None:
    explained = history.explain("in_time")
    assert explained["kind"] == "event"
    assert explained["event"] == history.api.event(history.results["in_time"]["idempotencyKey"])
    assert explained["identity"] == {
        "origin": "derived",
        "derivedFrom": {
            "tenantId": "acme",
            "metric": "bytes",
            "customerRef": "c",
            "resourceId": None,
            "ts": f"{DAY}11:30:00.000000Z",
        },
    }
    sequence = history.sequence("in_time")
    commit = explained["commit"]
    assert (commit["firstSequence"], commit["lastSequence"]) == (sequence, sequence)
    assert commit["receivedAt"] == history.results["in_time"]["receivedAt"]
    assert commit["previousReceivedAt"] == history.results["noon"]["receivedAt"]
    assert explained["pipeline"] == {"folded": True, "frontier": history.sequence("letter")}
    assert explained["time"]["plan"] == "ProcessTimeWatermark"
    meter = history.meter("in_time", "by_day")
    assert meter == {
        "meter": "by_day",
        "outcome": "counted",
        "reason": "it was not late",
        "judged": [
            {
                "saidBy": sequence,
                "ts": f"{DAY}11:30:00.000000Z",
                "periodStart": f"{DAY}00:00:00.000000Z",
                "periodEnd": "2025-02-01T00:00:00.000000Z",
                "lateness": "1h",
                "late": False,
                "watermarkTs": f"{DAY}12:00:00.000000Z",
                "lateBefore": f"{DAY}11:00:00.000000Z",
            }
        ],
        "moved": [
            {
                "operation": "update",
                "row": {
                    "tenant_id": "acme",
                    "metric": "bytes",
                    "customer_ref": "c",
                    "period_start": f"{DAY}00:00:00.000000Z",
                },
                "changed": {
                    "agg_sum": {"from": "2.5", "to": "4"},
                    "agg_min": {"from": "2.5", "to": "1.5"},
                    "agg_count": {"from": "1", "to": "2"},
                    "counted": {"from": "2.5", "to": "4"},
                    "total": {"from": "2.5", "to": "4"},
                },
                "sharedWith": 0,
            }
        ],
    }


def test_a_key_of_the_senders_own_is_told_from_a_derived_one(history: History) -> None:
    assert history.explain("noon")["identity"] == {"origin": "given"}
    derived = history.explain("trade")["identity"]["derivedFrom"]
    assert derived == {"tenantId": "acme", "stream": "trades", "data.trade_id": "t-1"}
    for name in ("void_seven", "amend", "adjust", "end"):
        assert history.explain(name)["identity"]["origin"] == "derived", name


def test_a_late_event_is_adjusted_and_the_watermark_says_why(history: History) -> None:
    explained = history.explain("late")
    found = outcomes(explained)
    assert (found["by_day"], found["peak"], found["by_region"]) == (
        *("adjusted", "adjusted"),
        "counted",
    )
    for meter in ("by_day", "peak"):
        [judged] = history.meter("late", meter)["judged"]
        assert (judged["late"], judged["lateReason"]) == (True, "late")
        assert judged["lateBefore"] == f"{DAY}11:00:00.000000Z"
    # A lower value is late for a peak without moving it.
    assert "moved" not in history.meter("late", "peak")
    adjusted = {(it["meter"], it["quantity"], it["reason"]) for it in explained["adjustments"]}
    assert adjusted == {
        *((meter, "1", "late") for meter in ("by_day", "peak")),
        *((meter, "-1", "void") for meter in ("by_day", "peak")),
    }
    assert "Not counted but adjusted by by_day, peak" in explained["answer"]
    assert f"{history.sequence('void_late')} has voided it since." in explained["answer"]


def test_the_watermark_is_that_before_the_commit(history: History) -> None:
    for name in ("newer", "older"):
        meter = history.meter(name, "by_day")
        [judged] = meter["judged"]
        assert (meter["outcome"], judged["late"]) == ("counted", False)
        assert judged["watermarkTs"] == f"{DAY}12:00:00.000000Z"
        assert meter["moved"][0]["changed"]["watermark_ts"]["to"] == f"{DAY}15:00:00.000000Z"


def test_a_condition_is_told_from_what_moved(history: History) -> None:
    trial = history.meter("trial", "paid")
    assert (trial["outcome"], trial["reason"]) == (
        "not_counted",
        "its condition was not true or its value null",
    )
    assert history.meter("later", "inverse")["outcome"] == "counted"
    for name in ("both_trial", "both_paid"):
        both = history.meter(name, "paid")
        assert both["outcome"] == "unknown"
        [moved] = both["moved"]
        assert moved["sharedWith"] == 1


def test_an_event_that_the_pipeline_could_not_take_says_so(history: History) -> None:
    explained = history.explain("seven")
    [error] = explained["errors"]
    assert (error["stage"], error["code"]) == ("meter inverse", "expression_failed")
    meter = history.meter("seven", "inverse")
    assert meter["outcome"] == "not_counted"
    assert meter["reason"].startswith("expression_failed: ")


def test_what_is_visible_from_its_columns_is_told(history: History) -> None:
    explained = history.explain("other_metric")
    assert set(outcomes(explained).values()) == {"not_counted"}
    assert "No meter counts the metric unheard of." in explained["answer"]
    assert "No table is made of the stream letters." in history.explain("letter")["answer"]


def test_the_row_of_a_meter_with_groups_is_found_by_the_meta(history: History) -> None:
    meter = history.meter("trial", "by_region")
    [judged], [moved] = meter["judged"], meter["moved"]
    assert judged["groups"] == {"region": "eu"}
    assert (moved["operation"], moved["row"]["region"]) == ("insert", "eu")
    assert moved["changed"]["agg_count"] == {"from": None, "to": "1"}


def test_corrections_name_each_other_and_one_decides(history: History) -> None:
    explained = history.explain("seven")
    first, second = explained["corrections"]
    assert (first["ingressSequence"], first["control"], first["decides"], first["reason"]) == (
        *(history.sequence("void_seven"), "void"),
        *(True, "a mistake"),
    )
    assert (second["decides"], second["folded"]) == (False, True)
    correction = history.explain("void_seven")
    assert correction["original"] == explained["event"]
    meter = history.meter("void_seven", "by_day")
    assert meter["outcome"] == "corrected"
    assert meter["judged"][0]["saidBy"] == history.sequence("seven")
    assert meter["moved"][0]["changed"]["agg_count"] == {"from": "1", "to": "0"}
    again = history.explain("void_again")
    assert set(outcomes(again).values()) == {"no_effect", "not_counted"}
    assert f"{history.sequence('void_seven')} had voided" in again["answer"]


def test_an_amend_is_judged_by_what_was_and_what_is(history: History) -> None:
    meter = history.meter("amend", "by_day")
    said_by = [judged["saidBy"] for judged in meter["judged"]]
    assert said_by == [history.sequence("amended"), history.sequence("amend")]
    assert meter["outcome"] == "corrected"
    assert meter["moved"][0]["changed"]["agg_sum"] == {"from": "1.5", "to": "9"}
    assert "has amended it since" in history.explain("amended")["answer"]


def test_a_late_correction_is_adjusted(history: History) -> None:
    meter = history.meter("void_late", "by_day")
    assert meter["outcome"] == "adjusted"
    [adjustment] = [
        it for it in history.explain("void_late")["adjustments"] if it["meter"] == "by_day"
    ]
    assert adjustment["originalSequence"] == history.sequence("late")


def test_an_operators_adjustment_is_explained(history: History) -> None:
    meter = history.meter("adjust", "by_day")
    assert (meter["outcome"], meter["judged"][0]["late"]) == ("adjusted", False)
    assert "goodwill" in meter["reason"]
    assert meter["moved"][0]["changed"]["adjusted"] == {"from": "0", "to": "-1"}


def test_tables_say_which_event_their_row_comes_from(history: History) -> None:
    written, older = history.table("trade"), history.table("older_trade")
    assert written["outcome"] == "written"
    assert written["moved"][0]["row"] == {"tenant_id": "acme", "account": "a1"}
    assert older["outcome"] == "unchanged"
    assert older["shownSequence"] == history.sequence("trade")
    assert history.table("bought")["outcome"] == "written"
    sold = history.table("sold")
    assert (sold["outcome"], sold["moved"][0]["operation"]) == ("deleted", "delete")
    assert "tables" not in history.explain("end")


def test_what_the_log_has_forgotten_is_not_guessed(history: History) -> None:
    by_day, paid = history.meter("forgotten", "by_day"), history.meter("forgotten", "paid")
    assert (by_day["outcome"], paid["outcome"]) == ("counted", "unknown")
    assert "does not reach back" in paid["reason"]
    assert by_day["judged"][0]["late"] is None
    silent = history.meter("noon", "silent")
    assert (silent["outcome"], silent["reason"]) == ("unknown", "no log of changes is kept")


def test_an_event_that_is_not_folded_yet_says_how_far_the_views_are(history: History) -> None:
    explained = history.explain("waiting")
    at = history.sequence("letter")
    assert explained["pipeline"]["folded"] is False
    assert explained["pipeline"]["frontier"] == at
    assert f"the views are at {at}" in explained["answer"]
    assert "meters" not in explained


def test_late_is_what_was_adjusted_and_nothing_else(history: History) -> None:
    for name in history.results:
        explained = history.explain(name)
        if explained["event"].get("control") is not None:
            continue
        for meter in explained.get("meters", []):
            for judged in meter.get("judged", []):
                if judged["late"] is not None and meter["outcome"] in ("counted", "adjusted"):
                    assert judged["late"] == (meter["outcome"] == "adjusted"), (name, meter)


def test_every_explanation_fits_its_description(history: History) -> None:
    document = history.api.get("/openapi.json").json
    validator = jsonschema_rs.Draft202012Validator(
        {
            "$ref": "#/components/schemas/Explanation",
            "components": document["components"],
        },
        validate_formats=True,
    )
    for name in history.results:
        validator.validate(history.explain(name))
    assert history.api.post({"tenantId": "acme", "metric": "bytes"}).status == 200
    [reject] = history.api.get("/admin/rejects", limit="1").json["rejects"]
    validator.validate(history.api.get(EXPLAIN, rejectId=reject["rejectId"]).json)


def test_an_event_is_named_by_key_or_by_sequence(history: History) -> None:
    api = history.api
    by_key = api.get(EXPLAIN, key="noon", tenantId="acme").json
    assert by_key == history.explain("noon")
    assert api.get(EXPLAIN, key="noon").json == by_key
    assert api.get(EXPLAIN, key="noon", sequence=history.sequence("noon")).json == by_key
    assert_refused(api.get(EXPLAIN, key="moon", tenantId="acme"), 404, "not_found", "key")
    assert_refused(api.get(EXPLAIN, key="moon"), 404, "not_found", "key")
    assert_refused(api.get(EXPLAIN, sequence="9999"), 404, "not_found", "sequence")
    assert_refused(api.get(EXPLAIN, sequence="2", key="moon"), 404, "not_found", "sequence")
    assert_refused(api.get(EXPLAIN, sequence="2", tenantId="x"), 404, "not_found", "sequence")
    assert_refused(api.get(EXPLAIN, rejectId="9999"), 404, "not_found", "rejectId")
    assert_refused(api.get(EXPLAIN), 404, "not_found")
    assert_refused(api.get(EXPLAIN, sequence="two"), 400, "invalid_parameter", "sequence")


def test_a_key_that_several_tenants_have_needs_its_tenant(history: History) -> None:
    api = history.api
    for tenant in ("one", "two"):
        api.accept({**usage("c", f"{DAY}00:00:00Z", idempotencyKey="shared"), "tenantId": tenant})
    refused = api.get(EXPLAIN, key="shared")
    assert_refused(refused, 409, "ambiguous_key", "tenantId")
    assert "one, two" in refused.error["hint"]
    assert api.get(EXPLAIN, key="shared", tenantId="two").json["event"]["tenantId"] == "two"


def test_a_refusal_is_explained_with_what_it_conflicts_with(history: History) -> None:
    api = history.api
    event = usage("c", f"{DAY}12:00:00Z", quantity="99", idempotencyKey="noon")
    [result] = api.send(event)
    assert result["status"] == "conflict"
    [reject] = api.get("/admin/rejects", idempotencyKey="noon", tenantId="acme").json["rejects"]
    explained = api.get(EXPLAIN, rejectId=reject["rejectId"]).json
    assert (explained["kind"], explained["reject"]) == ("reject", reject)
    assert explained["original"]["ingressSequence"] == history.sequence("noon")
    assert f"as {history.sequence('noon')}, and says something else" in explained["answer"]
    # The event itself tells of it, too.
    assert history.explain("noon")["refusals"] == [reject]
    [result] = api.send({**event, "idempotencyKey": "refused", "quantity": "many"})
    assert result["status"] == "rejected"
    explained = api.get(EXPLAIN, key="refused", tenantId="acme").json
    assert explained["kind"] == "reject"
    assert explained["reject"]["error"]["code"] in explained["answer"]
    assert "original" not in explained


def test_a_correction_that_is_not_folded_yet_is_listed_as_such(history: History) -> None:
    history.api.accept(control("void", history.results["later"], reason="soon"))
    [correction] = history.explain("later")["corrections"]
    assert (correction["folded"], correction["decides"]) == (False, True)


def test_a_key_for_some_tenants_sees_only_theirs() -> None:
    with TidemarkServer(CONFIG, env=environment_with_keys()) as server:
        owner, reader = (Api(server.base_url, "acme", key) for key in ("everything", "reader"))
        own = usage("c", f"{DAY}00:00:00Z", idempotencyKey="k")
        results = owner.accept(own, {**own, "tenantId": "globex"})
        mine, theirs = (result["ingressSequence"] for result in results)
        assert reader.get(EXPLAIN, key="k").json["event"]["ingressSequence"] == mine
        assert reader.get(EXPLAIN, sequence=mine).status == 200
        assert_refused(reader.get(EXPLAIN, sequence=theirs), 404, "not_found", "sequence")
        assert_refused(reader.get(EXPLAIN, key="k", tenantId="globex"), 403, "forbidden")
        owner.send({**own, "tenantId": "globex", "quantity": "2"})
        [reject] = owner.get("/admin/rejects").json["rejects"]
        assert owner.get(EXPLAIN, rejectId=reject["rejectId"]).status == 200
        refused = reader.get(EXPLAIN, rejectId=reject["rejectId"])
        assert_refused(refused, 404, "not_found", "rejectId")
        sender = Api(server.base_url, "acme", "sender")
        assert_refused(sender.get(EXPLAIN, sequence=mine), 403, "forbidden")


def test_without_meters_and_views_the_ledger_still_answers() -> None:
    with TidemarkServer("streams: {usage: {kind: usage}}") as server:
        api = Api(server.base_url, "acme")
        [result] = api.accept(usage("c", f"{DAY}00:00:00Z"))
        explained = api.get(EXPLAIN, sequence=result["ingressSequence"]).json
        assert explained["pipeline"] == {
            "folded": None,
            "reason": "There are no meters and no views.",
        }


def test_views_that_are_away_do_not_keep_the_ledger_from_answering(
    second_postgres: PostgresServer,
) -> None:
    url = second_postgres.create_database()
    config = f"{CONFIG}\nview_store: {{url: '{url}'}}\n"
    with TidemarkServer(config) as server:
        api = Api(server.base_url, "acme")
        [result] = api.accept(usage("c", f"{DAY}00:00:00Z"))
        second_postgres.stop("immediate")
        deadline = time.monotonic() + 20
        while True:
            explained = api.get(EXPLAIN, sequence=result["ingressSequence"]).json
            if explained["pipeline"]["folded"] is None:
                break
            assert time.monotonic() < deadline, explained
        assert explained["pipeline"]["reason"].startswith("The views cannot be read: ")
        assert explained["event"]["ingressSequence"] == result["ingressSequence"]
        second_postgres.start()
