"""What is allowed in a configuration but is seldom meant."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark.config.model import Config
from tidemark.config.problems import Problem, render_path


def advise(config: Config) -> list[Problem]:
    """Remarks on a valid configuration, for `tidemark check` to show as warnings."""
    return [*_streams(config), *_access(config)]


def _streams(config: Config) -> Iterator[Problem]:
    if not config.streams:
        hint = "Declare one; `tidemark init` writes a sample with two."
        yield Problem("streams", "there are no streams, so every event is rejected", hint)
    for name, stream in config.streams.items():
        path = render_path(("streams", name))
        if stream.kind == "events" and name == "usage":
            message = "the stream is called usage but holds no usage events"
            yield Problem(path, message, "Say `kind: usage` if it is meant to.")
        if stream.kind == "events" and not stream.identity:
            message = (
                "no identity is declared, so events other than CloudEvents need an idempotencyKey"
            )
            yield Problem(path, message, "Name the fields that make two events the same.")


def _access(config: Config) -> Iterator[Problem]:
    if config.auth.keys and config.http.allowed_hosts:
        message = "the list has no effect, since keys are asked for whatever the Host header says"
        yield Problem("http.allowed_hosts", message, "Remove it.")
