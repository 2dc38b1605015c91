"""Brings an error home from a process that Spark runs, of which the driver sees only text.

There, `brought_home` writes the error into the text of what it raises. In the driver, `failure_of`
finds it in whatever Spark made of that and rebuilds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Final

from tidemark.errors import TidemarkError

_MARK: Final = "tidemark-error: "


class RaisedInSpark(RuntimeError):
    """An error of ours, as text, in a process that Spark runs."""


@contextmanager
def brought_home() -> Iterator[None]:
    """Around what runs in such a process."""
    try:
        yield
    except TidemarkError as error:
        kind = type(error)
        told = error.as_dict() | {"type": f"{kind.__module__}:{kind.__qualname__}"}
        raise RaisedInSpark(f"{error.message}\n{_MARK}{json.dumps(told)}") from error


def failure_of(error: BaseException) -> TidemarkError | None:
    """The error of ours that made Spark fail, if it was one."""
    if isinstance(error, TidemarkError):
        return error
    _, found, rest = str(error).partition(_MARK)
    if not found:
        return None
    told, _ = json.JSONDecoder().raw_decode(rest)
    module, _, name = told["type"].partition(":")
    kind = getattr(import_module(module), name)
    rebuilt: TidemarkError = kind(told["message"], hint=told["hint"], field=told.get("field"))
    rebuilt.code = told["code"]
    return rebuilt
