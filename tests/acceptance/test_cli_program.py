"""What all commands have in common: help, errors, exit codes, pipes and terminals."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from tests.acceptance.cli_commands import COMMANDS
from tests.acceptance.cli_runs import (
    PROGRAM,
    environment,
    on_terminal,
    tidemark,
    without_escapes,
)
from tidemark.cli.program import VERBS, load_verb


def test_help_lists_every_command(tmp_path: Path) -> None:
    ran = tidemark("--help", cwd=tmp_path)
    assert ran.code == 0
    for name, verb in VERBS.items():
        assert name in ran.out
        assert verb.summary in ran.out


def test_no_command_is_help(tmp_path: Path) -> None:
    assert tidemark(cwd=tmp_path) == tidemark("--help", cwd=tmp_path)


def test_help_loads_no_command(tmp_path: Path) -> None:
    """Nor what only a command needs, so that it is there at once."""
    program = (
        "import sys; from tidemark.cli.program import run; run(['--help']); print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment(),
    ).stdout.split()
    heavy = {"aiohttp", "asyncio", "msgspec", "pydantic", "rich", "urllib3", "uvicorn", "yaml"}
    assert "click" in loaded
    assert heavy.isdisjoint(loaded)
    ours = {name for name in loaded if name.startswith("tidemark.")}
    assert ours == {"tidemark.cli", "tidemark.errors"} | {
        f"tidemark.cli.{name}" for name in ("program", "outcome", "output", "stopping")
    }


@pytest.mark.parametrize("name", VERBS)
def test_the_help_of_a_command_begins_with_its_summary(name: str) -> None:
    command = load_verb(name)
    assert (command.help or "").startswith(VERBS[name].summary.removesuffix("."))
    assert f"Usage: {name} " in command.get_help(click.Context(command, info_name=name))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_answer_in_json(name: str) -> None:
    assert "--json" in [option for param in COMMANDS[name].params for option in param.opts]


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    ran = tidemark("--version", cwd=tmp_path)
    assert (ran.code, ran.out) == (0, f"tidemark {version('tidemark')}\n")


def test_it_is_also_a_module(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tidemark", "--version"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment(),
    )
    assert ran.stdout == f"tidemark {version('tidemark')}\n"


def test_a_misspelled_command_is_told_the_nearest(tmp_path: Path) -> None:
    ran = tidemark("chekc", cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: there is no command `chekc`\nhint: Did you mean `check`?\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["send", "--batch", "0"], "--batch"),
        (["tail", "--after", "-1"], "--after"),
        (["tail", "--after", "1", "--from-start"], "exclude each other"),
        (["keygen"], "--name"),
        (["import"], "FILE..."),
        (["check", "--nonsense"], "--nonsense"),
        (["send", "--url", "ftp://example.com"], "ftp://example.com"),
        (["send", "--url", "http://"], "http://"),
        (["tail", "--api-key", "ключ"], "printable ASCII"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(
    tmp_path: Path, args: list[str], message: str
) -> None:
    ran = tidemark(*args, "--json", cwd=tmp_path)
    assert (ran.code, ran.err) == (2, "")
    error = ran.json["error"]
    assert error["code"] == "usage"
    assert message in error["message"]


def test_a_usage_error_points_to_the_help_of_the_command(tmp_path: Path) -> None:
    ran = tidemark("send", "--batch", "0", cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    first, second = ran.err.splitlines()
    assert first.startswith("error: invalid value for '--batch'")
    assert second == "hint: `tidemark send --help` tells more."


@pytest.mark.parametrize("args", [["check"], ["up"], ["migrate"], ["import", "x.jsonl"]])
def test_a_command_that_needs_a_configuration_says_how_to_make_one(
    tmp_path: Path, args: list[str]
) -> None:
    ran = tidemark(*args, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "there is no configuration" in ran.err
    assert "tidemark init" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_the_configuration_is_the_option_else_the_variable_else_the_file_here(
    tmp_path: Path,
) -> None:
    for name, port in (("tidemark.yaml", 1111), ("variable.yaml", 2222), ("option.yaml", 3333)):
        (tmp_path / name).write_text(f"http: {{port: {port}}}\n")
    env = {"TIDEMARK_CONFIG": "variable.yaml"}
    here = tidemark("check", "--json", cwd=tmp_path)
    assert (here.json["config"], here.json["http"]["port"]) == ("tidemark.yaml", 1111)
    variable = tidemark("check", "--json", cwd=tmp_path, env=env)
    assert (variable.json["config"], variable.json["http"]["port"]) == ("variable.yaml", 2222)
    option = tidemark("check", "--json", "-c", "option.yaml", cwd=tmp_path, env=env)
    assert (option.json["config"], option.json["http"]["port"]) == ("option.yaml", 3333)


def test_settings_in_the_environment_are_a_configuration(tmp_path: Path) -> None:
    ran = tidemark("check", cwd=tmp_path, env={"TIDEMARK_HTTP__PORT": "4444"})
    assert ran.code == 0
    assert "the environment is valid" in ran.out
    assert "127.0.0.1:4444" in ran.out


def test_the_server_is_where_the_configuration_says_that_it_listens(tmp_path: Path) -> None:
    (tmp_path / "tidemark.yaml").write_text("http: {port: 1}\n")
    configured = tidemark("tail", cwd=tmp_path)
    assert "http://127.0.0.1:1 cannot be reached" in configured.err
    env = {"TIDEMARK_URL": "http://127.0.0.1:2"}
    assert "http://127.0.0.1:2 " in tidemark("tail", cwd=tmp_path, env=env).err
    given = tidemark("tail", "--url", "http://127.0.0.1:3/", cwd=tmp_path, env=env)
    assert "http://127.0.0.1:3 " in given.err
    assert (given.code, configured.code) == (1, 1)


def test_a_server_on_all_addresses_is_called_on_this_machine(tmp_path: Path) -> None:
    key = "0" * 64
    (tmp_path / "tidemark.yaml").write_text(
        f"http: {{host: 0.0.0.0, port: 1}}\n"
        f"auth: {{keys: [{{name: a, sha256: '{key}', scopes: [read], tenants: ['*']}}]}}\n"
    )
    assert "http://127.0.0.1:1 " in tidemark("tail", cwd=tmp_path).err


def test_a_port_that_is_left_to_chance_has_to_be_told(tmp_path: Path) -> None:
    (tmp_path / "tidemark.yaml").write_text("http: {port: 0}\n")
    ran = tidemark("tail", cwd=tmp_path)
    assert ran.code == 2
    assert "--url" in ran.err


def test_a_terminal_gets_colours_and_a_pipe_does_not(tmp_path: Path) -> None:
    shown = on_terminal("chekc", cwd=tmp_path).out
    assert "\x1b[31m" in shown
    assert without_escapes(shown) == tidemark("chekc", cwd=tmp_path).err


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_colours_can_be_turned_off(tmp_path: Path, env: dict[str, str]) -> None:
    assert "\x1b" not in on_terminal("chekc", cwd=tmp_path, env=env).out


def test_a_locale_without_our_characters_is_no_error(tmp_path: Path) -> None:
    env = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ran = tidemark("check", "-c", "é.yaml", cwd=tmp_path, env=env)
    assert ran.code == 2
    assert "\\xe9.yaml" in ran.err


def test_what_would_drive_a_terminal_is_shown_and_not_sent(tmp_path: Path) -> None:
    ran = tidemark("\x1b]0;title\x07", cwd=tmp_path)
    assert "\\u001b]0;title\\u0007" in ran.err
    assert "\x1b" not in ran.err


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    reader = f"{PROGRAM} check --schema; echo $? >&2"
    ran = subprocess.run(
        ["bash", "-c", f"({reader}) | head -1"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment(),
    )
    assert (ran.stdout, ran.stderr) == ("{\n", "0\n")


def test_output_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            [PROGRAM, "check", "--schema"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment(),
        )
    assert (ran.returncode, ran.stderr) == (1, "error: No space left on device\n")
