"""What was sent freely is read from Kafka as it is from the ledger, whatever it is."""

from __future__ import annotations

from pathlib import Path

from tests.integration.test_decode_limits import DEEP, LONG_NAME, LONG_NUMBER
from tests.integration.test_kafka_pipeline import opened
from tidemark.ingress.drafts import Draft

AT = 1_760_000_000_000_000
CONTENTS = [
    '{"id":"a","x":{"y":1}}',
    f'{{"id":"b","x":{{"{LONG_NAME}":1}}}}',
    f'{{"id":"c","{LONG_NAME}":1}}',
    f'{{"id":"d","x":{LONG_NUMBER}.50}}',
    f'{{"id":"e","x":{DEEP}}}',
    '{"id":"f","x":"\\"data\\":1,\\ud83d","meta":{"data":1}}',
    '{"id":"g","tenantId":"other","ingressSequence":"1"}',
    "[]",
    "null",
    '"data"',
    None,
]
SETTINGS = {
    "streams": {
        "usage": {"kind": "usage"},
        "things": {"fields": {"id": "string", "x": "json"}},
    },
    "meters": {
        "plain": {"metric": "api_calls", "aggregate": "sum"},
        "grouped": {"metric": "api_calls", "aggregate": "count", "group_by": ["id"]},
    },
    "views": {"things": {"stream": "things", "key": ["id"]}},
    "pipeline": {},
}


async def test_all_that_can_be_sent_is_read_from_kafka_as_from_the_ledger(tmp_path: Path) -> None:
    async with opened(tmp_path, settings=SETTINGS) as world:
        drafts = [
            draft(number, stream, content)
            for number, content in enumerate(CONTENTS)
            for stream in ("usage", "things")
        ]
        await world.fill([(AT, drafts)])
        await world.mirror()
        expected = await world.folded("ledger", kafka=False)
        assert await world.folded("kafka", kafka=True) == expected


def draft(number: int, stream: str, content: str | None) -> Draft:
    is_usage = stream == "usage"
    return Draft(
        tenant_id='"data":{',
        stream=stream,
        idempotency_key=f"💧,{stream},{number}",
        content_hash=bytes([number]) * 32,
        occurred_at=AT,
        metric="api_calls" if is_usage else None,
        customer_ref="c1" if is_usage else None,
        quantity="1" if is_usage else None,
        data=content,
    )
