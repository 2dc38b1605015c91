"""Which plan a configuration asks for, what it says of itself, and the types it may name."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tidemark.config import Config
from tidemark.config.names import BUILT_IN_EVENTTIME_TYPES
from tidemark.errors import ConfigError
from tidemark.pipeline.time.plans import (
    EVENTTIME,
    PROCESS_TIME,
    StreamTime,
    TimePlan,
    describe,
    plan_of,
)
from tidemark.pipeline.time.registry import EventtimeTypeRegistry, registry_of

STREAMS: dict[str, Any] = {
    "usage": {"kind": "usage"},
    "trades": {
        "identity": ["id"],
        "fields": {"id": "string", "executed_at": "timestamp"},
        "eventtime": {"column": "executed_at", "type": "iso8601"},
        "idle_after_us": 90_000_000,
    },
}


def config(**eventtime: Any) -> Config:
    return Config.model_validate({"streams": STREAMS, "pipeline": {"eventtime": eventtime}})


def test_by_default_time_is_when_events_were_received() -> None:
    plan = plan_of(config())
    assert plan == TimePlan(PROCESS_TIME, {"trades": StreamTime(), "usage": StreamTime()})
    assert plan.timed == {}


def test_with_event_time_a_stream_goes_by_its_column() -> None:
    plan = plan_of(config(enabled=True, late_tolerance_us=5))
    trades = StreamTime("executed_at", "iso8601", 5, 3_600_000_000, 90_000_000)
    assert plan == TimePlan(EVENTTIME, {"trades": trades, "usage": StreamTime()})
    assert plan.timed == {"trades": trades}


def test_a_plan_describes_itself() -> None:
    lines = describe(plan_of(config(enabled=True, late_tolerance_us=5_000_000))).splitlines()
    assert lines[0] == "EventtimeWatermark"
    assert lines[-3:] == [
        "stream  column         type     lateTolerance  futureBound  idleAfter",
        "trades  executed_at    iso8601  5s             1h           90s",
        "usage   (received at)  –        –              –            –",
    ]
    assert describe(plan_of(config())).startswith("ProcessTimeWatermark\n")


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        StreamTime("at", "iso8601", late_tolerance_us=-1)
    with pytest.raises(ValueError, match="idle at once"):
        StreamTime("at", "iso8601", idle_after_us=0)


def test_the_built_in_types_are_those_that_the_configuration_knows() -> None:
    assert EventtimeTypeRegistry().list() == sorted(BUILT_IN_EVENTTIME_TYPES)


def test_an_unknown_type_names_those_that_there_are() -> None:
    with pytest.raises(ConfigError) as caught:
        EventtimeTypeRegistry().resolve("unix_timestamp_s")
    assert "unix_timestamp_s" in caught.value.message
    assert "Did you mean `unixtimestamp_s`" in caught.value.hint
    assert all(name in caught.value.hint for name in BUILT_IN_EVENTTIME_TYPES)


def test_a_type_is_registered_once() -> None:
    registry = EventtimeTypeRegistry()
    registry.register("mine", lambda column: column)
    assert "mine" in registry.list()
    for name in ("mine", "iso8601"):
        with pytest.raises(ConfigError, match=f"{name} already"):
            registry.register(name, lambda column: column)


def test_a_type_is_loaded_from_its_import_path() -> None:
    registry = registry_of(config(types={"mine": "tests.unit.test_time_plans:taken_as_it_is"}))
    assert "mine" in registry.list()


def taken_as_it_is(column: Any) -> Any:
    return column


def takes_two(column: Any, other: Any) -> Any:
    return column


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no_such_package.times:parse", "no_such_package.times cannot be imported"),
        ("tests.unit.test_time_plans:nothing", "has no nothing"),
        ("tests.unit.test_time_plans:STREAMS", "STREAMS is no function"),
        ("tests.unit.test_time_plans:takes_two", "takes_two does not take one column"),
    ],
)
def test_a_path_that_leads_nowhere_is_named(path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry_of(config(types={"mine": path}))
    assert path in caught.value.message
    assert reason in caught.value.message
    assert caught.value.field == "pipeline.eventtime.types.mine"


def test_types_and_plans_are_known_without_spark() -> None:
    program = (
        "import sys\n"
        "from tidemark.pipeline.time import messages, plans, registry\n"
        "registry.EventtimeTypeRegistry().list()\n"
        "sys.exit('pyspark' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
