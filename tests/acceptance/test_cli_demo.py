"""The sample traffic itself: always the same shape, now and then a repeat, now and then late."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tidemark.config import Config, load_config
from tidemark.config.sample import sample_text
from tidemark.ingress.decoder import Decoder
from tidemark.ingress.drafts import Draft
from tidemark.ops.demo import DEMO_METRICS, TRADE_FIELDS, TRADES, USAGE, SampleTraffic
from tidemark.timestamps import parse_timestamp

NOW_US = 1_750_000_000_000_000
HOUR_US = 3_600_000_000


def take(count: int, streams: tuple[str, ...] = (USAGE, TRADES)) -> list[dict[str, Any]]:
    traffic = SampleTraffic(streams, NOW_US)
    return [traffic.next_event(NOW_US + number * 50_000) for number in range(count)]


def time_of(event: dict[str, Any]) -> int:
    return parse_timestamp(event.get("ts") or event["occurredAt"])


def identity(event: dict[str, Any]) -> tuple[Any, ...]:
    if "stream" in event:
        return (event["tenantId"], event["data"]["trade_id"])
    return tuple(event.get(n) for n in ("tenantId", "metric", "customerRef", "resourceId", "ts"))


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Config:
    path = tmp_path_factory.mktemp("sample") / "tidemark.yaml"
    path.write_text(sample_text())
    return load_config(path, {})


def test_it_is_the_same_on_every_run() -> None:
    assert take(500) == take(500)


def test_some_events_come_twice_and_some_come_late() -> None:
    events = take(2000)
    repeats = len(events) - len({identity(event) for event in events})
    assert 40 <= repeats <= 160
    late = [e for e in events if time_of(e) < NOW_US - 2 * HOUR_US]
    assert 5 <= len({identity(event) for event in late}) <= 60
    assert all(time_of(event) <= NOW_US + 2000 * 50_000 for event in events)


def test_a_repeat_is_the_same_event_and_nothing_else_has_its_identity() -> None:
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in take(2000):
        assert seen.setdefault(identity(event), event) == event


def test_every_metric_and_several_tenants_appear() -> None:
    usage = [event for event in take(2000) if "stream" not in event]
    assert {event["metric"] for event in usage} == DEMO_METRICS
    assert len({event["tenantId"] for event in usage}) >= 3
    share = Counter("stream" in event for event in take(2000))
    assert 300 <= share[True] <= 700


@pytest.mark.parametrize("streams", [(USAGE,), (TRADES,)])
def test_it_keeps_to_the_streams_that_there_are(streams: tuple[str, ...]) -> None:
    assert {event.get("stream", USAGE) for event in take(200, streams)} == set(streams)


def test_the_sample_configuration_takes_every_event(sample: Config) -> None:
    import msgspec

    decoder = Decoder(sample, "salt")
    for event in take(500):
        decoded = decoder.decode_event(msgspec.json.encode(event), now_us=NOW_US + HOUR_US)
        assert isinstance(decoded, Draft)


def test_its_trades_have_the_fields_of_the_sample(sample: Config) -> None:
    assert set(sample.streams[TRADES].fields) == TRADE_FIELDS
