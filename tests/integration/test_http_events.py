"""`POST /v1/events`: one result per event, in order, said only when it is durable."""

from __future__ import annotations

import socket
from http.client import HTTPConnection

import pytest

from tests.integration.http_client import TS, Api, assert_error, encode, trade, usage
from tests.services.tidemark_server import TidemarkServer


def test_the_results_stand_in_the_order_of_the_events(api: Api) -> None:
    known = usage(api.tenant, customerRef="known")
    [stored] = api.accept(known)
    answer = api.post(
        usage(api.tenant),
        known,
        {**known, "quantity": "99"},
        usage(api.tenant, quantity="much"),
        trade(api.tenant),
    )
    assert answer.status == 200
    body = answer.json
    results = body["results"]
    assert [result["status"] for result in results] == [
        "accepted",
        "duplicate",
        "conflict",
        "rejected",
        "accepted",
    ]
    counts = (body["accepted"], body["duplicates"], body["conflicts"], body["rejected"])
    assert counts == (2, 1, 1, 1)
    assert body["requestId"]
    assert set(results[0]) == {"status", "idempotencyKey", "ingressSequence", "receivedAt"}
    assert results[1] == {**stored, "status": "duplicate"}
    assert results[2]["ingressSequence"] == stored["ingressSequence"]
    assert_error(results[2]["error"], "content_conflict", "idempotencyKey")
    assert_error(results[3]["error"], "invalid_decimal", "quantity")
    assert "ingressSequence" not in results[3]


def test_sequences_are_strings_and_times_have_six_digits(api: Api) -> None:
    [result] = api.accept(usage(api.tenant))
    assert result["ingressSequence"].isdecimal()
    assert result["receivedAt"].endswith("Z")
    assert len(result["receivedAt"]) == len("2025-01-31T12:00:00.000000Z")


def test_the_same_instant_spelt_otherwise_is_the_same_event(api: Api) -> None:
    [first] = api.accept(usage(api.tenant, ts="2025-01-01T00:00:00Z", quantity=1))
    [again] = api.send(usage(api.tenant, ts="2025-01-01T01:00:00+01:00", quantity="1.00"))
    assert again == {**first, "status": "duplicate"}


def test_a_microsecond_makes_two_events(api: Api) -> None:
    api.accept(
        usage(api.tenant, ts="2025-01-01T00:00:00.123456Z"),
        usage(api.tenant, ts="2025-01-01T00:00:00.123999Z"),
    )


def test_a_repeat_inside_one_request_is_a_duplicate_of_the_first(api: Api) -> None:
    event = usage(api.tenant)
    first, again, changed = api.send(event, event, {**event, "quantity": 2})
    assert again == {**first, "status": "duplicate"}
    assert changed["status"] == "conflict"
    assert changed["ingressSequence"] == first["ingressSequence"]


def test_a_whole_request_may_be_sent_again(api: Api) -> None:
    events = [usage(api.tenant, customerRef=f"c{n}") for n in range(5)]
    first = api.accept(*events)
    assert api.send(*events) == [{**result, "status": "duplicate"} for result in first]


def test_one_tenants_key_does_not_swallow_anothers_event(api: Api) -> None:
    other = Api(api.base_url, f"{api.tenant}-other")
    [mine] = api.accept(usage(api.tenant, idempotencyKey="k"))
    [theirs] = other.accept(usage(other.tenant, idempotencyKey="k", quantity=7))
    assert mine["idempotencyKey"] == theirs["idempotencyKey"] == "k"
    assert api.event("k")["quantity"] == "1.5"
    assert other.event("k")["quantity"] == "7"


def test_a_thousand_events_are_one_commit_with_dense_numbers_in_request_order(api: Api) -> None:
    events = [usage(api.tenant, resourceId=f"r{n}") for n in range(1000)]
    results = api.accept(*events)
    sequences = [int(result["ingressSequence"]) for result in results]
    assert sequences == list(range(sequences[0], sequences[0] + 1000))
    assert len({result["receivedAt"] for result in results}) == 1
    assert [event["resourceId"] for event in api.events(limit="1000")] == [
        event["resourceId"] for event in events
    ]


def test_an_event_comes_back_as_it_was_sent(api: Api) -> None:
    event = usage(
        api.tenant,
        quantity="-12.500",
        resourceId="vm-1",
        meta={"b": 1.0, "a": "ä"},
        causalityKey="run-7",
        source="gateway",
        idempotencyKey="mine / ünique",
    )
    [result] = api.accept(event)
    stored = api.event("mine / ünique")
    assert stored.pop("contentHash")
    assert stored == {
        "ingressSequence": result["ingressSequence"],
        "receivedAt": result["receivedAt"],
        "occurredAt": "2025-01-31T12:00:00.000000Z",
        "tenantId": api.tenant,
        "stream": "usage",
        "idempotencyKey": "mine / ünique",
        "metric": "api_calls",
        "customerRef": "cus_42",
        "resourceId": "vm-1",
        "quantity": "-12.5",
        "meta": {"a": "ä", "b": 1},
        "causalityKey": "run-7",
        "source": "gateway",
    }


