"""The documentation as a whole: what it points to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], key=lambda page: page.as_posix()
)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
TEST_NAME = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


def relative(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_link_leads_somewhere(page: Path) -> None:
    dead = [
        target
        for target in LINK.findall(page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert dead == []


def test_every_promise_names_tests_that_exist() -> None:
    named = TEST_NAME.findall((ROOT / "docs/guarantees.md").read_text())
    assert len(named) > 20
    missing = [
        (path, name)
        for path, name in named
        if not (ROOT / path).exists() or (name and f"def {name}(" not in (ROOT / path).read_text())
    ]
    assert missing == []


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs/README.md"
    reached = {(index.parent / target).resolve() for target in LINK.findall(index.read_text())}
    unreached = {page for page in (ROOT / "docs").rglob("*.md") if page.resolve() not in reached}
    assert unreached == {index}


def test_every_row_of_the_promises_names_its_proof() -> None:
    rows = [
        line
        for line in (ROOT / "docs/guarantees.md").read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| promise")
    ]
    assert [row for row in rows if not TEST_NAME.search(row)] == []
