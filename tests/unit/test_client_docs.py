"""Every option and every error code of the client is in its how-to."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import tidemark.client
from tidemark.client.base import BaseClient

PAGE = (Path(__file__).parents[2] / "docs/howto/publish-from-python.md").read_text()
SOURCES = [path.read_text() for path in Path(tidemark.client.__path__[0]).glob("*.py")]
# The URL is an argument of every example, and a clock is for tests.
OPTIONS = sorted({*inspect.signature(BaseClient.__init__).parameters} - {"self", "url", "clock"})


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_is_in_the_how_to(option: str) -> None:
    assert re.search(rf"^\| .*`{option}`", PAGE, re.MULTILINE)


def test_every_default_is_the_one_in_the_how_to() -> None:
    parameters = inspect.signature(BaseClient.__init__).parameters
    assert f"| `batch_events` | {parameters['batch_events'].default} |" in PAGE
    assert f"| `max_queued` | {parameters['max_queued'].default:,} |" in PAGE
    assert f"| `linger_s` | {parameters['linger_s'].default} |" in PAGE
    assert f"| `timeout_s` | {parameters['timeout_s'].default:g} |" in PAGE
    assert f"| `retry_for_s` | {parameters['retry_for_s'].default:g} |" in PAGE


def test_every_error_code_of_the_client_is_in_the_how_to() -> None:
    raised = {code for text in SOURCES for code in re.findall(r'code="(\w+)"', text)}
    assert raised
    assert sorted(code for code in raised if f"`{code}`" not in PAGE) == []
