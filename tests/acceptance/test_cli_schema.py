"""`schema`: what can be asked for over GraphQL, without a server and mostly without Spark."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from graphql import build_client_schema, build_schema, get_introspection_query, print_schema

from tests.acceptance.cli_runs import Ran, tidemark
from tests.acceptance.warm_runs import tidemark_on_spark
from tests.services.fed_views import FedViews
from tests.services.http_calls import call
from tests.services.tidemark_server import TidemarkServer
from tidemark.config import load_config
from tidemark.pipeline.definitions import Definitions, meter_schema, table_schema
from tidemark.pipeline.output.schema import Column
from tidemark.views.opening import open_views

PLAIN = """
state_dir: state
streams:
  usage: {kind: usage}
  trades:
    description: Trades as they were executed.
    identity: [trade_id]
    fields:
      trade_id: string
      account: {type: string, description: Whose it is.}
      side: {type: enum, values: [buy, sell]}
      quantity: decimal
      price: decimal
meters:
  api_calls: {aggregate: sum, period: month}
views:
  positions: {stream: trades, key: [account]}
  quiet: {stream: trades, key: [trade_id], live: false}
"""
CALCULATED = PLAIN + "  trades: {stream: trades, key: [trade_id], calculated: {notional: %s}}\n"
INTROSPECTION = get_introspection_query(
    schema_description=True, specified_by_url=True, input_value_deprecation=True, one_of=True
)
NO_JAVA = {"TIDEMARK_SPARK__JAVA_HOME": "/nowhere"}


def write(home: Path, text: str) -> None:
    (home / "tidemark.yaml").write_text(text)


def declare(home: Path, notional: Column) -> None:
    """As a pipeline does with what is configured there."""

    async def work() -> None:
        config = load_config(home / "tidemark.yaml", {})
        store = await open_views(config)
        [table] = [it for it in Definitions.of(config).tables if it.name == "trades"]
        await store.declare([table_schema(table, (notional,))])
        await store.close()

    asyncio.run(work())


def without_java(home: Path) -> Ran:
    return tidemark("schema", cwd=home, env=NO_JAVA)


def test_the_schema_is_text_that_tools_read(tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    ran = without_java(tmp_path)
    assert (ran.code, ran.err) == (0, "")
    schema = build_schema(ran.out)
    assert schema.mutation_type is not None
    assert schema.subscription_type is not None
    assert {"create_positions_trigger", "redeliver_api_calls_trigger"} <= set(
        schema.mutation_type.fields
    )
    assert set(schema.subscription_type.fields) == {"api_calls", "positions"}
    assert '"""Whose it is."""\n  account: String' in ran.out
    assert tidemark("schema", "--json", cwd=tmp_path, env=NO_JAVA).json == {
        "config": "tidemark.yaml",
        "sdl": ran.out,
    }


def test_nothing_is_made_where_somebody_only_asks(tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    assert without_java(tmp_path).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["tidemark.yaml"]


def test_it_is_the_schema_that_a_server_serves() -> None:
    with TidemarkServer(PLAIN) as server:

        async def feed() -> None:
            config = load_config(server.config_path, dict(server.env))
            store = await open_views(config)
            definitions = Definitions.of(config)
            schemas = [meter_schema(it) for it in definitions.meters]
            schemas += [
                table_schema(it, (), logged=it.name not in definitions.unlogged)
                for it in definitions.tables
            ]
            await FedViews(store, schemas).declare()
            await store.close()

        asyncio.run(feed())
        query = {"query": INTROSPECTION}
        deadline = time.monotonic() + 30
        while (answer := call(server.base_url, "POST", "/graphql", json=query)).status != 200:
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)
        served = print_schema(build_client_schema(answer.json["data"])) + "\n"
        ran = tidemark("schema", cwd=server.directory, env=NO_JAVA)
        assert ran.out == served


def test_calculated_columns_are_those_that_the_pipeline_has_declared(tmp_path: Path) -> None:
    write(tmp_path, CALCULATED % "quantity * price")
    declare(tmp_path, Column("notional", "bigint"))
    ran = without_java(tmp_path)
    assert ran.code == 0
    assert "  notional: BigInt\n" in ran.out


def test_a_view_with_another_definition_is_found_out_by_spark(tmp_path: Path) -> None:
    write(tmp_path, CALCULATED % "cast(quantity as bigint)")
    declare(tmp_path, Column("notional", "bigint"))
    write(tmp_path, CALCULATED % "quantity * price")
    ran = without_java(tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "/nowhere" in ran.err
    ran = tidemark_on_spark("schema", cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert "  notional: Decimal\n" in ran.out


def test_an_expression_that_spark_does_not_take_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, CALCULATED % "quantity * prize")
    ran = tidemark_on_spark("schema", "--json", cwd=tmp_path)
    assert (ran.code, ran.json["error"]["code"]) == (2, "config_invalid")
    assert "notional" in ran.json["error"]["field"]


@pytest.mark.parametrize("text", ["streams: {usage: {kind: usage}}\n", "streams: {}\n"])
def test_without_views_there_is_nothing_to_ask_for(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    ran = without_java(tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "no meter and no view is configured" in ran.err
