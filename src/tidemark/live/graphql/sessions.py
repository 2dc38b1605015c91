"""What is asked about who is calling."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tidemark.live.access.sessions import Session
from tidemark.live.filters import Filter

RowRule: TypeAlias = Callable[[str, Session], Filter]
"""The filter of the rows of a view that a caller may see; raises `AccessDenied` if none are."""

Permission: TypeAlias = Callable[[Session], None]
"""Raises `AccessDenied` if the caller may not do something."""
