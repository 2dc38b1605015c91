"""The archives of Java that come from Maven are pinned: all that is wanted, with its hash."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tidemark.pipeline.kafka.connector import CONNECTOR

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def jars() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("jars", str(ROOT / "scripts" / "jars"))
    spec = importlib.util.spec_from_loader("jars", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_all_that_is_wanted_is_pinned_without_an_address(jars: ModuleType) -> None:
    for name, wanted in jars.WANTED.items():
        text = (ROOT / "requirements" / f"{name}.jars").read_text()
        assert re.fullmatch(r"(?:[\w.-]+:[\w.-]+:[\w.-]+ sha256:[0-9a-f]{64}\n)+", text)
        assert {*wanted} <= {jar.coordinate for jar in jars.read_lock(name)}
    assert CONNECTOR in jars.WANTED["connector"]


def test_an_archive_that_is_not_what_was_pinned_is_refused(
    jars: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def forge(locked: list[object], place: Path) -> None:
        place.mkdir()
        for jar in jars.read_lock("connector"):
            (place / jar.name).write_text("something else")

    monkeypatch.setattr(jars, "PLACE", tmp_path)
    monkeypatch.setattr(jars, "fetch", forge)
    assert jars.bring("connector") == 1
    assert "not what requirements/connector.jars pins" in capsys.readouterr().err
    assert not (tmp_path / "connector").exists()
