"""The bounded log of what was refused, so that it can be explained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract.events import SECOND, START, ManualClock, draft, rejection, request
from tests.contract.stores import EVERYTHING, Ledger, LedgerHome, all_events, append, append_all
from tidemark.config import load_config, sample_text
from tidemark.ingress.decoder import Decoder
from tidemark.ingress.drafts import no_corrections
from tidemark.ingress.rejections import MAX_BODY_CHARACTERS
from tidemark.ledger.port import RejectFilter, RejectRow


async def rejects(ledger: Ledger, **wanted: object) -> list[RejectRow]:
    return await ledger.read_rejects(RejectFilter(**wanted), EVERYTHING)  # type: ignore[arg-type]


async def test_a_reject_is_kept_with_everything_that_explains_it(
    ledger: Ledger, clock: ManualClock
) -> None:
    clock.pass_time(SECOND)
    refused = rejection(
        "bad_thing",
        message="it is bad",
        hint="make it good",
        field="data.thing",
        tenant_id="acme",
        stream="trades",
        idempotency_key="key",
        body='{"thing": "ü\N{SNOWMAN}"}',
    )
    await append_all(ledger, request(draft("a"), refused, request_id="request-7"))
    [kept] = await rejects(ledger)
    assert kept == RejectRow(
        reject_id=kept.reject_id,
        rejected_at=START + SECOND,
        request_id="request-7",
        position=1,
        status="rejected",
        code="bad_thing",
        message="it is bad",
        hint="make it good",
        field="data.thing",
        tenant_id="acme",
        stream="trades",
        idempotency_key="key",
        original_sequence=None,
        body='{"thing": "ü\N{SNOWMAN}"}',
    )


async def test_a_conflict_is_kept_with_the_number_of_its_original(ledger: Ledger) -> None:
    await append(ledger, draft("a"), draft("b", "one"))
    await append(ledger, draft("b", "two", data='{"n":2}', quantity="5"))
    [kept] = await rejects(ledger)
    assert (kept.status, kept.code, kept.original_sequence) == ("conflict", "content_conflict", 2)
    assert (kept.tenant_id, kept.stream, kept.idempotency_key) == ("acme", "usage", "b")
    body = json.loads(kept.body)
    assert body == {
        "tenantId": "acme",
        "stream": "usage",
        "idempotencyKey": "b",
        "occurredAt": "2025-01-01T00:00:00.000000Z",
        "quantity": "5",
        "data": {"n": 2},
    }


async def test_of_a_large_conflict_the_beginning_is_kept(ledger: Ledger) -> None:
    await append(ledger, draft("a", "one"))
    await append(ledger, draft("a", "two", data=f'{{"long":"{"x" * 60_000}"}}'))
    [kept] = await rejects(ledger)
    assert len(kept.body) == MAX_BODY_CHARACTERS
    assert kept.body.startswith('{"tenantId":"acme"')


async def test_duplicates_are_not_logged(ledger: Ledger) -> None:
    await append(ledger, draft("a"), draft("a"))
    await append(ledger, draft("a"))
    assert await rejects(ledger) == []


async def test_a_request_of_rejects_alone_is_logged_too(ledger: Ledger) -> None:
    await append(ledger, rejection("one"), rejection("two"))
    assert [kept.code for kept in await rejects(ledger)] == ["two", "one"]


async def test_the_newest_comes_first_and_pages_go_back(ledger: Ledger) -> None:
    for number in range(5):
        await append(ledger, rejection(f"code-{number}"))
    first = await ledger.read_rejects(RejectFilter(), 2)
    assert [kept.code for kept in first] == ["code-4", "code-3"]
    rest = await rejects(ledger, before_id=first[-1].reject_id)
    assert [kept.code for kept in rest] == ["code-2", "code-1", "code-0"]


async def test_rejects_are_found_by_tenant_code_and_key(ledger: Ledger) -> None:
    for tenant in ("acme", "globex", None):
        for code in ("one", "two"):
            for key in ("k", "l", None):
                await append(ledger, rejection(code, tenant_id=tenant, idempotency_key=key))
    everything = await rejects(ledger)
    assert len(everything) == 18
    for tenants in (None, (), ("acme",), ("acme", "globex"), ("nobody",)):
        for wanted_code in (None, "one", "three"):
            for wanted_key in (None, "k", "m"):
                expected = [
                    kept
                    for kept in everything
                    if (tenants is None or kept.tenant_id in tenants)
                    and (wanted_code is None or kept.code == wanted_code)
                    and (wanted_key is None or kept.idempotency_key == wanted_key)
                ]
                found = await rejects(
                    ledger, tenant_ids=tenants, code=wanted_code, idempotency_key=wanted_key
                )
                assert found == expected


async def test_the_log_is_bounded_and_keeps_the_newest(
    home: LedgerHome, clock: ManualClock
) -> None:
    ledger = await home.open(clock, reject_log_size=50)
    for number in range(40):
        await append(ledger, *(rejection(f"{number}-{i}") for i in range(5)))
        [(count,)] = await home.sql("SELECT count(*) FROM ingest_rejects")
        assert count <= 60
    newest = await ledger.read_rejects(RejectFilter(), 40)
    assert [kept.code for kept in newest] == [
        f"{number}-{i}" for number in range(39, 31, -1) for i in range(4, -1, -1)
    ]


async def test_the_log_is_bounded_over_restarts_too(home: LedgerHome, clock: ManualClock) -> None:
    """Also when no process lives long enough to see many rejects."""
    for number in range(18):
        ledger = await home.reopen(clock, reject_log_size=50)
        await append(ledger, *(rejection(f"{number}-{i}") for i in range(4)))
    [(count,)] = await home.sql("SELECT count(*) FROM ingest_rejects")
    assert count <= 60


async def test_a_log_of_no_size_keeps_nothing(home: LedgerHome, clock: ManualClock) -> None:
    ledger = await home.open(clock, reject_log_size=0)
    await append(ledger, rejection(), rejection())
    await append(ledger, rejection())
    assert await rejects(ledger) == []


NASTY = [
    b'{"tenantId":"a\\u0000b","metric":"m"}',
    b'{"tenantId":"a\\ud800","metric":"m"}',
    b'{"tenantId":"acme","idempotencyKey":"\\udfff","ts":"\\u0000"}',
    b'\xff\xfe{"tenantId":"acme"}',
    b'{"tenantId":"acme","metric":"' + b"\x00" * 5 + b'"}',
    b'{"tenantId":"' + b"x" * 70_000 + b'"}',
    b'{"stream":"\\u0000","tenantId":"acme","data":{}}',
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    b"",
    b'{"tenantId":"acme","metric":"m","customerRef":"c","ts":"2024-01-01T00:00:00Z","quantity":1e999}',
    '{"tenantId":"\U0001f600","\N{SNOWMAN}":1}'.encode(),
]


@pytest.mark.parametrize("raw", NASTY, ids=range(len(NASTY)))
async def test_whatever_a_client_sends_can_be_logged(
    ledger: Ledger, tmp_path: Path, raw: bytes
) -> None:
    """A refused event that the log could not hold would take its neighbours with it."""
    path = tmp_path / "tidemark.yaml"
    path.write_text(sample_text())
    decoder = Decoder(load_config(path, {}), "salt")
    entry = decoder.decode_event(raw, now_us=START)
    [outcomes] = await ledger.append_group([request(draft("a"), entry, draft("b"))], no_corrections)
    assert [outcome.status for outcome in outcomes] == ["accepted", "rejected", "accepted"]
    [kept] = await rejects(ledger)
    assert kept.code
    assert len(await all_events(ledger)) == 2
