"""Settings from environment variables, and variables that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.config_files import A_KEY, ConfigFile
from tidemark.config.environment import RESERVED, variable

STREAMS = """
    streams:
      trades: {fields: {price: decimal}}
      com.acme.order-placed: {fields: {id: int}}
"""


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path)


@pytest.mark.parametrize(
    "name", ["TIDEMARK_HTTP__PORT", "TIDEMARK_http__port", "TIDEMARK_H_TTP__PO_RT"]
)
def test_the_environment_wins_over_the_file_whatever_the_case(file: ConfigFile, name: str) -> None:
    assert file.load("http: {port: 1, workers: 3}", {name: "9000"}).http.port == 9000
    assert file.load("http: {port: 1, workers: 3}", {name: "9000"}).http.workers == 3


def test_a_section_that_the_file_lacks_or_leaves_empty_can_be_set(file: ConfigFile) -> None:
    assert file.load("", {"TIDEMARK_HTTP__PORT": "9000"}).http.port == 9000
    assert file.load("http:", {"TIDEMARK_HTTP__PORT": "9000"}).http.port == 9000


def test_keys_in_camel_case_are_found_with_and_without_underscore(file: ConfigFile) -> None:
    for name in ("IDLEAFTER", "IDLE_AFTER", "idleAfter"):
        config = file.load(STREAMS, {f"TIDEMARK_STREAMS__TRADES__{name}": "5s"})
        assert config.streams["trades"].idle_after_us == 5_000_000


def test_a_stream_with_dots_and_dashes_is_found(file: ConfigFile) -> None:
    config = file.load(STREAMS, {"TIDEMARK_STREAMS__COM_ACME_ORDER_PLACED__TRUNCATE": "true"})
    assert config.streams["com.acme.order-placed"].truncate is True
    assert config.streams["trades"].truncate is False


def test_a_field_in_shorthand_can_be_refined(file: ConfigFile) -> None:
    config = file.load(STREAMS, {"TIDEMARK_STREAMS__TRADES__FIELDS__PRICE__REQUIRED": "false"})
    price = config.streams["trades"].fields["price"]
    assert (price.type, price.required) == ("decimal", False)


@pytest.mark.parametrize("salt", ["12345", "true", "null", "*a: #'\"!", " x ", "- [", "é"])
def test_text_is_taken_as_it_is(file: ConfigFile, salt: str) -> None:
    assert file.load("", {"TIDEMARK_LEDGER__SALT": salt}).ledger.salt == salt


def test_an_empty_variable_is_an_empty_value(file: ConfigFile) -> None:
    text = f"ledger: {{url: 'postgresql://h/db'}}\nauth: {{keys: [{A_KEY}]}}"
    environ = {"TIDEMARK_LEDGER__URL": "", "TIDEMARK_AUTH__KEYS": ""}
    config = file.load(text, environ)
    assert (config.ledger.url, config.auth.keys) == (None, [])


@pytest.mark.parametrize(
    "value", ["[a.example.com, b.example.com]", '["a.example.com", "b.example.com"]']
)
def test_a_list_is_set_whole_as_yaml_or_json(file: ConfigFile, value: str) -> None:
    config = file.load("http: {allowed_hosts: [c]}", {"TIDEMARK_HTTP__ALLOWED_HOSTS": value})
    assert config.http.allowed_hosts == ["a.example.com", "b.example.com"]


def test_keys_can_come_from_the_environment(file: ConfigFile) -> None:
    environ = {"TIDEMARK_AUTH__KEYS": f"[{A_KEY}]", "TIDEMARK_HTTP__HOST": "0.0.0.0"}
    assert file.load("", environ).auth.keys[0].name == "billing"


def test_one_entry_of_a_list_cannot_be_set(file: ConfigFile) -> None:
    problem = file.problem("", {"TIDEMARK_AUTH__KEYS__0__NAME": "x"})
    assert problem.path == "auth.keys"
    assert problem.where == "TIDEMARK_AUTH__KEYS__0__NAME"
    assert "whole list" in problem.message
    assert "TIDEMARK_AUTH__KEYS=[" in problem.hint


def test_a_section_cannot_be_set_whole(file: ConfigFile) -> None:
    problem = file.problem("", {"TIDEMARK_HTTP": "{port: 1}"})
    assert (problem.path, problem.where) == ("http", "TIDEMARK_HTTP")
    assert "TIDEMARK_HTTP__HOST" in problem.hint


def test_all_streams_can_be_set_and_then_one_of_them(file: ConfigFile) -> None:
    environ = {
        "TIDEMARK_STREAMS__ORDERS__TRUNCATE": "true",
        "TIDEMARK_STREAMS": "{orders: {fields: {id: int}}}",
    }
    config = file.load(STREAMS, environ)
    assert list(config.streams) == ["orders"]
    assert config.streams["orders"].truncate is True


def test_a_value_of_the_wrong_type_names_the_variable(file: ConfigFile) -> None:
    problem = file.problem("http:\n  port: 1\n", {"TIDEMARK_HTTP__PORT": "eighty"})
    assert problem.where == "TIDEMARK_HTTP__PORT"
    assert problem.path == "http.port"
    assert problem.message == 'expected a whole number from 0 to 65535, found "eighty"'


def test_a_fault_inside_a_list_names_the_variable(file: ConfigFile) -> None:
    problem = file.problem("", {"TIDEMARK_HTTP__ALLOWED_HOSTS": "[a, 'b c']"})
    assert (problem.where, problem.path) == (
        "TIDEMARK_HTTP__ALLOWED_HOSTS",
        "http.allowed_hosts[1]",
    )


def test_yaml_that_cannot_be_read_names_the_variable(file: ConfigFile) -> None:
    problem = file.problem("", {"TIDEMARK_HTTP__ALLOWED_HOSTS": "[a"})
    assert problem.where == "TIDEMARK_HTTP__ALLOWED_HOSTS"
    assert "not closed" in problem.message


def test_bytes_that_are_no_utf8_are_a_problem(file: ConfigFile) -> None:
    problem = file.problem("", {"TIDEMARK_LEDGER__SALT": "\udcff"})
    assert (problem.path, problem.where) == ("ledger.salt", "TIDEMARK_LEDGER__SALT")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TIDEMARK_HTTP_PORT", "`TIDEMARK_HTTP__PORT`"),
        ("TIDEMARK_PORT", "`TIDEMARK_HTTP__PORT`"),
        ("TIDEMARK_HTTPS__PORT", "`TIDEMARK_HTTP__PORT`"),
        ("TIDEMARK_HTTP__PROT", "`TIDEMARK_HTTP__PORT`"),
        ("TIDEMARK_HTTP__PORT__X", "`TIDEMARK_HTTP__PORT`"),
        ("TIDEMARK_STATEDIRECTORY", "`TIDEMARK_STATE_DIR`"),
        ("TIDEMARK_STREAMS__TRADS__KIND", "`TIDEMARK_STREAMS__TRADES__KIND`"),
        ("TIDEMARK_STREAMS__TRADES__IDLEAFTR", "`TIDEMARK_STREAMS__TRADES__IDLE_AFTER`"),
    ],
)
def test_an_unknown_variable_comes_with_what_was_meant(
    file: ConfigFile, name: str, meant: str
) -> None:
    problem = file.problem(STREAMS, {name: "1"})
    assert problem.where == name
    assert problem.message == "there is no setting for this variable"
    assert problem.hint == f"Did you mean {meant}?"


@pytest.mark.parametrize("name", ["TIDEMARK_", "TIDEMARK___", "TIDEMARK_XYZ", "TIDEMARK_____A"])
def test_an_unknown_variable_like_no_other_comes_with_those_there_are(
    file: ConfigFile, name: str
) -> None:
    assert "`TIDEMARK_HTTP__…`" in file.problem("", {name: "1"}).hint


def test_two_variables_for_one_setting_are_refused(file: ConfigFile) -> None:
    environ = {"TIDEMARK_STATE_DIR": "/a", "TIDEMARK_STATEDIR": "/b"}
    problem = file.problem("", environ)
    assert problem.path == "state_dir"
    assert "as well" in problem.message


def test_a_variable_that_fits_two_streams_is_refused(file: ConfigFile) -> None:
    text = "streams: {a_b: {fields: {x: int}}, ab: {fields: {x: int}}}"
    problem = file.problem(text, {"TIDEMARK_STREAMS__AB__TRUNCATE": "true"})
    assert "fits `a_b` and `ab`" in problem.message


def test_a_variable_below_something_wrong_in_the_file_leaves_that_to_be_told(
    file: ConfigFile,
) -> None:
    problem = file.problem("http: 5", {"TIDEMARK_HTTP__PORT": "1"})
    assert problem.path == "http"


def test_variables_of_other_programs_are_no_concern(file: ConfigFile) -> None:
    environ = {"PATH": "/bin", "TIDEMARKET_X": "1", "XTIDEMARK_HTTP__PORT": "1", "tidemark_x": "1"}
    assert file.load("", environ) == file.load("")


def test_reserved_variables_are_no_settings(file: ConfigFile) -> None:
    assert file.load("", dict.fromkeys(RESERVED, "x")) == file.load("")


def test_what_kubernetes_says_of_a_service_is_passed_over(file: ConfigFile) -> None:
    environ = {
        "TIDEMARK_SERVICE_HOST": "10.0.0.1",
        "TIDEMARK_SERVICE_PORT": "8787",
        "TIDEMARK_SERVICE_PORT_HTTP": "8787",
        "TIDEMARK_PORT": "tcp://10.0.0.1:8787",
        "TIDEMARK_PORT_8787_TCP": "tcp://10.0.0.1:8787",
        "TIDEMARK_PORT_8787_TCP_PROTO": "tcp",
        "TIDEMARK_PORT_8787_TCP_ADDR": "10.0.0.1",
        "TIDEMARK_INGEST_API_SERVICE_HOST": "10.0.0.2",
        "TIDEMARK_INGEST_API_PORT": "tcp://10.0.0.2:80",
    }
    assert file.load("", environ) == file.load("")


def test_a_variable_is_named_after_its_path() -> None:
    assert variable(("http", "port")) == "TIDEMARK_HTTP__PORT"
    assert variable(("streams", "com.acme.order", "idleAfter")) == (
        "TIDEMARK_STREAMS__COM_ACME_ORDER__IDLE_AFTER"
    )
