"""From a file and the environment to a `Config`, or to everything that is wrong with them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from tidemark.config import yaml_text
from tidemark.config.checks import cross_check
from tidemark.config.environment import Overlay, overlay
from tidemark.config.faults import Reading
from tidemark.config.mismatches import translate
from tidemark.config.model import Config
from tidemark.config.problems import InvalidConfig, Location, Problem, render_path

CONFIG_VARIABLE: Final = "TIDEMARK_CONFIG"
ENVIRONMENT_SOURCE: Final = "the environment"

_FILE_PLACE = re.compile(r"line ([0-9]+), column ([0-9]+)")


def load_config(path: Path | None, environ: Mapping[str, str]) -> Config:
    """The configuration in a file with the environment laid over it.

    Without a path `TIDEMARK_CONFIG` names the file; without that either, there are only defaults
    and the environment, and relative paths are relative to the working directory. Raises
    `InvalidConfig`, a `ConfigError` that lists all problems at once.
    """
    if path is None and environ.get(CONFIG_VARIABLE):
        path = Path(environ[CONFIG_VARIABLE])
    if path is None:
        return _build({}, yaml_text.Document({}, {}), environ, ENVIRONMENT_SOURCE, Path.cwd())
    source = str(path)
    document = _read_document(path, source)
    raw = {} if document.value is None else document.value
    if not isinstance(raw, dict):
        # Only its kind: a file that is no configuration at all may hold anything.
        found = "a list" if isinstance(raw, list) else "a single value"
        message = f"expected a mapping of settings, found {found}"
        hint = "`tidemark init` writes a sample to begin with."
        raise InvalidConfig(source, [Problem("", message, hint)])
    return _build(raw, document, environ, source, path.absolute().parent)


def _build(
    raw: dict[str, Any],
    document: yaml_text.Document,
    environ: Mapping[str, str],
    source: str,
    base: Path,
) -> Config:
    merged = overlay(raw, environ)
    config = None
    findings = list(cross_check(merged.raw))
    try:
        config = Config.model_validate(
            merged.raw, context=Reading(base), by_alias=True, by_name=False
        )
    except ValidationError as error:
        findings = [*translate(error, merged.raw), *findings]
    problems = [
        Problem(render_path(place), message, hint, _where(place, merged, document))
        for place, message, hint in findings
    ]
    problems += merged.problems
    if problems or config is None:
        raise InvalidConfig(source, sorted(problems, key=_reading_order))
    return config


def _read_document(path: Path, source: str) -> yaml_text.Document:
    try:
        with path.open("rb") as file:
            content = file.read(yaml_text.MAX_BYTES + 1)
    except FileNotFoundError:
        problem = Problem("", "there is no such file", "`tidemark init` writes one.")
    except IsADirectoryError:
        problem = Problem("", "expected a file, found a directory")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the path holds a NUL"
        problem = Problem("", f"the file cannot be read: {reason}")
    else:
        if len(content) > yaml_text.MAX_BYTES:
            message = f"expected at most {yaml_text.MAX_BYTES} bytes, found more"
            raise InvalidConfig(source, [Problem("", message)])
        try:
            return yaml_text.parse(content.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            message = "expected UTF-8, found a byte that is none"
            problem = Problem("", message, "Save the file as UTF-8.", f"line {line}")
        except yaml_text.Unreadable as error:
            raise InvalidConfig(source, error.problems) from None
    raise InvalidConfig(source, [problem])


def _where(place: Location, merged: Overlay, document: yaml_text.Document) -> str:
    for length in range(len(place), 0, -1):
        variable = merged.origins.get(place[:length])
        if variable is not None:
            return variable
    return document.where(place)


def _reading_order(problem: Problem) -> tuple[int, int]:
    """From the top of the file to its end, then the environment."""
    match = _FILE_PLACE.fullmatch(problem.where)
    return (int(match[1]), int(match[2])) if match else (sys.maxsize, 0)
