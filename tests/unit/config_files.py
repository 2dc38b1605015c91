"""Configurations for tests: written to a file, loaded, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from tidemark.config import Config, InvalidConfig, Problem, load_config

SHA256_OF_SECRET = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"

A_KEY = f"{{name: billing, sha256: {SHA256_OF_SECRET}, scopes: [ingest], tenants: ['*']}}"


class ConfigFile:
    """A `tidemark.yaml` in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "tidemark.yaml"

    def load(self, text: str | bytes = "", environ: Mapping[str, str] | None = None) -> Config:
        content = text if isinstance(text, bytes) else dedent(text).encode()
        self.path.write_bytes(content)
        return load_config(self.path, environ or {})

    def problems(
        self, text: str | bytes = "", environ: Mapping[str, str] | None = None
    ) -> list[Problem]:
        with pytest.raises(InvalidConfig) as caught:
            self.load(text, environ)
        return caught.value.problems

    def problem(self, text: str | bytes = "", environ: Mapping[str, str] | None = None) -> Problem:
        problems = self.problems(text, environ)
        assert len(problems) == 1, problems
        return problems[0]
