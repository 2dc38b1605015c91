"""`/admin/event-health`, and the parts of `/readyz` and the metrics that say the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, Final

import jsonschema_rs
import pytest

from tests.integration.filled_views import FilledViews
from tests.integration.http_client import Api, assert_refused, usage
from tests.integration.test_http_access import environment_with_keys
from tests.integration.test_http_health import metric
from tests.services.tidemark_server import STARTED_WITHIN_S, TidemarkServer
from tidemark.clock import MICROS_PER_SECOND, SystemClock
from tidemark.config import load_config
from tidemark.errors import TidemarkError
from tidemark.ledger.opening import open_ledger
from tidemark.ledger.port import CopyState
from tidemark.ops.health import LISTEN_EVERY_S
from tidemark.timestamps import parse_timestamp

PATH: Final = "/admin/event-health"
COPIES: Final = {
    "TIDEMARK_MIRROR__ENABLED": "true",
    "TIDEMARK_LANDING__PARQUET__ENABLED": "true",
}
LONG_US: Final = 3600 * MICROS_PER_SECOND


@pytest.fixture
def copied(store_url: str | None) -> Iterator[TidemarkServer]:
    """With a mirror and files that no process keeps: tests tell of them."""
    with TidemarkServer(env=COPIES, ledger_url=store_url) as server:
        yield server
        assert "Traceback" not in server.log_text()


def tell(
    server: TidemarkServer,
    name: str,
    result: dict[str, Any],
    *,
    sequence: int | None = None,
    silent_us: int = 0,
    error: TidemarkError | None = None,
) -> None:
    """As the process of a copy would that is as far as the event with this result."""

    async def told() -> None:
        config = load_config(server.config_path, dict(server.env))
        ledger = await open_ledger(config, SystemClock())
        try:
            reached = int(result["ingressSequence"]) if sequence is None else sequence
            received_at = parse_timestamp(result["receivedAt"])
            told_at = SystemClock().wall_us() - silent_us
            await ledger.tell_copy(CopyState(name, reached, received_at, told_at, error))
        finally:
            await ledger.close()

    asyncio.run(told())


def seconds_since(result: dict[str, Any]) -> float:
    return (SystemClock().wall_us() - parse_timestamp(result["receivedAt"])) / MICROS_PER_SECOND


def sent(api: Api, *sizes: int) -> list[list[dict[str, Any]]]:
    """Commits of so many events each, new in this ledger."""
    start = int(api.get(PATH).json["parts"]["ledger"]["lastSequence"])
    found = []
    for size in sizes:
        found.append(
            api.accept(*(usage(api.tenant, customerRef=f"c{start + n}") for n in range(size)))
        )
        start += size
    return found


def test_lag_is_counted_in_events_and_in_seconds(copied: TidemarkServer, tenant: str) -> None:
    api = Api(copied.base_url, tenant)
    [first], [_, inside, _], [last] = sent(api, 1, 3, 1)
    tell(copied, "mirror", first)
    # A block may end within a commit.
    tell(copied, "landing.parquet", first, sequence=int(inside["ingressSequence"]))
    at_least = seconds_since(inside)
    answer = api.get(PATH)
    at_most = seconds_since(inside)
    assert (answer.status, answer.json["status"]) == (200, "ready")
    parts = answer.json["parts"]
    assert list(parts) == [
        *("ledger", "clock", "sequence", "mirror", "pipeline"),
        *("landing.parquet", "landing.clickhouse", "live", "delivery"),
    ]
    assert parts["ledger"]["lastSequence"] == last["ingressSequence"]
    for name, missing, reached in (
        ("mirror", "4", first),
        ("landing.parquet", "2", inside),
    ):
        part = parts[name]
        assert (part["state"], part["lagEvents"]) == ("ready", missing)
        assert part["lastSequence"] == reached["ingressSequence"]
        assert part["receivedAt"] == first["receivedAt"]
        # Both lack the second commit, the one as a whole and the other in part.
        assert at_least - 0.001 <= part["lagSeconds"] <= at_most + 0.001
        assert metric(api, "tidemark_copy_lag_events", copy=name) == int(missing)
        assert metric(api, "tidemark_copy_up", copy=name) == 1
        assert metric(api, "tidemark_copy_last_sequence", copy=name) == int(part["lastSequence"])
        assert metric(api, "tidemark_copy_lag_seconds", copy=name) >= part["lagSeconds"]
    assert parts["landing.clickhouse"]["state"] == "disabled"
    assert parts["pipeline"]["lagEvents"] == last["ingressSequence"]

    for name in ("mirror", "landing.parquet"):
        tell(copied, name, last)
    FilledViews(copied.config_path, copied.env).commit()
    parts = api.get(PATH).json["parts"]
    for name in ("mirror", "landing.parquet", "pipeline"):
        assert (parts[name]["lagEvents"], parts[name]["lagSeconds"]) == ("0", 0.0)
        assert parts[name]["lastSequence"] == last["ingressSequence"]
    ready = api.get("/readyz").json["parts"]
    assert ready["mirror"] == parts["mirror"]
    assert ready["landing"] == parts["landing.parquet"]
    assert metric(api, "tidemark_ledger_up") == 1
    assert metric(api, "tidemark_clock_held") == 0


def test_a_copy_that_nobody_keeps_or_that_fails_degrades_and_says_why(
    copied: TidemarkServer, tenant: str
) -> None:
    api = Api(copied.base_url, tenant)
    [[result]] = sent(api, 1)
    names = ("mirror", "landing.parquet")

    def found() -> dict[str, Any]:
        parts = api.get(PATH).json["parts"]
        return {name: parts[name] for name in names}

    for name in names:
        tell(copied, name, result, silent_us=LONG_US)
    # One that looks again and again would have heard of it in time.
    copied.restart()
    api = Api(copied.base_url, tenant)
    for name, command in zip(names, ("tidemark mirror", "tidemark land"), strict=True):
        part = found()[name]
        assert part["state"] == "degraded"
        assert "does not run" in part["reason"]
        assert command in part["reason"]
    error = TidemarkError("the brokers are away", hint="Look at them.", code="mirror_unavailable")
    tell(copied, "mirror", result, error=error)
    assert found()["mirror"]["reason"] == "the brokers are away. Look at them."
    # Events can be taken all the same.
    ready = api.get("/readyz")
    assert (ready.status, ready.json["status"]) == (200, "degraded")
    assert ready.json["parts"]["mirror"] == found()["mirror"]
    assert "tidemark land" in ready.json["parts"]["landing"]["reason"]
    assert metric(api, "tidemark_copy_up", copy="mirror") == 0


def test_a_copy_whose_clock_is_wrong_is_heard_however_seldom_anybody_asks(tenant: str) -> None:
    """As by a Prometheus that asks once a minute."""
    with TidemarkServer(env=COPIES) as server:
        api = Api(server.base_url, tenant)
        [[result]] = sent(api, 1)
        server.stop()
        # Whether it is ready is not asked either.
        server.start(wait=False)
        deadline = time.monotonic() + STARTED_WITHIN_S
        while not is_alive(api):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        tell(server, "mirror", result, silent_us=LONG_US)
        time.sleep(LISTEN_EVERY_S + 1)
        assert api.get(PATH).json["parts"]["mirror"]["state"] == "ready"


def is_alive(api: Api) -> bool:
    try:
        return api.get("/healthz").status == 200
    except OSError:
        return False


def test_a_copy_of_which_nothing_was_ever_told_names_its_command(tenant: str) -> None:
    env = {**COPIES, "TIDEMARK_LANDING__CLICKHOUSE__ENABLED": "true"}
    with TidemarkServer(env=env) as server:
        answer = Api(server.base_url, tenant).get(PATH)
        assert (answer.status, answer.json["status"]) == (200, "degraded")
        for name in ("mirror", "landing.parquet", "landing.clickhouse"):
            part = answer.json["parts"][name]
            assert set(part) == {"state", "reason"}
            assert "never run" in part["reason"]
        document = Api(server.base_url, tenant).get("/openapi.json").json
        schema = {"$ref": "#/components/schemas/EventHealth", "components": document["components"]}
        jsonschema_rs.Draft202012Validator(schema).validate(answer.json)


def test_it_needs_a_key_that_may_read() -> None:
    with TidemarkServer(env=environment_with_keys()) as server:
        assert Api(server.base_url, "acme", "reader").get(PATH).status == 200
        assert_refused(Api(server.base_url, "acme", "sender").get(PATH), 403, "forbidden")
        assert_refused(Api(server.base_url, "acme").get(PATH), 401, "unauthorized", "Authorization")
        assert_refused(
            Api(server.base_url, "acme", "reader").get(PATH, since="1"),
            *(400, "unknown_parameter", "since"),
        )


def test_a_reason_that_a_stranger_is_not_told_is_in_the_log_once() -> None:
    env = {**environment_with_keys(), "TIDEMARK_MIRROR__ENABLED": "true"}
    with TidemarkServer(env=env) as server:
        [[result]] = sent(Api(server.base_url, "acme", "everything"), 1)

        def logged(reason: str | None) -> int:
            error = None if reason is None else TidemarkError(reason, code="away")
            tell(server, "mirror", result, error=error)
            for _ in range(3):
                assert Api(server.base_url, "acme").get("/readyz").status == 200
            return server.log_text().count("mirror is degraded: the brokers")

        assert server.log_text().count("mirror is degraded") == 1
        # Other seconds are no other reason.
        assert [logged(f"the brokers are away for {n} s") for n in (9, 10)] == [1, 1]
        assert logged("the brokers refuse us") == 2
        assert [logged(None), logged("the brokers refuse us")] == [2, 3]


def test_with_several_workers_each_shows_what_the_ledger_was_told() -> None:
    env = {**COPIES, "TIDEMARK_HTTP__WORKERS": "2"}
    with TidemarkServer(env=env) as server:
        api = Api(server.base_url, "acme")
        [[first], [last]] = sent(api, 1, 1)
        for result, lag in ((first, 1), (last, 0)):
            tell(server, "mirror", result)
            for _ in range(8):
                assert metric(api, "tidemark_copy_lag_events", copy="mirror") == lag
                assert metric(api, "tidemark_ledger_up") == 1
