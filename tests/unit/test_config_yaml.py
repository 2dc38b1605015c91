"""YAML that is refused, with the place, and YAML that is read without surprises."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.unit.config_files import ConfigFile
from tidemark.config.yaml_text import MAX_DEPTH, Unreadable, parse


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path)


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("http:\n\tport: 1\n", "line 2, column 1", "found a tab"),
        ("http:\n  port:\t1\n", "line 2, column 8", "found a tab"),
        ("http: port: 1\n", "line 1, column 11", "found a second `:`"),
        ("http:\n  port: 1\n host: x\n", "line 3, column 2", "does not fit"),
        ("http\nport: 1\n", "line 2, column 5", "second `:`"),
        ("a: |\n  x\nb\n", "line 4, column 1", "without a colon"),
        ("a: 'x\n", "line 2, column 1", "inside quotes"),
        ("a: [1, 2\nb: 3\n", "line 2, column 2", "not closed"),
        ("a: [1,\n", "line 2, column 1", "expected a value"),
        ("a: @x\n", "line 1, column 4", "cannot begin a value"),
        ("a: %x\n", "line 1, column 4", "cannot begin a value"),
        ("a: *x\n", "line 1, column 4", "without an anchor"),
        ("a: !x 1\n", "line 1, column 4", "found a YAML tag"),
        ("a: !!int '1'\n", "line 1, column 4", "found a YAML tag"),
        ("a: !!python/object/apply:os.getcwd []\n", "line 1, column 4", "found a YAML tag"),
        ("a: !q!x 1\n", "line 1, column 4", "found a YAML tag"),
        ("a: 1\n---\nb: 1\n", "line 2, column 1", "found a second after `---`"),
        ('a: "\\q"\n', "line 1, column 6", "no YAML"),
        ("a: \x01\n", "line 1, column 4", "control character"),
        ("a: b\n\nc: \0\n", "line 3, column 4", "control character"),
        ("1: x\n", "line 1, column 1", "expected a key that is text, found a number"),
        ("true: x\n", "line 1, column 1", "expected a key that is text"),
        ("~: x\n", "line 1, column 1", "expected a key that is text, found nothing"),
        ("? [a]\n: x\n", "line 1, column 3", "expected a key that is text, found a list"),
        ("<<: 5\n", "line 1, column 5", "expected a mapping behind `<<`"),
        ('a: "\\uD800"\n', "line 1, column 4", "surrogate"),
        ('a: "\\0"\n', "line 1, column 4", "NUL"),
    ],
)
def test_a_syntax_error_has_a_line_and_a_column(
    file: ConfigFile, text: str, where: str, message: str
) -> None:
    problem = file.problem(text)
    assert (problem.where, message in problem.message) == (where, True), problem


def test_an_escape_beyond_unicode_is_a_problem_and_no_crash(file: ConfigFile) -> None:
    assert "no character" in file.problem('a: "\\UFFFFFFFF"').message


def test_bytes_that_are_no_utf8_have_a_line(file: ConfigFile) -> None:
    problem = file.problem(b"a: 1\nb: \xff\n")
    assert (problem.where, problem.hint) == ("line 2", "Save the file as UTF-8.")


def test_a_key_that_stands_twice_is_refused(file: ConfigFile) -> None:
    problem = file.problem("http:\n  port: 1\n  port: 2\n")
    assert (problem.path, problem.where) == ("http.port", "line 3, column 3")
    assert "found it again after line 2, column 3" in problem.message


def test_all_repeated_keys_are_reported(file: ConfigFile) -> None:
    problems = file.problems("a: {x: 1, x: 2}\nb: 1\na: 2\nb: 2\n")
    assert [problem.path for problem in problems] == ["a.x", "a", "b"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("12:30", "12:30"),
        ("2025-01-01", "2025-01-01"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("010", 10),
        ("-3", -3),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".inf", ".inf"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ('"true"', "true"),
        ("9" * 64, "9" * 64),
        ("|\n  a\n  b\n", "a\nb\n"),
        ("[1, [x]]", [1, ["x"]]),
        (r'"\ud83d\ude00"', "\U0001f600"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    parsed = parse(f"key: {text}").value["key"]
    assert parsed == value
    assert type(parsed) is type(value)


def test_anchors_and_merge_keys_work(file: ConfigFile) -> None:
    config = file.load("""
        streams:
          a:
            fields: &common
              id: string
              at: timestamp
          b:
            fields:
              <<: *common
              at: string
              note: string
    """)
    assert {name: field.type for name, field in config.streams["b"].fields.items()} == {
        "id": "string",
        "at": "string",
        "note": "string",
    }


def test_of_several_merged_mappings_the_first_wins() -> None:
    assert parse("{<<: [{a: 1}, {a: 2, b: 2}], c: 3}").value == {"a": 1, "b": 2, "c": 3}


def bomb(levels: int, arms: int) -> str:
    lines = ["a0: &a0 [x]"]
    for level in range(1, levels):
        aliases = ", ".join([f"*a{level - 1}"] * arms)
        lines.append(f"a{level}: &a{level} [{aliases}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        bomb(20, 9),
        bomb(20, 9).replace("[*", "{<<: [*").replace("]\n", "]}\n"),
        "a: &a [*a]",
        "a: &a {b: *a}",
        "&a a: {<<: *a}",
        "[" * 100_000,
        "{a: " * 5_000,
        "- " * 5_000,
        "\n".join(" " * depth + "a:" for depth in range(500)),
    ],
    ids=["aliases", "merges", "self", "self-map", "self-key", "[", "{", "-", "indent"],
)
def test_a_bomb_is_defused_quickly(text: str) -> None:
    started = time.monotonic()
    with pytest.raises(Unreadable):
        parse(text)
    assert time.monotonic() - started < 5


def test_nesting_up_to_the_bound_is_read() -> None:
    levels = MAX_DEPTH - 1
    assert parse("[" * levels + "]" * levels).value is not None
    with pytest.raises(Unreadable, match="levels"):
        parse("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
