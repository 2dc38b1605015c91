"""What is written about GraphQL is complete."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import tidemark
from tidemark.live import errors
from tidemark.live.errors import LiveError
from tidemark.live.graphql.limits import DocumentLimits, QueryLimits
from tidemark.live.graphql.problems import INVALID, SYNTAX, VARIABLES
from tidemark.live.graphql.rate import RateLimits

PAGE = (Path(__file__).parents[3] / "docs/reference/graphql.md").read_text(encoding="utf-8")
SOURCE = Path(tidemark.__file__).parent / "live" / "graphql"


def raised_codes() -> set[str]:
    """Those that the source gives to refusals, and those of every error of Live."""
    found = {SYNTAX, INVALID, VARIABLES}
    for path in SOURCE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                values = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
                # The measures of a document give theirs by position.
                if isinstance(node.func, ast.Name) and node.func.id == "_limit":
                    values.append(node.args[-1])
                found |= {str(value.value) for value in values if isinstance(value, ast.Constant)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return found | {
        kind.code for kind in kinds if issubclass(kind, LiveError) and kind is not LiveError
    }


def test_every_code_is_in_the_docs() -> None:
    written = set(re.findall(r"^\| `(\w+)` \| .+ \|$", PAGE, re.MULTILINE))
    assert raised_codes() - written == set()


def test_every_limit_is_in_the_docs() -> None:
    documents, queries, rate = DocumentLimits(), QueryLimits(), RateLimits()
    for value in (
        documents.max_bytes,
        documents.max_tokens,
        documents.max_comments,
        documents.max_depth,
        documents.max_fields,
        documents.max_fragments,
        documents.max_root_fields,
        documents.max_aliases,
        queries.max_order_columns,
        queries.default_rows,
        queries.max_rows,
        queries.max_offset,
        rate.burst,
    ):
        assert f"{value:,}" in PAGE
    assert f"{rate.documents_per_second:g}" in PAGE