def test_a_stream_event_without_a_time_happened_when_it_was_received(api: Api) -> None:
    [result] = api.accept(trade(api.tenant))
    stored = api.event(result["idempotencyKey"])
    assert stored["occurredAt"] == stored["receivedAt"] == result["receivedAt"]
    assert stored["data"]["executed_at"] == "2025-01-31T12:00:00.000000Z"
    assert stored["data"]["price"] == "12.5"


def test_control_events_are_stored_in_order_with_what_they_name(api: Api) -> None:
    tenant = api.tenant
    results = api.accept(
        usage(tenant, idempotencyKey="original"),
        {
            "control": "amend",
            "tenantId": tenant,
            "target": "original",
            "event": {"ts": TS, "quantity": "2"},
            "reason": "measured again",
        },
        {"control": "void", "tenantId": tenant, "target": "original", "reason": "a test"},
        {
            "control": "adjust",
            "tenantId": tenant,
            "metric": "api_calls",
            "customerRef": "cus_42",
            "periodStart": "2025-01-01T00:00:00Z",
            "quantity": "-3",
            "reason": "goodwill",
        },
        {"control": "end", "tenantId": tenant, "stream": "trades"},
    )
    stored = api.events()
    assert [event.get("control") for event in stored] == [None, "amend", "void", "adjust", "end"]
    assert [event["idempotencyKey"] for event in stored] == [
        result["idempotencyKey"] for result in results
    ]
    amend, void, adjust, end = stored[1:]
    assert (amend["target"], amend["quantity"]) == ("original", "2")
    assert amend["data"]["reason"] == "measured again"
    assert void["target"] == "original"
    assert (adjust["quantity"], adjust["data"]["reason"]) == ("-3", "goodwill")
    assert end["stream"] == "trades"


@pytest.mark.parametrize(
    ("control", "code", "field"),
    [
        ({"control": "void", "target": "nothing"}, "unknown_target", "target"),
        ({"control": "void"}, "missing_field", "target"),
        ({"control": "amend", "target": "original"}, "missing_field", "event"),
        (
            {"control": "amend", "target": "original", "event": {"metric": "other"}},
            "amend_changes_identity",
            "event.metric",
        ),
        ({"control": "void", "target": "voided"}, "target_is_correction", "target"),
        ({"control": "erase", "target": "original"}, "unknown_control", "control"),
        ({"control": "end", "stream": "nowhere"}, "unknown_stream", "stream"),
        ({"control": "adjust", "metric": "m"}, "missing_field", "customerRef"),
    ],
)
def test_a_control_event_that_makes_no_sense_is_rejected(
    api: Api, control: dict[str, object], code: str, field: str
) -> None:
    api.accept(
        usage(api.tenant, idempotencyKey="original"),
        {
            "control": "void",
            "tenantId": api.tenant,
            "target": "original",
            "idempotencyKey": "voided",
        },
    )
    before, refused, after = api.send(
        usage(api.tenant, customerRef="before"),
        {"tenantId": api.tenant, **control},
        usage(api.tenant, customerRef="after"),
    )
    assert before["status"] == after["status"] == "accepted"
    assert refused["status"] == "rejected"
    assert_error(refused["error"], code, field)


def test_a_body_may_come_in_chunks(api: Api) -> None:
    body = encode({"events": [usage(api.tenant)]})
    answer = api.call("POST", "/v1/events", body=(body[n : n + 7] for n in range(0, len(body), 7)))
    assert (answer.status, answer.json["accepted"]) == (200, 1)


@pytest.mark.parametrize(
    "content_type", [None, "application/json; charset=utf-8", "Application/JSON"]
)
def test_json_may_be_called_json_in_several_ways(api: Api, content_type: str | None) -> None:
    answer = api.post_raw(encode({"events": [usage(api.tenant)]}), content_type)
    assert (answer.status, answer.json["accepted"]) == (200, 1)


def test_a_byte_order_mark_is_passed_over(api: Api) -> None:
    answer = api.post_raw(b"\xef\xbb\xbf" + encode({"events": [usage(api.tenant)]}))
    assert (answer.status, answer.json["accepted"]) == (200, 1)


def test_one_connection_serves_many_requests(api: Api, server: TidemarkServer) -> None:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        for number in range(5):
            body = encode({"events": [usage(api.tenant, customerRef=f"c{number}")]})
            connection.request("POST", "/v1/events", body=body)
            response = connection.getresponse()
            assert (response.status, b'"accepted":1' in response.read()) == (200, True)
    finally:
        connection.close()


def test_a_client_that_asks_first_is_told_to_go_on(api: Api, server: TidemarkServer) -> None:
    body = encode({"events": [usage(api.tenant)]})
    head = (
        "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(head.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_what_was_accepted_survives_the_death_of_the_process(tenant: str) -> None:
    with TidemarkServer() as server:
        api = Api(server.base_url, tenant)
        results = api.accept(*(usage(tenant, customerRef=f"c{n}") for n in range(20)))
        server.kill()
        server.restart()
        stored = [(event["idempotencyKey"], event["ingressSequence"]) for event in api.events()]
        assert stored == [(it["idempotencyKey"], it["ingressSequence"]) for it in results]
        [next_one] = api.accept(usage(tenant, customerRef="next"))
        assert int(next_one["ingressSequence"]) == len(results) + 1
