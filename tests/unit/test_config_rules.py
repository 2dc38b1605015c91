"""What must fit together across settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.config_files import A_KEY, SHA256_OF_SECRET, ConfigFile


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path)


@pytest.mark.parametrize("name", ["a", "_a1", "com.acme.order-placed", "A" * 64])
def test_a_stream_may_be_named_like_a_cloud_event(file: ConfigFile, name: str) -> None:
    assert name in file.load(f"streams: {{{name}: {{fields: {{x: int}}}}}}").streams


@pytest.mark.parametrize("name", ["1a", ".a", "-a", "a b", "a/b", "é", "A" * 65, ""])
def test_other_names_of_streams_are_refused(file: ConfigFile, name: str) -> None:
    problem = file.problem(f"streams: {{'{name}': {{fields: {{x: int}}}}}}")
    assert problem.path.startswith("streams.")
    assert "expected a name of at most 64 letters" in problem.message


@pytest.mark.parametrize("name", ["1a", "a.b", "a-b", "é", "A" * 65, ""])
def test_other_names_of_fields_are_refused(file: ConfigFile, name: str) -> None:
    problem = file.problem(f"streams: {{s: {{fields: {{'{name}': int}}}}}}")
    assert problem.path.startswith("streams.s.fields.")
    assert "expected a name of at most 64 letters" in problem.message


def test_there_is_at_most_one_usage_stream(file: ConfigFile) -> None:
    problem = file.problem("streams: {a: {kind: usage}, b: {kind: usage}}")
    assert problem.path == "streams.b.kind"
    assert '"a"' in problem.message


def test_a_usage_stream_has_its_own_identity(file: ConfigFile) -> None:
    problem = file.problem("streams: {u: {kind: usage, identity: [x], fields: {x: int}}}")
    assert problem.path == "streams.u.identity"
    assert "customerRef" in problem.hint


def test_only_a_usage_stream_has_metrics(file: ConfigFile) -> None:
    problem = file.problem("streams: {e: {metrics: [a], fields: {x: int}}}")
    assert problem.path == "streams.e.metrics"


def test_a_list_of_metrics_has_some(file: ConfigFile) -> None:
    assert file.problem("streams: {u: {kind: usage, metrics: []}}").path == "streams.u.metrics"


@pytest.mark.parametrize("stream", ["", "{}", "{fields: {}}", "{fields:}", "{kind: events}"])
def test_a_stream_of_events_declares_its_fields(file: ConfigFile, stream: str) -> None:
    problem = file.problem(f"streams: {{e: {stream}}}")
    assert problem.path == "streams.e.fields"
    assert problem.message == "expected at least one field, found none"


def test_a_usage_stream_needs_no_fields(file: ConfigFile) -> None:
    assert file.load("streams: {u: {kind: usage}}").streams["u"].fields == {}


@pytest.mark.parametrize(
    ("fields", "found", "hint"),
    [
        ("{trade_idd: string}", 'found "trade_id"', "Did you mean `trade_idd`?"),
        ("{trade_id: {type: string, required: false}}", "every event has", "required: false"),
        ("{trade_id: json}", "of type json", "single value"),
    ],
)
def test_an_identity_names_required_fields_of_a_plain_type(
    file: ConfigFile, fields: str, found: str, hint: str
) -> None:
    problem = file.problem(f"streams: {{t: {{identity: [trade_id], fields: {fields}}}}}")
    assert problem.path == "streams.t.identity[0]"
    assert found in problem.message
    assert hint in problem.hint


def test_an_identity_names_each_field_once(file: ConfigFile) -> None:
    problem = file.problem("streams: {t: {identity: [a, b, a], fields: {a: int, b: int}}}")
    assert problem.path == "streams.t.identity[2]"


@pytest.mark.parametrize("values", ["", ", values: []", ", values:"])
@pytest.mark.parametrize("shorthand", [False, True])
def test_an_enum_has_values(file: ConfigFile, values: str, shorthand: bool) -> None:
    field = "enum" if shorthand else f"{{type: enum{values}}}"
    problem = file.problem(f"streams: {{t: {{fields: {{side: {field}}}}}}}")
    assert problem.path == "streams.t.fields.side.values"


def test_the_values_of_an_enum_are_unique(file: ConfigFile) -> None:
    problem = file.problem("streams: {t: {fields: {s: {type: enum, values: [a, b, a]}}}}")
    assert problem.path == "streams.t.fields.s.values[2]"


def test_only_enums_have_values(file: ConfigFile) -> None:
    problem = file.problem("streams: {t: {fields: {s: {type: int, values: [a]}}}}")
    assert problem.message == "expected values only with type enum, found type int"


def test_only_strings_have_a_length(file: ConfigFile) -> None:
    problem = file.problem("streams: {t: {fields: {s: {type: json, max_length: 5}}}}")
    assert problem.message == "expected a length only with type string, found type json"


def test_keys_have_names_and_hashes_of_their_own(file: ConfigFile) -> None:
    other = A_KEY.replace(SHA256_OF_SECRET, SHA256_OF_SECRET.upper())
    problems = file.problems(f"auth: {{keys: [{A_KEY}, {other}]}}")
    assert [problem.path for problem in problems] == ["auth.keys[1].name", "auth.keys[1].sha256"]
    assert "auth.keys[0]" in problems[0].message


def test_a_scope_stands_once(file: ConfigFile) -> None:
    key = A_KEY.replace("[ingest]", "[ingest, ingest]")
    assert file.problem(f"auth: {{keys: [{key}]}}").path == "auth.keys[0].scopes[1]"


@pytest.mark.parametrize("host", ["0.0.0.0", "'::'", "10.0.0.1", "tide.example.com"])
def test_listening_for_others_needs_keys(file: ConfigFile, host: str) -> None:
    assert file.load(f"http: {{host: {host}}}\nauth: {{keys: [{A_KEY}]}}").auth.keys
    problem = file.problem(f"http: {{host: {host}}}")
    assert problem.path == "http.host"
    assert "auth.keys" in problem.message
    assert problem.hint == "Add a key under `auth.keys`, or listen on `127.0.0.1`."


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "'::1'", "localhost", "LOCALHOST."])
def test_listening_on_loopback_needs_none(file: ConfigFile, host: str) -> None:
    assert not file.load(f"http: {{host: {host}}}").auth.keys


@pytest.mark.parametrize("bound", ["max_group_events", "max_queued_events"])
def test_a_full_request_fits_into_one_commit_and_the_queue(file: ConfigFile, bound: str) -> None:
    problem = file.problem(f"ledger: {{{bound}: 999}}")
    assert problem.path == "http.max_events"
    assert f"expected at most 999, which is `ledger.{bound}`, found 1000" in problem.message
    assert file.load(f"ledger: {{{bound}: 999}}\nhttp: {{max_events: 999}}").http.max_events == 999


def test_the_largest_event_fits_into_a_request(file: ConfigFile) -> None:
    assert file.problem("http: {max_body_bytes: 65535}").path == "ingest.max_event_bytes"


def test_rules_still_speak_when_something_else_has_the_wrong_type(file: ConfigFile) -> None:
    problems = file.problems("""
        http: {host: 0.0.0.0, port: x}
        auth: {keys: 5}
        streams:
          a: 5
          b: {kind: usage, fields: 5}
          c: {kind: usage, identity: 5, metrics: {}}
          d: {fields: {x: 5, y: {type: 5, values: 5}}, identity: [1, z]}
    """)
    assert {"http.port", "auth.keys", "streams.a", "streams.c.kind", "streams.d.identity[1]"} <= {
        problem.path for problem in problems
    }


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("bootstrap.servers: x", "Use `mirror.bootstrap_servers`."),
        ("transactional.id: x", "Remove it: each event must be in Kafka once."),
        ("acks: 1", "Remove it: each event must be in Kafka once."),
        (
            "delivery.report.only.error: true",
            "Remove it: the mirror has to be told where each event is.",
        ),
        (
            "message.timeout.ms: 1000",
            "Use `transaction.timeout.ms`: a transaction is sent whole, or given up.",
        ),
        (
            "message.max.bytes: 1000",
            "Use `ingest.max_event_bytes`: the mirror sends whatever is let in.",
        ),
        ("enable.gapless.guarantee: true", "Remove it: the mirror leaves no gap by itself."),
        ("test.mock.num.brokers: 3", "Remove it: events would be nowhere."),
        ("partitioner: random", "Remove it: events must be in Kafka in their order."),
        (
            "isolation.level: read_uncommitted",
            "Remove it: only what is committed may be read, and all of it.",
        ),
    ],
)
def test_options_that_the_mirror_rests_on_are_no_choice(
    file: ConfigFile, option: str, hint: str
) -> None:
    problem = file.problem(f"mirror: {{options: {{{option}}}}}")
    assert problem.path.replace('"', "") == f"mirror.options.{option.partition(':')[0]}"
    assert problem.hint == hint
    file.load("mirror: {options: {security.protocol: SSL, linger.ms: 20}}")


@pytest.mark.parametrize("prefix", ["a b", "ä", "a/b", "x" * 65])
def test_a_prefix_must_be_what_topics_can_be_called(file: ConfigFile, prefix: str) -> None:
    assert file.problem(f"mirror: {{topic_prefix: '{prefix}'}}").path == "mirror.topic_prefix"


def test_streams_that_kafka_takes_for_the_same_are_refused_where_there_is_a_mirror(
    file: ConfigFile,
) -> None:
    streams = "streams: {a.b: {fields: {x: int}}, a_b: {fields: {x: int}}}"
    file.load(streams)
    problem = file.problem(f"{streams}\nmirror: {{enabled: true}}")
    assert problem.path == "streams.a_b"
    assert "Kafka tells from" in problem.message
