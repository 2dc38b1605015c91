"""The histories in `docs/howto/import-a-history.md`, imported as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.acceptance.cli_runs import tidemark

PAGE = (Path(__file__).parents[2] / "docs/howto/import-a-history.md").read_text()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    assert tidemark("init", cwd=tmp_path).code == 0
    for form in ("jsonl", "csv"):
        [example] = re.findall(rf"^```{form}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        (tmp_path / f"history.{form}").write_text(example)
    return tmp_path


def test_the_two_examples_are_one_history(home: Path) -> None:
    first = tidemark("import", "--json", "history.jsonl", cwd=home)
    assert (first.code, first.json["accepted"], first.json["commits"]) == (0, 4, 3)
    again = tidemark("import", "--json", "history.csv", cwd=home)
    assert (again.code, again.json["accepted"], again.json["alreadyImported"]) == (0, 0, 4)


def test_the_commands_of_the_page_are_commands(home: Path) -> None:
    (home / "2024.jsonl").write_text((home / "history.jsonl").read_text())
    (home / "2025.csv").write_text((home / "history.csv").read_text())
    ran = tidemark("import", "--json", "2024.jsonl", "2025.csv", cwd=home)
    assert (ran.code, ran.json["accepted"], ran.json["duplicates"]) == (0, 4, 4)
    piped = tidemark("import", "--json", "-", cwd=home, stdin=(home / "2024.jsonl").read_text())
    assert (piped.code, piped.json["alreadyImported"]) == (0, 4)
