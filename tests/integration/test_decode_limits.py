"""What Spark's parser of JSON does not take by itself is read all the same, or is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from tests.folding import facts as meter_facts
from tests.folding.streams import stream_draft
from tests.generated.meters import QUANTITY, random_meter
from tests.integration.test_decode import decoded, decoder_of, stream_event, usage_draft
from tests.services.spark import shared_session
from tidemark.config import Config
from tidemark.pipeline.decode.json_text import value_at, value_begin
from tidemark.pipeline.decode.stage import Decoder
from tidemark.pipeline.definitions import Definitions
from tidemark.pipeline.time.registry import EventtimeTypeRegistry

LONG_NAME = "n" * 50_001
LONG_NUMBER = "1" * 1_001
DEEP = "[" * 99 + "]" * 99


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return shared_session()


def test_usage_whose_meta_cannot_be_read_counts_where_no_one_looks_at_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    plain = meter_facts.definition_of(random_meter(1, where=None, value=QUANTITY, group_by=()))
    meters = (
        plain,
        msgspec.structs.replace(plain, name="grouped", group_by=("region",)),
        msgspec.structs.replace(plain, name="chosen", where="Meta['region'] = 'eu'"),
        msgspec.structs.replace(plain, name="valued", value="cast(meta.n as int)"),
    )
    decoder = decoder_of(spark, tmp_path, Definitions(meters, ()))
    metas = [
        '{"region":"eu","n":7}',
        f'{{"region":"eu","{LONG_NAME}":1,"n":7}}',
        f'{{"a":{{"{LONG_NAME}":1}},"region":"eu","n":7}}',
        f'{{"a":{LONG_NUMBER},"b":0.{LONG_NUMBER},"c":[{LONG_NUMBER}],"region":"eu","n":7}}',
        f'{{"a":{DEEP},"region":"eu","n":7}}',
    ]
    events = [{"seq": seq, "meta": meta} for seq, meta in enumerate(metas, start=1)]
    found = decoded(spark, decoder, [(1, events)], usage_draft)
    seen = {
        meter.name: [fact["error_code"] or fact["value"] for fact in found if fact["view"] == place]
        for place, meter in enumerate(meters)
    }
    assert seen == {
        plain.name: [1] * 5,
        "grouped": [1, "undecodable", "undecodable", 1, 1],
        "chosen": [1, "undecodable", "undecodable", 1, 1],
        "valued": [7, "undecodable", "undecodable", 7, 7],
    }


def test_records_and_rows_that_cannot_be_read_are_errors_of_all_that_look_at_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = Config.model_validate(
        {
            "state_dir": str(tmp_path),
            "streams": {
                "trades": {
                    "fields": {"id": "string", "at": "timestamp"},
                    "eventtime": {"column": "at", "type": "iso8601"},
                },
                "records": {"fields": {"id": "string", "messages": "json"}},
            },
            "views": {"kept": {"stream": "records", "key": ["id"]}},
            "pipeline": {"eventtime": {"enabled": True}, "ordered": {"trades": {}}},
        }
    )
    decoder = Decoder(spark, config, Definitions.of(config), EventtimeTypeRegistry())
    at = '"at":"2025-11-10T00:00:00.000000Z"'
    contents = [
        f'"stream":"trades","data":{{{at}}}',
        f'"stream":"trades","data":{{{at},"x":{LONG_NUMBER}}}',
        f'"stream":"trades","data":{{{at},"{LONG_NAME}":1}}',
        '"stream":"none"',
    ]
    events = [
        {**stream_event(seq, f'{{"id":"a","messages":[{{{content}}}]}}'), "stream": "records"}
        for seq, content in enumerate(contents, start=1)
    ]
    found = decoded(spark, decoder, [(1, events)], stream_draft)
    # The time stage is no view.
    seen = {
        (fact["view"], fact["ingress_sequence"]): fact["error_code"] or fact["kind"]
        for fact in found
        if fact["kind"] != "commit"
    }
    assert seen == {
        (0, 1): "fact",
        (0, 2): "fact",
        (0, 3): "undecodable",
        (0, 4): "fact",
        (-1, 1): "tuple",
        (-1, 2): "tuple",
        (-1, 3): "undecodable",
    }


@pytest.mark.parametrize("name", ["meta", "data"])
def test_what_was_sent_freely_is_cut_out_as_it_was_written(name: str, spark: SparkSession) -> None:
    contents: list[Any] = [
        "{}",
        f'{{"{LONG_NAME}":{{"meta":1,"data":2}}}}',
        '{"meta":{"data":"\\"meta\\":1}"}}',
        "[1.50,{}]",
        '"data"',
        "null",
        "-7.5",
        None,
    ]
    before = '{"tenantId":"\\"data\\":{1","idempotencyKey":"💧"'
    behind = ',"causalityKey":"}]\\\\"}'
    texts = [before + (f',"{name}":{c}' if c else "") + behind for c in contents]
    text, begin = fn.col("text"), fn.col("begin")
    found = (
        spark.createDataFrame([(n, text) for n, text in enumerate(texts)], "n int, text string")
        .select("*", value_begin(text, ["meta", "data"]).alias("begin"))
        .select("n", "begin", value_at(text, begin).alias("value"))
        .orderBy("n")
        .collect()
    )
    assert [row["value"] for row in found] == contents
    begins = [None if c is None else len(before) + len(name) + 5 for c in contents]
    assert [row["begin"] for row in found] == begins
    assert [json.loads(text).get(name) for text in texts[3:]] == [
        [1.5, {}],
        "data",
        None,
        -7.5,
        None,
    ]
