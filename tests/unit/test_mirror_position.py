"""Topics whose ends are asked for before all know of them."""

from __future__ import annotations

import gc
import time
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tidemark.mirror import position
from tidemark.mirror.errors import MirrorUnavailable


class Asked:
    """A consumer that is told this so often, and then where the ends are."""

    def __init__(self, code: int, times: int) -> None:
        self._errors = [KafkaException(KafkaError(code))] * times

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        if self._errors:
            raise self._errors.pop()
        return 3, 7


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._NOENT,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    ],
)
def test_a_topic_that_was_just_made_is_asked_for_again(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(position, "_AGAIN_AFTER_S", 0.0)
    consumer: Any = Asked(code, times=2)
    assert position.ends(consumer, "commits", 0) == (3, 7)
    monkeypatch.setattr(position, "ANSWER_WITHIN_S", 0.0)
    consumer = Asked(code, times=2)
    with pytest.raises(MirrorUnavailable, match="asking for the ends of commits"):
        position.ends(consumer, "commits", 0)


def test_anything_else_is_an_error_at_once() -> None:
    consumer: Any = Asked(KafkaError.TOPIC_AUTHORIZATION_FAILED, times=1)
    with pytest.raises(MirrorUnavailable, match="asking for the ends of commits"):
        position.ends(consumer, "commits", 0)


class Passing:
    """A consumer that comes one further each time, and shows nothing of what is before `shown`."""

    def __init__(self, shown: int, stuck_at: int) -> None:
        self._at = 0
        self._shown = shown
        self._stuck_at = stuck_at

    def assign(self, partitions: Any) -> None:
        """It is where it is."""

    def poll(self, timeout: float) -> Any:
        time.sleep(0.02)
        if self._at == self._stuck_at:
            return None
        self._at += 1
        if self._at <= self._shown:
            return None
        found = self._at - 1
        return SimpleNamespace(error=lambda: None, offset=lambda: found, value=lambda: b"{}")

    def position(self, partitions: Any) -> Any:
        return [SimpleNamespace(offset=self._at)]


def test_what_was_given_up_may_take_as_long_as_it_does_and_who_comes_no_further_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(position, "ANSWER_WITHIN_S", 0.1)

    def read(shown: int, stuck_at: int = 1_000) -> list[int | None]:
        consumer: Any = Passing(shown, stuck_at)
        return [message.offset() for message in position.messages(consumer, "usage", 0, 0, 20)]

    assert read(shown=18) == [18, 19]
    # All of it.
    assert read(shown=30) == []
    with pytest.raises(MirrorUnavailable, match="usage was not read to its end"):
        read(shown=18, stuck_at=10)


class KnowsNoLeader:
    """An admin client without brokers."""

    def __init__(self) -> None:
        self._client = AdminClient(
            {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "error_cb": lambda error: None}
        )

    def list_offsets(self, asked: Any, **more: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError._NOENT))

    def list_topics(self, timeout: float) -> Any:
        return self._client.list_topics(timeout=timeout)


class Answers:
    """An admin client that has the answer when somebody waits for it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def list_offsets(self, asked: Any, **more: Any) -> Any:
        self.done.append("asked")
        return dict.fromkeys(asked, self)

    def result(self) -> Any:
        self.done.append("waited")
        return SimpleNamespace(offset=7)


def test_what_is_to_be_done_meanwhile_is_done_before_the_answer_is_waited_for() -> None:
    admin: Any = Answers()
    found = position.ends_of(
        admin, [("usage", 0)], meanwhile=lambda: admin.done.append("meanwhile")
    )
    assert found == {("usage", 0): 7}
    assert admin.done == ["asked", "meanwhile", "waited"]


def test_nothing_is_held_on_to_by_who_asks_while_brokers_are_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the client raises while an exception is handled keeps that exception for ever."""
    monkeypatch.setattr(position, "ANSWER_WITHIN_S", 0.1)
    admin: Any = KnowsNoLeader()

    def ask(held: set[int]) -> None:
        with pytest.raises(MirrorUnavailable, match="asking for the ends of the topics"):
            position.ends_of(admin, [("usage", number) for number in held])

    held = {1}
    gone = weakref.ref(held)
    ask(held)
    del held
    gc.collect()
    assert gone() is None


def test_a_message_of_which_kafkas_client_cannot_read_the_headers_is_of_somebody_else() -> None:
    """It raises this where the name of one is no text."""

    class Unreadable:
        def headers(self) -> None:
            raise SystemError

    message: Any = Unreadable()
    assert position.sequence_of(message) is None
