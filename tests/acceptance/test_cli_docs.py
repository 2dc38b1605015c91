"""The page about the command line says everything that there is, and nothing that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from tests.acceptance.cli_commands import COMMANDS
from tidemark.cli.options import NO_SETTINGS
from tidemark.cli.outcome import EXIT_CODES, ExitCode
from tidemark.cli.program import VERBS
from tidemark.config.environment import RESERVED

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md").read_text()


def section(name: str) -> str:
    """What the page says about one command."""
    _, _, rest = PAGE.partition(f"# `{name}`\n")
    assert rest, f"there is no section about {name}"
    return re.split(r"\n## |\n### `", rest, maxsplit=1)[0]


def options(name: str) -> dict[str, click.Option]:
    """The options of a command by their long names."""
    return {
        max(param.opts, key=len): param
        for param in COMMANDS[name].params
        if isinstance(param, click.Option)
    }


def test_every_command_stands_in_the_list_with_its_summary() -> None:
    listed = re.findall(r"^\| \[`([a-z-]+)`\]\(#([a-z-]+)\) \| (.+) \|$", PAGE, re.MULTILINE)
    assert listed == [(name, name, verb.summary) for name, verb in VERBS.items()]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_its_line_and_every_line_its_option(name: str) -> None:
    text = section(name)
    documented = re.findall(r"^\| (?:`-[a-z]`, )?`(--[a-z-]+)[^|]*(?:\\\|[^|]*)?` \|", text, re.M)
    assert sorted(documented) == sorted(options(name))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_usage_has_every_option_and_argument(name: str) -> None:
    [usage] = re.findall(rf"^`tidemark {name} .*`$|^`tidemark {name}.*`$", section(name), re.M)
    assert sorted(set(re.findall(r"--[a-z-]+", usage))) == sorted(
        option for option in options(name) if option != "--config"
    )
    if "--config" in options(name):
        assert "[-c PATH]" in usage
    for param in COMMANDS[name].params:
        if isinstance(param, click.Argument):
            assert (param.metavar or "").strip("[]") in usage


def test_a_default_that_is_told_is_the_default() -> None:
    told = {
        "--batch": "500 by default",
        "--retry-for": "60 by default",
    }
    for option, text in told.items():
        assert text in section("send")
        assert options("send")[option].default == float(text.split()[0])
    assert options("keygen")["--scope"].default == ("ingest",)


def test_every_exit_code_is_documented() -> None:
    assert set(EXIT_CODES) == set(ExitCode)
    for code, meaning in EXIT_CODES.items():
        assert f"| {code.value} | {meaning} |" in PAGE


def test_the_variables_that_are_no_settings_are_known_to_the_commands() -> None:
    assert frozenset(RESERVED) == NO_SETTINGS


def test_what_the_page_says_of_json_is_what_commands_print(tmp_path: Path) -> None:
    from tests.acceptance.cli_runs import tidemark

    for args in (
        ["init"],
        ["check"],
        ["keygen", "--name", "a", "--tenant", "*"],
        ["migrate"],
        ["confirm-clock"],
    ):
        [told] = re.findall(r"^\| `--json` \| `\{(.*?)\}`", section(args[0]), re.MULTILINE)
        document = tidemark(*args, "--json", cwd=tmp_path).json
        assert re.findall(r'"(\w+)"', told) == list(document)
