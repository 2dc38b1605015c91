"""What PySpark asks Java for to put columns together is asked for once."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as fn

from tests.services.spark import shared_session

# How a command of Py4J begins that asks for a class or for one of its members.
ASKING = "r\n"


def columns() -> str:
    found = fn.coalesce(fn.when(fn.col("a") > 1, fn.lit("b")), ~fn.col("c"), fn.struct("d", "e"))
    return str(found)


def test_columns_are_put_together_without_asking_for_the_same_class_or_method_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    java: Any = shared_session()._jvm
    client = java._gateway_client
    sent: list[str] = []
    send = client.send_command

    def noted(command: str, *more: Any, **named: Any) -> Any:
        sent.append(command)
        return send(command, *more, **named)

    before = columns()
    monkeypatch.setattr(client, "send_command", noted)
    assert columns() == before
    assert sent
    assert not [command for command in sent if command.startswith(ASKING)]


def test_what_a_class_does_not_have_is_missed_as_ever() -> None:
    java: Any = shared_session()._jvm
    with pytest.raises(Exception, match="no_such_function"):
        java.functions.no_such_function("a")
