from __future__ import annotations

import ast
import re
from pathlib import Path

from tidemark.errors import StorageRefused
from tidemark.ledger.refusals import CONFLICT_CODE

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src/tidemark"
PAGE = ROOT / "docs/reference/reject-codes.md"

# Codes that are not written where the error is made.
NAMED = {CONFLICT_CODE, StorageRefused.code}


def used_codes(error: str, *folders: str) -> set[str]:
    """The codes that are given to this class of error in these folders of the package."""
    codes: set[str] = set()
    modules = [module for folder in folders for module in sorted(PACKAGE.glob(f"{folder}*.py"))]
    assert modules
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == error:
                given = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
                assert given, f"{module.name}:{node.lineno} gives no code"
                assert isinstance(given[0], ast.Constant)
                codes.add(str(given[0].value))
    return codes


def documented_codes(section: str) -> list[str]:
    text = PAGE.read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([a-z0-9_]+)` \|", text, re.MULTILINE)


def test_every_reason_to_reject_an_event_is_documented_and_no_other() -> None:
    events = documented_codes("Of one event")
    lines = documented_codes("Of one line of a file")
    used = used_codes("EventRejected", "", "ingress/", "ledger/", "web/", "ops/")
    assert {*events, *lines} == used | NAMED
    assert events == sorted(events)
    assert lines == sorted(lines)


def test_every_reason_to_refuse_a_request_is_documented_and_no_other() -> None:
    documented = documented_codes("Of a whole request")
    assert set(documented) == used_codes("RequestError", "ingress/")
    assert documented == sorted(documented)
