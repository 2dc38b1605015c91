"""What is said about a fault: its path, what was expected, what was found, what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.config_files import SHA256_OF_SECRET, ConfigFile
from tidemark.config import InvalidConfig


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path)


def test_every_problem_of_a_file_is_reported_at_once_in_its_order(file: ConfigFile) -> None:
    problems = file.problems("""
        stateDir: x
        ledger: {url: "mysql://h/db", tick: 5 minutes}
        http: {host: 0.0.0.0, port: eighty}
        streams:
          usage: {kind: usage, identity: [a]}
          trades:
            identity: [trade_idd]
            fields:
              trade_id: str
              side: {type: enum}
    """)
    assert [problem.path for problem in problems] == [
        "stateDir",
        "ledger.url",
        "ledger.tick",
        "http.host",
        "http.port",
        "streams.usage.identity",
        "streams.trades.identity[0]",
        "streams.trades.fields.trade_id.type",
        "streams.trades.fields.side.values",
    ]
    assert problems[0].where == "line 2, column 1"
    assert problems[-1].where == "line 11, column 7"


def test_one_problem_is_the_error_itself(file: ConfigFile) -> None:
    with pytest.raises(InvalidConfig) as caught:
        file.load("http:\n  port: eighty\n")
    assert caught.value.as_dict() == {
        "code": "config_invalid",
        "message": (
            f"{file.path}: line 2, column 3: http.port: "
            'expected a whole number from 0 to 65535, found "eighty"'
        ),
        "hint": "",
        "field": "http.port",
    }


def test_several_problems_are_listed_in_the_message(file: ConfigFile) -> None:
    with pytest.raises(InvalidConfig) as caught:
        file.load("http: {port: '80'}\nport: 1\n")
    assert caught.value.message == (
        f"{file.path} has 2 problems:\n"
        "  line 1, column 8: http.port: expected a whole number from 0 to 65535, "
        'found "80". Write it without quotes.\n'
        "  line 2, column 1: port: there is no such setting. Did you mean `http.port`?"
    )
    assert caught.value.field == "http.port"


@pytest.mark.parametrize(
    ("text", "path", "message", "hint"),
    [
        (
            "http: {port: 65536}",
            "http.port",
            "expected a whole number from 0 to 65535, found 65536",
            "",
        ),
        ("http: {port: -1}", "http.port", "expected a whole number from 0 to 65535, found -1", ""),
        (
            "http: {port: 1.5}",
            "http.port",
            "expected a whole number from 0 to 65535, found 1.5",
            "",
        ),
        (
            "http: {workers: true}",
            "http.workers",
            "expected a whole number from 1 to 64, found true",
            "",
        ),
        (
            "http: {workers: 0}",
            "http.workers",
            "expected a whole number from 1 to 64, found 0",
            "",
        ),
        (
            "http: {port:}",
            "http.port",
            "expected a whole number from 0 to 65535, found nothing",
            "Leave it out to have the default.",
        ),
        (
            "http: {port: [1]}",
            "http.port",
            "expected a whole number from 0 to 65535, found a list",
            "",
        ),
        ("http: 80", "http", "expected a mapping of settings, found a number or a truth value", ""),
        ("http: [80]", "http", "expected a mapping of settings, found a list", ""),
        (
            "http: {allowed_hosts: a.example.com}",
            "http.allowed_hosts",
            "expected a list, found text",
            "Put it in brackets: `[…]`.",
        ),
        (
            "http: {allowed_origins: [https://a.example.com/]}",
            "http.allowed_origins[0]",
            'expected an origin such as `https://app.example.com`, found "https://a.example.com/"',
            "Give scheme, host and port only, without a path or a slash at the end.",
        ),
        (
            "ledger: {tick: 5}",
            "ledger.tick",
            "expected a duration of at least 1ms, such as `5s`, `5m` or `48h`, found 5",
            "Say the unit, for example `5s` or `5ms`.",
        ),
        (
            "ledger: {tick: 0s}",
            "ledger.tick",
            'expected a duration of at least 1ms, such as `5s`, `5m` or `48h`, found "0s"',
            "",
        ),
        (
            "ingest: {future_limit: 1 hour}",
            "ingest.future_limit",
            'expected a duration such as `5s`, `5m` or `48h`, found "1 hour"',
            "Did you mean `1h`?",
        ),
        (
            "ingest: {future_limit: -1h}",
            "ingest.future_limit",
            'expected a duration such as `5s`, `5m` or `48h`, found "-1h"',
            "Write a whole number and one of us, ms, s, m, h, d; at most 36500d.",
        ),
        (
            "state_dir: 5",
            "state_dir",
            "expected the path of a directory, found 5",
            "",
        ),
        (
            "streams: {tidemark.mine: {fields: {a: string}}}",
            'streams."tidemark.mine"',
            "names that begin with `tidemark.` are Tidemark's own",
            "Give the stream another name.",
        ),
        (
            "streams: {a: {kind: Usage}}",
            "streams.a.kind",
            'expected one of usage, events, found "Usage"',
            "Did you mean `usage`?",
        ),
        (
            "streams: {a: {fields: {b: float}}}",
            "streams.a.fields.b.type",
            "expected one of string, int, bigint, decimal, boolean, timestamp, json, enum, "
            'found "float"',
            "Did you mean `decimal`?",
        ),
        (
            "streams: {a: {fields: {b: {required: true}}}}",
            "streams.a.fields.b.type",
            "expected one of string, int, bigint, decimal, boolean, timestamp, json, enum, "
            "found nothing",
            "",
        ),
        (
            "streams: {a: {fields: {b: {type: enum, values: [x, 1]}}}}",
            "streams.a.fields.b.values[1]",
            "expected text of 1 to 256 characters, found 1",
            "Put it in quotes to make it text.",
        ),
        (
            "streams: {a: {truncate: yes, fields: {b: int}}}",
            "streams.a.truncate",
            'expected `true` or `false`, found "yes"',
            "",
        ),
        (
            "streams: {a: {truncate: 'True', fields: {b: int}}}",
            "streams.a.truncate",
            'expected `true` or `false`, found "True"',
            "Write it without quotes.",
        ),
        (
            f"auth: {{keys: [{{name: a, sha256: {SHA256_OF_SECRET}, scopes: [ingst], "
            "tenants: [t]}]}",
            "auth.keys[0].scopes[0]",
            'expected one of ingest, control, read, triggers, introspect, admin, found "ingst"',
            "Did you mean `ingest`?",
        ),
        (
            f"auth: {{keys: [{{name: a, sha256: {SHA256_OF_SECRET}, scopes: [read], "
            "tenants: []}]}",
            "auth.keys[0].tenants",
            "expected a list with an entry or more, found an empty list",
            "",
        ),
        (
            f"auth: {{keys: [{{name: '', sha256: {SHA256_OF_SECRET}, scopes: [read], "
            "tenants: [t]}]}",
            "auth.keys[0].name",
            'expected text of 1 to 256 characters, found ""',
            "",
        ),
    ],
)
def test_a_fault_says_what_was_expected_and_what_was_found(
    file: ConfigFile, text: str, path: str, message: str, hint: str
) -> None:
    problem = file.problem(text)
    assert (problem.path, problem.message, problem.hint) == (path, message, hint)


_ALL_URLS = (
    "`ledger.url`, `sequence.url`, `view_store.url`, `landing.clickhouse.url` or"
    " `trigger_store.url`"
)


@pytest.mark.parametrize(
    ("text", "path", "meant"),
    [
        ("stateDir: x", "stateDir", "`state_dir`"),
        ("State-Dir: x", "State-Dir", "`state_dir`"),
        ("htpp: {}", "htpp", "`http`"),
        ("port: 1", "port", "`http.port`"),
        ("url: x", "url", _ALL_URLS),
        ("landing: {click_house: {}}", "landing.click_house", "`clickhouse`"),
        ("http: {maxEvents: 1}", "http.maxEvents", "`max_events`"),
        ("http: {prot: 1}", "http.prot", "`port`"),
        ("ledger: {dsn: x}", "ledger.dsn", "`url`"),
        ("ledger: {tick_us: 1}", "ledger.tick_us", "`tick`"),
        ("streams: {a: {idle_after: 1s, fields: {x: int}}}", "streams.a.idle_after", "`idleAfter`"),
        ("streams: {a: {fields: {x: {type: string, maxLength: 1}}}}", None, "`max_length`"),
        ("streams: {a: {fields: {x: {type: enum, values: [y], enum: [y]}}}}", None, "`values`"),
    ],
)
def test_an_unknown_key_comes_with_what_was_meant(
    file: ConfigFile, text: str, path: str | None, meant: str
) -> None:
    problem = file.problem(text)
    assert path is None or problem.path == path
    assert problem.message == "there is no such setting"
    assert problem.hint == f"Did you mean {meant}?"


def test_an_unknown_key_like_no_other_comes_with_all_there_are(file: ConfigFile) -> None:
    assert file.problem("zzz: 1").hint == (
        "There are `state_dir`, `ledger`, `sequence`, `http`, `ingest`, `auth`, `streams`, "
        "`meters`, `views`, `windows`, `pipeline`, `view_store`, `landing`, `mirror`, `spark`, "
        "`live`, `triggers`, `trigger_store` and `webhooks`."
    )


@pytest.mark.parametrize("root", ["- a", "just text", "5", "true", "[]"])
def test_a_file_that_is_no_mapping_is_refused_as_a_whole(file: ConfigFile, root: str) -> None:
    problem = file.problem(root)
    assert problem.path == ""
    assert problem.message.startswith("expected a mapping of settings, found a")


@pytest.mark.parametrize(
    ("host", "hint"),
    [
        ("http://localhost", "Leave out the scheme."),
        ("'[::1]'", "Write an IPv6 address without brackets."),
        ("localhost:80", "Leave out the port; it is `http.port`."),
        ("127.0.0.256", ""),
        ("a b", ""),
        ("''", ""),
    ],
)
def test_a_host_is_a_bare_name_or_address(file: ConfigFile, host: str, hint: str) -> None:
    problem = file.problem(f"http: {{host: {host}}}")
    assert problem.path == "http.host"
    assert problem.message.startswith("expected a host name or an IP address, found ")
    assert problem.hint == hint


@pytest.mark.parametrize(
    ("url", "found", "hint"),
    [
        ("mysql://h/db", "the scheme `mysql`", ""),
        ("postgersql://h/db", "the scheme `postgersql`", "Did you mean `postgresql://`?"),
        ("pg://h/db", "the scheme `pg`", "Did you mean `postgresql://`?"),
        ("postgresql+asyncpg://h/db", "the scheme `postgresql+asyncpg`", "`postgresql://`"),
        ("sqlite3:///a.db", "the scheme `sqlite3`", "Did you mean `sqlite://`?"),
        ("ledger.db", "text without a scheme", ""),
        ("localhost:5432/db", "text without a scheme", ""),
        ("sqlite:ledger.db", "text without a scheme", ""),
        ("sqlite://ledger.db", "no path of a file after `sqlite:///`", "relative to the config"),
        ("sqlite:///", "no path of a file after `sqlite:///`", "relative to the config"),
        ("sqlite:///dir/", "no path of a file after `sqlite:///`", "relative to the config"),
        ("sqlite:///a.db?mode=ro", "a `?` or `#` in the path", "relative to the config"),
        ("sqlite:///:memory:", "`:memory:` for a path", "durable"),
        ("postgresql://u:p/w@h/db", "a host or port that cannot be read", "%2F"),
        ("postgresql://u:1/w@h/db", "an `@` behind the host", "%2F"),
        ("postgresql://h:99999/db", "a host or port that cannot be read", "%2F"),
        ("postgresql://h:x/db", "a host or port that cannot be read", "%2F"),
        ("postgresql://h/my db", "white space in it", "%20"),
    ],
)
def test_an_address_that_cannot_be_used_says_why(
    file: ConfigFile, url: str, found: str, hint: str
) -> None:
    problem = file.problem(f"ledger: {{url: '{url}'}}")
    assert problem.path == "ledger.url"
    assert problem.message.startswith("expected an address such as `sqlite:///ledger.db`")
    assert problem.message.endswith(f", found {found}")
    assert hint in problem.hint


@pytest.mark.parametrize(
    "rest",
    [
        "h/db",
        "u:p@h:5432/db?sslmode=require",
        "/db?host=/var/run/postgresql",
        "h1:1,h2:2/db",
        "[::1]:5432/db",
        "u:a%2Fb@h",
        "",
    ],
)
@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "PostgreSQL"])
def test_both_names_of_the_scheme_are_one(file: ConfigFile, scheme: str, rest: str) -> None:
    config = file.load(f"ledger: {{url: '{scheme}://{rest}'}}")
    assert config.ledger.url == f"postgresql://{rest}"


@pytest.mark.parametrize(
    ("url", "found", "hint"),
    [
        ("clickhouse://h", "the scheme `clickhouse`", "Did you mean `http://`?"),
        ("localhost:8123", "text without a scheme", ""),
        ("chdb://events", "no path of a directory after `chdb:///`", "relative to the config"),
        ("chdb:///", "no path of a directory after `chdb:///`", "relative to the config"),
        ("chdb:///a?b=c", "a `?` or `#` in the path", "relative to the config"),
        ("http://", "a host or port that cannot be read", "%2F"),
        ("https://u:p/w@h", "a host or port that cannot be read", "%2F"),
        ("https://u:1/w@h", "an `@` behind the host", "%2F"),
        ("https://h:99999", "a host or port that cannot be read", "%2F"),
        ("https://h:8443/events", "a path behind the host", "`database`"),
        ("https://u:my pass@h", "white space in it", "%20"),
    ],
)
def test_an_address_of_clickhouse_that_cannot_be_used_says_why(
    file: ConfigFile, url: str, found: str, hint: str
) -> None:
    problem = file.problem(f"landing: {{clickhouse: {{url: '{url}'}}}}")
    assert problem.path == "landing.clickhouse.url"
    assert problem.message.startswith("expected an address such as `https://user@host:8443`")
    assert problem.message.endswith(f", found {found}")
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("http://h", "http://h"),
        ("HTTPS://u:p%40@h:8443/?verify=false", "https://u:p%40@h:8443/?verify=false"),
        ("http://[::1]:8123", "http://[::1]:8123"),
        ("chdb:///landed/", "chdb:///{base}/landed"),
        ("chdb:////var/landed", "chdb:////var/landed"),
    ],
)
def test_addresses_of_clickhouse_have_one_spelling(
    file: ConfigFile, written: str, read: str
) -> None:
    config = file.load(f"landing: {{clickhouse: {{url: '{written}'}}}}")
    assert config.landing.clickhouse.url == read.format(base=file.path.parent)


@pytest.mark.parametrize("key", ["database", "table"])
@pytest.mark.parametrize("name", ["a b", "1st", "x;y", "", "a" * 64])
def test_a_name_that_clickhouse_would_have_to_quote_is_refused(
    file: ConfigFile, key: str, name: str
) -> None:
    problem = file.problem(f"landing: {{clickhouse: {{{key}: '{name}'}}}}")
    assert problem.path == f"landing.clickhouse.{key}"
    assert problem.message.startswith("expected a name of letters, digits and underscores")


def test_the_sequence_database_is_never_a_file(file: ConfigFile) -> None:
    problem = file.problem("sequence: {url: 'sqlite:///a.db'}")
    assert problem.message == (
        "expected an address such as `postgresql://host/name`, found the scheme `sqlite`"
    )


def test_a_name_with_dots_is_quoted_in_a_path(file: ConfigFile) -> None:
    problem = file.problem("streams: {com.acme.order: {fields: {a: strng}}}")
    assert problem.path == 'streams."com.acme.order".fields.a.type'


def test_long_and_odd_values_are_shown_short_and_on_one_line(file: ConfigFile) -> None:
    problem = file.problem('streams: {a: {kind: "x\\ny' + "z" * 500 + '"}}')
    assert "\n" not in problem.message
    assert "\\n" in problem.message
    assert len(problem.message) < 120
