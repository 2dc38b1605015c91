"""The commented configuration that `tidemark init` writes."""

from __future__ import annotations

from importlib.resources import files


def sample_text() -> str:
    """A valid configuration with a usage stream and a stream of trades."""
    return files("tidemark.config").joinpath("sample.yaml").read_text(encoding="utf-8")
