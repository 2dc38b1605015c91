"""The schema as text, for people and for tools that generate code."""

from __future__ import annotations

from collections.abc import Sequence

from graphql import print_schema

from tidemark.live.graphql.described import DescribedView
from tidemark.live.graphql.schema import build_schema


def print_sdl(views: Sequence[DescribedView]) -> str:
    """The SDL of these views' schema, with a newline at its end."""
    return print_schema(build_schema(views)) + "\n"
