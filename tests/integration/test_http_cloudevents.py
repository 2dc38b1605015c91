"""CloudEvents 1.0 as the CloudEvents SDK for Python sends them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cloudevents.core.bindings.http import HTTPMessage, to_binary_event, to_structured_event
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from cloudevents.v1.conversion import to_structured as first_to_structured
from cloudevents.v1.http import CloudEvent as FirstCloudEvent

from tests.integration.http_client import Api, assert_error, assert_refused, trade, usage
from tests.services.http_calls import Answer

BATCH = "application/cloudevents-batch+json"
MOMENT = datetime(2025, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


def cloud_event(api: Api, trade_id: str = "t-1", **attributes: Any) -> CloudEvent:
    return CloudEvent(
        attributes={
            "id": trade_id,
            "source": "/desk/7",
            "type": "trades",
            "time": MOMENT,
            "tenantid": api.tenant,
            "datacontenttype": "application/json",
            **attributes,
        },
        data=trade(api.tenant, trade_id)["data"],
    )


def send(api: Api, message: HTTPMessage) -> Answer:
    return api.call("POST", "/v1/events", body=message.body, headers=message.headers)


def send_batch(api: Api, *events: CloudEvent) -> Answer:
    body = b"[%s]" % b",".join(JSONFormat().write(event) for event in events)
    return api.post_raw(body, BATCH)


def test_a_structured_event_is_stored_with_its_time_source_and_id(api: Api) -> None:
    answer = send(api, to_structured_event(cloud_event(api, causalitykey="run-1")))
    assert (answer.status, answer.json["accepted"]) == (200, 1)
    [result] = answer.json["results"]
    stored = api.event(result["idempotencyKey"])
    assert stored["stream"] == "trades"
    assert stored["occurredAt"] == "2025-01-31T12:00:00.123456Z"
    assert (stored["source"], stored["sourceId"]) == ("/desk/7", "t-1")
    assert stored["causalityKey"] == "run-1"
    assert stored["data"]["symbol"] == "TIDE"


def test_the_first_generation_of_the_sdk_works_too(api: Api) -> None:
    event = FirstCloudEvent(
        {"type": "trades", "source": "/desk/7", "tenantid": api.tenant, "time": MOMENT.isoformat()},
        trade(api.tenant)["data"],
    )
    headers, body = first_to_structured(event)
    answer = api.call("POST", "/v1/events", body=body, headers=headers)
    assert (answer.status, answer.json["accepted"]) == (200, 1)


def test_a_batch_has_a_result_for_each_event(api: Api) -> None:
    unknown = cloud_event(api, "t-3", type="traids")
    answer = send_batch(api, cloud_event(api), cloud_event(api, "t-2"), unknown, cloud_event(api))
    assert answer.status == 200
    results = answer.json["results"]
    assert [it["status"] for it in results] == ["accepted", "accepted", "rejected", "duplicate"]
    assert_error(results[2]["error"], "unknown_stream", "type")
    assert "trades" in results[2]["error"]["hint"]


def test_a_cloudevent_and_the_plain_form_of_it_are_one_event(api: Api) -> None:
    answer = send(api, to_structured_event(cloud_event(api)))
    [first] = answer.json["results"]
    plain = {**trade(api.tenant), "occurredAt": "2025-01-31T12:00:00.123456Z"}
    [again] = api.send(plain)
    assert again == {**first, "status": "duplicate"}


def test_a_cloudevent_that_carries_a_usage_event_is_that_usage_event(api: Api) -> None:
    event = usage(api.tenant)
    [first] = api.accept(event)
    carried = CloudEvent(attributes={"id": "x", "source": "/meter", "type": "usage"}, data=event)
    answer = send(api, to_structured_event(carried))
    assert answer.json["results"] == [{**first, "status": "duplicate"}]


def test_one_cloudevent_that_makes_no_sense_is_a_rejected_result(api: Api) -> None:
    answer = api.post_raw(b'{"specversion": "1.0"}', "application/cloudevents+json")
    assert (answer.status, answer.json["rejected"]) == (200, 1)
    assert_error(answer.json["results"][0]["error"], "missing_field", "id")


def test_binary_mode_is_refused_with_what_to_send_instead(api: Api) -> None:
    answer = send(api, to_binary_event(cloud_event(api)))
    assert_refused(answer, 415, "cloudevents_binary_mode", "content-type")
    assert "application/cloudevents+json" in answer.error["hint"]


def test_a_cloudevent_in_the_wrong_content_type_is_told_the_right_one(api: Api) -> None:
    message = to_structured_event(cloud_event(api))
    answer = api.post_raw(message.body, "application/json")
    assert answer.status == 400
    assert answer.error["code"] == "invalid_body"
    assert "application/cloudevents+json" in answer.error["hint"]
