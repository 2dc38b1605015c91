"""What is said of a copy by what its process has told, and of a pipeline that tells nothing."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from tidemark.clock import MICROS_PER_SECOND
from tidemark.errors import TidemarkError
from tidemark.ledger.port import CopyState
from tidemark.mirror.telling import MIRROR
from tidemark.ops.copies import (
    CLICKHOUSE,
    PARQUET,
    SILENT_AFTER_US,
    copy_part,
    landing_part,
)
from tidemark.ops.delivery import DeliveryPart, Webhooks, dead_letters
from tidemark.ops.frontier import Progress
from tidemark.ops.health import STALLED_AFTER_S, stalled
from tidemark.ops.lag import Lag
from tidemark.ops.lag_metrics import LagNumbers
from tidemark.ops.parts import Part, worst_state
from tidemark.ops.pipeline_status import SILENT_AFTER_US as PIPELINE_SILENT_US
from tidemark.ops.pipeline_status import reason_told
from tidemark.pipeline.landing.clickhouse import ClickHouseTable
from tidemark.pipeline.landing.parquet import ParquetDirectory

NOW = 1_735_689_600_000_000
AWAY = TidemarkError("Kafka is away", hint="Look at the brokers.", code="mirror_unavailable")


def told(at: int, error: TidemarkError | None = None) -> tuple[CopyState, Lag]:
    return CopyState(MIRROR, 7, NOW - 5, at, error), Lag(3, 1.2345)


def test_those_who_tell_are_called_as_here() -> None:
    names = (ParquetDirectory.name, ClickHouseTable.name)
    assert tuple(f"landing.{name}" for name in names) == (PARQUET, CLICKHOUSE)


def test_a_copy_that_is_told_of_is_as_far_as_it_says() -> None:
    part = copy_part(MIRROR, told(NOW - SILENT_AFTER_US), SILENT_AFTER_US)
    assert part == Part(
        "ready",
        "",
        "7",
        "2024-12-31T23:59:59.999995Z",
        "3",
        1.234,
        "2024-12-31T23:59:30.000000Z",
    )


def test_a_copy_that_was_never_told_of_names_what_to_start() -> None:
    for name, command in ((MIRROR, "mirror"), (PARQUET, "land"), (CLICKHOUSE, "land")):
        part = copy_part(name, None, 0)
        assert (part.state, part.last_sequence, part.told_at) == ("degraded", None, None)
        assert "never run" in part.reason
        assert f"`tidemark {command}`" in part.reason


def test_a_copy_of_which_nothing_is_heard_does_not_run() -> None:
    part = copy_part(MIRROR, told(NOW), SILENT_AFTER_US + MICROS_PER_SECOND)
    assert (part.state, part.lag_events) == ("degraded", "3")
    assert "does not run: it was last heard of 31 s ago. Start `tidemark mirror`" in part.reason
    part = copy_part(MIRROR, told(NOW, AWAY), 2 * SILENT_AFTER_US)
    assert part.reason.endswith("The last that it said: Kafka is away. Look at the brokers.")


def test_a_copy_that_tells_of_an_error_is_degraded_by_it() -> None:
    part = copy_part(MIRROR, told(NOW, AWAY), 0)
    assert (part.state, part.reason) == ("degraded", "Kafka is away. Look at the brokers.")


def test_landing_is_as_bad_as_its_worst_target_and_as_far_as_its_slowest() -> None:
    off, near, far = Part("disabled", "off"), Part("ready", "", "9"), Part("ready", "", "10")
    bad = Part("degraded", "full", "11")
    assert landing_part({PARQUET: off, CLICKHOUSE: off}).state == "disabled"
    assert landing_part({PARQUET: off, CLICKHOUSE: far}) == far
    assert landing_part({PARQUET: far, CLICKHOUSE: near}) == near
    assert landing_part({PARQUET: near, CLICKHOUSE: bad}) == bad
    assert worst_state([off, near, bad]) == "degraded"
    assert worst_state([off, near]) == "ready"


def test_a_pipeline_stands_still_if_it_does_not_move_though_something_waits() -> None:
    long_us = int(STALLED_AFTER_S) * MICROS_PER_SECOND
    assert stalled(Progress(None, 1, STALLED_AFTER_S), long_us)
    assert not stalled(Progress(None, 1, STALLED_AFTER_S - 1), 10 * long_us)
    assert not stalled(Progress(None, 1, 10 * STALLED_AFTER_S), long_us - MICROS_PER_SECOND)


def test_a_pipeline_elsewhere_says_what_keeps_it_from_going_on() -> None:
    assert reason_told(None, NOW) == ""
    assert reason_told(CopyState("pipeline", 7, NOW, NOW), NOW) == ""
    said = CopyState("pipeline", 7, NOW, NOW, AWAY)
    assert reason_told(said, NOW + PIPELINE_SILENT_US) == "Kafka is away. Look at the brokers."
    assert reason_told(said, NOW + PIPELINE_SILENT_US + MICROS_PER_SECOND) == (
        "its process was last heard of 121 s ago. It said: Kafka is away. Look at the brokers."
    )


def samples(parts: dict[str, Part]) -> set[str]:
    numbers, registry = LagNumbers(), CollectorRegistry()
    registry.register(numbers)
    numbers.saw(parts)
    return {line for line in generate_latest(registry).decode().splitlines() if line[0] != "#"}


def test_metrics_show_what_is_known_of_what_is_wanted() -> None:
    off = Part("disabled", "off")
    parts = {
        "ledger": Part("ready", "", "10"),
        "clock": Part("ready"),
        "sequence": off,
        MIRROR: Part("ready", "", "10", None, "0", 0.0),
        "pipeline": Part("degraded", "full", "8", None, "2", 1.5),
        PARQUET: Part("degraded", "never"),
        CLICKHOUSE: off,
        "delivery": off,
    }
    assert samples(parts) == {
        "tidemark_ledger_up 1.0",
        "tidemark_clock_held 0.0",
        'tidemark_copy_up{copy="mirror"} 1.0',
        'tidemark_copy_up{copy="pipeline"} 0.0',
        'tidemark_copy_up{copy="landing.parquet"} 0.0',
        'tidemark_copy_last_sequence{copy="mirror"} 10.0',
        'tidemark_copy_last_sequence{copy="pipeline"} 8.0',
        'tidemark_copy_lag_events{copy="mirror"} 0.0',
        'tidemark_copy_lag_events{copy="pipeline"} 2.0',
        'tidemark_copy_lag_seconds{copy="mirror"} 0.0',
        'tidemark_copy_lag_seconds{copy="pipeline"} 1.5',
    }
    late = DeliveryPart(
        *("degraded", dead_letters(2), "8", None, "2", 9.5),
        evaluation_lag_seconds=1.5,
        webhooks=Webhooks("1", "2", 9.5),
    )
    # What was given up keeps nothing else waiting.
    assert samples({**parts, "delivery": late}) - samples(parts) == {
        'tidemark_copy_up{copy="delivery"} 1.0',
        'tidemark_copy_last_sequence{copy="delivery"} 8.0',
        'tidemark_copy_lag_events{copy="delivery"} 2.0',
        'tidemark_copy_lag_seconds{copy="delivery"} 9.5',
        "tidemark_trigger_lag_seconds 1.5",
    }
    for state, value in (("ready", "1.0"), ("degraded", "0.0")):
        numbered = {**parts, "sequence": Part(state)}
        assert samples(numbered) - samples(parts) == {f"tidemark_sequence_up {value}"}
    held = {**parts, "clock": Part("unavailable", "a leap")}
    assert "tidemark_clock_held 1.0" in samples(held)
    unknown = {name: part for name, part in parts.items() if name != "clock"}
    assert samples(parts) - samples(unknown) == {"tidemark_clock_held 0.0"}
    away = {**parts, "ledger": Part("unavailable", "away"), "clock": Part("unavailable", "away")}
    assert samples(away) == {"tidemark_ledger_up 0.0"}
