"""What the package promises as a package: light to import, whole when built, pinned when locked."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import tidemark

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


def pins(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", lock.read_text(), re.MULTILINE))


def test_importing_the_package_loads_neither_server_nor_client() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, tidemark; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "tidemark" in loaded
    assert [name for name in loaded if name.startswith("tidemark.")] == []
    heavy = {"aiohttp", "asyncpg", "click", "msgspec", "pydantic", "rich", "urllib3", "uvicorn"}
    assert heavy.isdisjoint(loaded)


def test_the_version_is_that_of_the_installed_package() -> None:
    assert tidemark.__version__ == version("tidemark") == PROJECT["project"]["version"]


@pytest.mark.parametrize("name", tidemark.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(tidemark, name) is not None
    assert name in dir(tidemark)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        tidemark.no_such_name  # noqa: B018


def test_the_package_docstring_lists_every_module_in_flow_order() -> None:
    """The same order that import-linter keeps."""
    contract = PROJECT["tool"]["importlinter"]["contracts"][0]
    flow = [name for layer in reversed(contract["layers"]) for name in re.findall(r"\w+", layer)]
    present = {path.stem for path in (ROOT / "src" / "tidemark").iterdir()}
    stages = [name for name in flow if name in present and name != "client"]
    listed = re.findall(r"^    (\w[\w, ]*?)(?:  .*)?$", tidemark.__doc__ or "", re.MULTILINE)
    named = [name for line in listed for name in line.split(", ") if name in present]
    assert [name for name in named if name != "client"] == stages
    assert "client" in named


def test_every_directory_of_modules_is_a_package() -> None:
    """Without an `__init__.py` import-linter would not see what is in it."""
    directories = {path.parent for path in (ROOT / "src" / "tidemark").rglob("*.py")}
    assert sorted(d.name for d in directories if not (d / "__init__.py").exists()) == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_holds_hashes_and_no_address(lock: Path) -> None:
    text = lock.read_text()
    requirements = re.split(r"\n(?=[a-z])", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE))
    assert all("==" in entry and "--hash=sha256:" in entry for entry in requirements)
    assert re.findall(r"://|^-|\bfile:|@ ", text, re.MULTILINE) == []


def test_the_locks_agree_with_each_other() -> None:
    everything = pins(ROOT / "requirements" / "dev.lock")
    for name in ("runtime", "container", "build"):
        pinned = pins(ROOT / "requirements" / f"{name}.lock")
        assert pinned
        assert pinned.items() <= everything.items()


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("runtime", PROJECT["project"]["dependencies"]),
        (
            "container",
            [
                *PROJECT["project"]["dependencies"],
                *PROJECT["project"]["optional-dependencies"]["kafka"],
                *PROJECT["project"]["optional-dependencies"]["clickhouse"],
            ],
        ),
        *((name, PROJECT["dependency-groups"][name]) for name in ("build", "dev", "postgres")),
    ],
    ids=["runtime", "container", "build", "dev", "postgres"],
)
def test_a_lock_pins_what_the_project_asks_for(lock: str, wanted: list[str]) -> None:
    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    pinned = {normal(name) for name in pins(ROOT / "requirements" / f"{lock}.lock")}
    asked = {normal(re.split(r"[<>=!~;\[ ]", requirement)[0]) for requirement in wanted}
    assert asked <= pinned
