"""Settings from environment variables: `TIDEMARK_HTTP__PORT=9000` is `http: {port: 9000}`.

The path of a setting is joined by `__`, in any case and with or without its underscores. A
setting that holds text takes the value as it is, so that no secret needs quotes; any other takes
YAML, a list or a mapping in flow style (`[a, b]`) or JSON. An empty value is null.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from tidemark.config import yaml_text
from tidemark.config.model import FieldConfig
from tidemark.config.problems import Location, Problem, render_path
from tidemark.config.shape import ROOT, Shape, every_setting, settings_of, shape_at
from tidemark.config.suggestions import and_list, fold, nearest, or_list

PREFIX: Final = "TIDEMARK_"
SEPARATOR: Final = "__"

# Variables with our prefix that are no settings.
RESERVED: Final = {
    "TIDEMARK_CONFIG": "The path of the config file, where a command is not told one.",
    "TIDEMARK_URL": "The address of the server, for the client and the CLI.",
    "TIDEMARK_API_KEY": "The API key, for the client and the CLI.",
    "TIDEMARK_CRASH_AT": "The point at which a process kills itself, for tests of recovery.",
    "TIDEMARK_WORKER": "Set by Tidemark itself in the processes that it starts.",
}

# Kubernetes gives every pod the addresses of all services; one may well be called tidemark.
_SERVICE_LINK = re.compile(
    r"TIDEMARK(_[A-Z0-9]+)*_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9]+)*"
    r"|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://.*", re.DOTALL)


@dataclass(slots=True)
class Overlay:
    """The raw settings after the environment was laid over them."""

    raw: dict[str, Any]
    origins: dict[Location, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def overlay(raw: Mapping[str, Any], environ: Mapping[str, str]) -> Overlay:
    """A copy of the raw settings with those of the environment, and who set what."""
    result = Overlay(copy.deepcopy(dict(raw)))
    names = [name for name, value in environ.items() if _is_setting(name, value)]
    # Short paths first, so that one stream's setting lands on top of `TIDEMARK_STREAMS`.
    for name in sorted(names, key=lambda name: (name.count(SEPARATOR), name)):
        _apply(result, name, environ[name])
    return result


def variable(location: Location) -> str:
    """The usual name of the variable for a setting."""
    return PREFIX + SEPARATOR.join(_segment(str(part)) for part in location)


def _segment(key: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).upper())


def _is_setting(name: str, value: str) -> bool:
    if not name.startswith(PREFIX) or name in RESERVED:
        return False
    if name.endswith("_PORT") and _SERVICE_ADDRESS.fullmatch(value):
        return False
    return SEPARATOR in name or _SERVICE_LINK.fullmatch(name) is None


def _apply(result: Overlay, name: str, value: str) -> None:
    target = _resolve(result.raw, name)
    if isinstance(target, Problem):
        result.problems.append(target)
        return
    location, shape = target
    path = render_path(location)
    if location in result.origins:
        message = f"expected one variable for it, found `{result.origins[location]}` as well"
        result.problems.append(Problem(path, message, "Unset one of the two.", name))
        return
    result.origins[location] = name
    try:
        read = _read(shape, value)
    except yaml_text.Unreadable as error:
        for problem in error.problems:
            joint = "." if problem.path and not problem.path.startswith("[") else ""
            inner = f"{path}{joint}{problem.path}"
            result.problems.append(Problem(inner, problem.message, problem.hint, name))
        return
    _put(result.raw, location, read)


def _resolve(raw: dict[str, Any], name: str) -> tuple[Location, Shape] | Problem:
    """The setting that a variable names, or why there is none."""
    shape, node, location = ROOT, cast(Any, raw), cast(Location, ())
    segments = name.removeprefix(PREFIX).split(SEPARATOR)
    for depth, segment in enumerate(segments):
        if shape.kind == "list":
            message = "expected the whole list in one variable, found a variable for one entry"
            hint = f"Set it as YAML or JSON: `{variable(location)}=[…]`."
            return Problem(render_path(location), message, hint, name)
        inside = _inside(shape, node)
        fitting = [key for key in inside if fold(key) == fold(segment)]
        if len(fitting) > 1:
            message = f"expected one name, found that it fits {and_list(fitting)}"
            return Problem(render_path(location), message, "Set it in the file.", name)
        if not fitting:
            hint = _nearest_variables(location, inside, segments[depth:])
            return Problem("", "there is no setting for this variable", hint, name)
        location, shape = (*location, fitting[0]), inside[fitting[0]]
        node = node.get(fitting[0]) if isinstance(node, dict) else None
    if shape.kind == "section":
        assert shape.model is not None
        example = variable((*location, next(iter(settings_of(shape.model)))))
        message = "expected a variable for one setting, found one for a whole section"
        hint = f"Set what is in it one by one, for example `{example}`."
        return Problem(render_path(location), message, hint, name)
    return location, shape


def _inside(shape: Shape, node: Any) -> dict[str, Shape]:
    """What can be named below a shape. The names in a mapping are those that are there already."""
    if shape.model is not None:
        return {key: setting.shape for key, setting in settings_of(shape.model).items()}
    if shape.kind == "mapping" and shape.item is not None and isinstance(node, dict):
        return dict.fromkeys(node, shape.item)
    return {}


def _nearest_variables(location: Location, inside: dict[str, Shape], rest: list[str]) -> str:
    """A hint for a variable of which the rest could not be found below a location."""
    if location and not inside:
        return f"Did you mean `{variable(location)}`?"
    wanted = fold("".join(rest))
    settings = [place for place, setting in every_setting() if setting.shape.model is None]
    near = [
        variable(place)
        for place in settings
        if wanted in (fold("".join(map(str, place))), fold(str(place[-1])))
    ]
    if near and not location:
        return f"Did you mean {or_list(near)}?"
    tail = [_segment(segment) for segment in rest[1:]]
    near = nearest(rest[0], inside)
    if near:
        names = [SEPARATOR.join([variable((*location, key)), *tail]) for key in near]
        return f"Did you mean {or_list(names)}?"
    known = [
        variable((*location, key)) + (f"{SEPARATOR}…" if shape.model is not None else "")
        for key, shape in inside.items()
    ]
    return f"There are {and_list(known)}."


def _read(shape: Shape, value: str) -> Any:
    if value == "":
        return None
    if shape.kind not in ("text", "choice", "duration"):
        return yaml_text.parse(value).value
    if yaml_text.is_unusable(value):
        raise yaml_text.Unreadable([Problem("", yaml_text.UNUSABLE)])
    return value


def _put(raw: dict[str, Any], location: Location, value: Any) -> None:
    node: Any = raw
    for depth, key in enumerate(location[:-1]):
        inner = node.get(key)
        if inner is None:
            inner = node[key] = {}
        elif isinstance(inner, str) and _is_field(location[: depth + 1]):
            inner = node[key] = {"type": inner}
        if not isinstance(inner, dict):
            return  # What stands there is a problem of its own, which is reported.
        node = inner
    node[location[-1]] = value


def _is_field(location: Location) -> bool:
    shape = shape_at(location)
    return shape is not None and shape.model is FieldConfig
