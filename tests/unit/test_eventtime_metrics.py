"""The metrics of event time are what the time stage keeps."""

from __future__ import annotations

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from tidemark.ops import eventtime
from tidemark.ops.eventtime import EventtimeNumbers, StreamNumbers, read_numbers
from tidemark.pipeline.time.plans import EVENTTIME, StreamTime
from tidemark.pipeline.time.stage import STATE_NAME, StreamMetrics, TimeState, read_state

KEPT = {
    "trades": StreamMetrics(3, 2, 5, 1, 1_738_324_800_500_000),
    "empty": StreamMetrics(),
}


def state() -> bytes:
    kept = TimeState(EVENTTIME, {"trades": StreamTime()}, 7, b"lanes", KEPT, {"trades": []})
    encoded = msgspec.msgpack.encode(kept)
    assert read_state(encoded) == kept
    return encoded


def test_the_numbers_are_those_of_the_state_and_all_of_them() -> None:
    assert eventtime.STATE_NAME == STATE_NAME
    assert StreamNumbers.__struct_fields__ == StreamMetrics.__struct_fields__
    found = read_numbers(state())
    assert {name: msgspec.structs.asdict(numbers) for name, numbers in found.items()} == {
        name: msgspec.structs.asdict(metrics) for name, metrics in KEPT.items()
    }


def test_every_number_has_a_sample_for_its_stream() -> None:
    numbers = EventtimeNumbers()
    registry = CollectorRegistry()
    registry.register(numbers)
    numbers.saw(read_numbers(state()))
    samples = [it for it in generate_latest(registry).decode().splitlines() if "#" not in it]
    assert sorted(samples) == [
        'tidemark_eventtime_buffer_size{stream="empty"} 0.0',
        'tidemark_eventtime_buffer_size{stream="trades"} 3.0',
        'tidemark_eventtime_late_dropped_total{stream="empty"} 0.0',
        'tidemark_eventtime_late_dropped_total{stream="trades"} 2.0',
        'tidemark_eventtime_max_timestamp_seen_seconds{stream="trades"} 1.7383248005e+09',
        'tidemark_eventtime_watermark_emitted_total{stream="empty"} 0.0',
        'tidemark_eventtime_watermark_emitted_total{stream="trades"} 5.0',
        'tidemark_eventtime_wild_total{stream="empty"} 0.0',
        'tidemark_eventtime_wild_total{stream="trades"} 1.0',
    ]
