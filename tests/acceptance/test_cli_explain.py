"""`explain`: what became of an event, for people and for programs, and how it is all planned."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_runs import Ran, tidemark
from tests.integration.explained_history import CONFIG, History, make_history
from tests.services.ports import free_port
from tests.services.tidemark_server import TidemarkServer

EVENTTIME = """
streams:
  usage: {kind: usage}
  trades:
    fields: {trade_id: string, executed_at: timestamp}
    eventtime: {column: executed_at, type: iso8601}
pipeline:
  eventtime: {enabled: true, lateTolerance: 30s}
meters:
  bytes: {aggregate: max, period: day, lateness: 1h}
views:
  trades: {stream: trades, key: [trade_id]}
windows:
  by_minute: {stream: trades, size: 1m, aggregate: count}
  hopping: {stream: trades, size: 1m, every: 20s, aggregate: count}
"""


@pytest.fixture(scope="module")
def history() -> Iterator[History]:
    with TidemarkServer(CONFIG) as running:
        yield make_history(running)
        assert "Traceback" not in running.log_text(), running.log_text()


def explain(history: History, *args: object) -> Ran:
    return tidemark(
        "explain", *args, "--url", history.server.base_url, cwd=history.server.directory
    )


def titles(text: str) -> list[str]:
    """The sections, after the line of the answer."""
    return re.findall(r"^\n([a-z].*)$", text, re.MULTILINE)


def test_people_read_sections_in_the_order_of_the_flow(history: History) -> None:
    ran = explain(history, "noon")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Stored as 2. Counted by by_day, by_region, peak (it was not late)")
    assert titles(ran.out) == [
        *("identity", "place in order", "content", "time", "pipeline"),
        *("meters", "views"),
    ]
    assert "given by the sender" in ran.out
    assert re.search(r"^  paid: not counted: its condition was not true", ran.out, re.MULTILINE)
    assert re.search(r"^      agg_sum +none → 2\.5$", ran.out, re.MULTILINE)


def test_why_an_event_was_not_counted_stands_there(history: History) -> None:
    ran = explain(history, history.sequence("late"))
    assert "  by_day: adjusted: it happened longer before the row's watermark" in ran.out
    assert "late before 2025-01-31T11:00:00.000000Z (1h)" in ran.out
    assert titles(ran.out)[-3:] == ["meters", "adjustments", "views"]
    void = explain(history, history.sequence("void_late"))
    assert "the event that it corrects" in titles(void.out)
    shared = explain(history, history.sequence("both_paid"))
    assert "as its whole commit moved it, with 1 other event" in shared.out


def test_programs_read_what_the_server_answers(history: History) -> None:
    ran = explain(history, "noon", "--tenant", "acme", "--json")
    assert (ran.code, ran.json) == (0, history.explain("noon"))


@pytest.mark.parametrize("name", ["trade", "sold", "end", "adjust", "amend", "waiting", "seven"])
def test_every_kind_of_event_has_its_text(history: History, name: str) -> None:
    ran = explain(history, history.sequence(name))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Stored as {history.sequence(name)}")


def test_a_number_is_a_sequence_or_a_key_or_a_refusal(history: History) -> None:
    api = history.api
    [numbered] = api.accept(
        {**event_of("numbered"), "idempotencyKey": "2"},
    )
    assert explain(history, "2", "--json").json["event"]["idempotencyKey"] == "noon"
    of_tenant = explain(history, "2", "--tenant", "acme", "--json").json
    assert of_tenant["event"]["ingressSequence"] == numbered["ingressSequence"]
    as_sequence = explain(history, "2", "--tenant", "acme", "--as", "sequence", "--json").json
    assert as_sequence["event"]["idempotencyKey"] == "noon"
    api.send({**event_of("refused"), "quantity": "many", "idempotencyKey": "refused"})
    [reject] = api.get("/admin/rejects", limit="1").json["rejects"]
    ran = explain(history, reject["rejectId"], "--as", "reject")
    assert ran.code == 0
    assert ran.out.startswith("It was not stored: ")
    assert titles(ran.out) == ["refusal", "why", "what was sent"]
    assert explain(history, "refused").out == ran.out


def event_of(customer: str) -> dict[str, Any]:
    return {
        "tenantId": "acme",
        "metric": "bytes",
        "customerRef": customer,
        "ts": "2025-01-31T12:00:00Z",
        "quantity": "1",
    }


def test_an_event_that_is_not_there_is_an_error_with_a_hint(history: History) -> None:
    ran = explain(history, "moon", "--tenant", "acme")
    assert ran.code == 1
    assert "the tenant 'acme' has no event and no refusal with the key 'moon'" in ran.err
    assert "hint: " in ran.err
    ran = explain(history, "99999999", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "not_found")
    assert ran.json["error"]["hint"]


def test_what_an_event_says_does_not_drive_the_terminal(history: History) -> None:
    key = "\x1b[31mred\nnext"
    history.api.accept({**event_of("evil"), "idempotencyKey": key})
    ran = explain(history, key, "--tenant", "acme")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "\\u001b[31mred\\nnext" in ran.out


def test_the_plan_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "tidemark.yaml").write_text(EVENTTIME)
    ran = tidemark("explain", "--plan", cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("EventtimeWatermark\n")
    assert re.search(r"^trades +executed_at +iso8601 +30s", ran.out, re.MULTILINE)
    assert re.search(r"^bytes +max of bytes by day +[0-9a-f]{12}$", ran.out, re.MULTILINE)
    assert re.search(r"^trades +the last of trades by trade_id +[0-9a-f]{12}$", ran.out, re.M)
    document = tidemark("explain", "--plan", "--json", cwd=tmp_path).json
    assert re.search(r"^by_minute +count of trades in 1m +[0-9a-f]{12}$", ran.out, re.MULTILINE)
    assert re.search(r"^hopping +count of trades in 1m every 20s +[0-9a-f]{12}$", ran.out, re.M)
    assert list(document) == ["plan", "meaning", "streams", "meters", "tables", "windows"]
    assert document["streams"]["trades"]["late_tolerance_us"] == 30_000_000
    [meter] = document["meters"]
    assert re.fullmatch("[0-9a-f]{64}", meter["definitionHash"])


@pytest.mark.parametrize("args", [[], ["x", "--plan"]])
def test_an_event_or_the_plan_is_explained(tmp_path: Path, args: list[str]) -> None:
    ran = tidemark("explain", *args, cwd=tmp_path)
    assert ran.code == 2
    assert "hint: Give a key" in ran.err


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    ran = tidemark("explain", "x", "--url", url, cwd=tmp_path)
    assert ran.code == 1
    assert f"error: the server at {url} cannot be reached: [Errno 111]" in ran.err
