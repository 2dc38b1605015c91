"""Where the archive of Spark's classes is looked for, and when it is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.pipeline import class_archive
from tidemark.pipeline.class_archive import archive_path, archiving, sharing
from tidemark.pipeline.java import Java


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    monkeypatch.setattr(class_archive, "_DIRECTORY", tmp_path / "var")
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("one")
    return Java(home, 17, "test")


def test_java_is_told_of_an_archive_only_if_there_is_one(java: Java) -> None:
    assert sharing(java) == ()
    archive = archive_path(java)
    archive.parent.mkdir()
    archive.touch()
    assert sharing(java)[0] == f"-XX:SharedArchiveFile={archive}"


def test_another_java_has_another_archive(java: Java) -> None:
    before = archive_path(java)
    assert archive_path(java) == before
    (java.home / "bin" / "java").unlink()
    (java.home / "bin" / "java").write_text("two")
    assert archive_path(java) != before


def test_the_option_that_makes_one_names_it() -> None:
    assert archiving(Path("/a/b.jsa")) == "-XX:ArchiveClassesAtExit=/a/b.jsa"
