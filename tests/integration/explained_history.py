"""A small history of which there is something to explain, folded by the real pipeline."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from tests.folding.runs import run_pipeline
from tests.integration.http_client import Api
from tests.services.tidemark_server import TidemarkServer
from tidemark.clock import SystemClock
from tidemark.config import load_config
from tidemark.ledger.opening import open_ledger
from tidemark.timestamps import parse_timestamp
from tidemark.views.opening import open_views, views_place

CONFIG: Final = """
streams:
  usage:
    kind: usage
    fields:
      region: {type: string, required: false}
      plan: {type: string, required: false}
  trades:
    identity: [trade_id]
    fields: {trade_id: string, account: string, quantity: decimal, gone: boolean}
  letters:
    fields: {text: string}
meters:
  by_day: {metric: bytes, period: day, lateness: 1h}
  by_region: {metric: bytes, group_by: [region]}
  inverse: {metric: bytes, value: 1 / (quantity - 7)}
  paid: {metric: bytes, where: meta.plan <> 'trial'}
  peak: {metric: bytes, aggregate: max, period: day, lateness: 1h}
  seats: {}
  silent: {metric: bytes, live: false, where: meta.plan = 'gold'}
views:
  positions: {stream: trades, key: [account], deleteWhen: gone}
"""
DAY: Final = "2025-01-31T"


class History(msgspec.Struct):
    """A running server, and the results of what was sent to it by name."""

    server: TidemarkServer
    api: Api
    results: dict[str, dict[str, Any]]

    def sequence(self, name: str) -> str:
        found: str = self.results[name]["ingressSequence"]
        return found

    def explain(self, name: str) -> dict[str, Any]:
        """The explanation of an event by its sequence."""
        answer = self.api.get("/admin/explain", sequence=self.sequence(name))
        assert answer.status == 200, answer
        explained: dict[str, Any] = answer.json
        return explained

    def meter(self, name: str, meter: str) -> dict[str, Any]:
        [found] = [it for it in self.explain(name)["meters"] if it["meter"] == meter]
        entry: dict[str, Any] = found
        return entry

    def table(self, name: str) -> dict[str, Any]:
        [entry] = self.explain(name)["tables"]
        found: dict[str, Any] = entry
        return found


def make_history(server: TidemarkServer) -> History:
    """Sends commit after commit, folds them, and sends one more that is not folded."""
    api = Api(server.base_url, "acme")
    history = History(server, api, {})

    def send(**events: dict[str, Any]) -> None:
        results = api.accept(*events.values())
        history.results |= dict(zip(events, results, strict=True))

    send(forgotten=usage("first", f"{DAY}01:00:00Z"))
    send(noon=usage("c", f"{DAY}12:00:00Z", quantity="2.5", idempotencyKey="noon"))
    send(in_time=usage("c", f"{DAY}11:30:00Z"))
    send(late=usage("c", f"{DAY}10:00:00Z", quantity="1"))
    send(later=usage("c", f"{DAY}13:00:00Z"))
    send(trial=usage("c", f"{DAY}13:01:00Z", meta={"plan": "trial", "region": "eu"}))
    send(
        both_trial=usage("c", f"{DAY}13:02:00Z", meta={"plan": "trial"}),
        both_paid=usage("c", f"{DAY}13:03:00Z", meta={"plan": "paid"}),
    )
    send(seven=usage("seven", f"{DAY}12:00:00Z", quantity="7"))
    send(void_seven=control("void", history.results["seven"], reason="a mistake"))
    send(void_again=control("void", history.results["seven"], idempotencyKey="again"))
    send(amended=usage("amended", f"{DAY}12:00:00Z"))
    send(
        amend=control(
            "amend", history.results["amended"], event={"ts": f"{DAY}12:30:00Z", "quantity": "9"}
        )
    )
    send(void_late=control("void", history.results["late"]))
    send(
        adjust={
            "control": "adjust",
            "tenantId": "acme",
            "metric": "bytes",
            "customerRef": "c",
            "periodStart": f"{DAY}00:00:00Z",
            "quantity": "-1",
            "reason": "goodwill",
        }
    )
    send(other_metric=usage("c", f"{DAY}12:00:00Z", metric="unheard of"))
    send(first_of_pair=usage("pair", f"{DAY}12:00:00Z"))
    # Late for each other, but in one commit, in which order does not matter.
    send(
        newer=usage("pair", f"{DAY}15:00:00Z"),
        older=usage("pair", f"{DAY}11:30:00Z"),
    )
    send(trade=trade("t-1", "a1", "10"))
    send(older_trade={**trade("t-2", "a1", "5"), "occurredAt": f"{DAY}12:00:00Z"})
    send(bought=trade("t-3", "a2", "1"))
    send(sold=trade("t-4", "a2", "0", gone=True))
    send(end={"control": "end", "tenantId": "acme", "stream": "trades"})
    send(letter={"stream": "letters", "tenantId": "acme", "data": {"text": "x"},
                 "source": "/post", "idempotencyKey": "letter"})  # fmt: skip
    asyncio.run(fold(server, forget_before=history.results["noon"]["receivedAt"]))
    send(waiting=usage("c", f"{DAY}14:00:00Z", idempotencyKey="waiting"))
    return history


def usage(customer: str, ts: str, **changes: Any) -> dict[str, Any]:
    return {
        "tenantId": "acme",
        "metric": "bytes",
        "customerRef": customer,
        "ts": ts,
        "quantity": "1.5",
        **changes,
    }


def trade(trade_id: str, account: str, quantity: str, **changes: Any) -> dict[str, Any]:
    data = {"trade_id": trade_id, "account": account, "quantity": quantity, "gone": False}
    return {"stream": "trades", "tenantId": "acme", "data": {**data, **changes}}


def control(kind: str, target: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"control": kind, "tenantId": "acme", "target": target["idempotencyKey"], **more}


async def fold(server: TidemarkServer, *, forget_before: str | None = None) -> None:
    """Takes everything that a server has into the views, and forgets changes before a time."""
    config = load_config(server.config_path, dict(server.env))
    ledger, views = await open_ledger(config, SystemClock()), await open_views(config)
    try:
        await run_pipeline(config, ledger, views, views_place(config))
        if forget_before is not None:
            await views.prune_changes(parse_timestamp(forget_before))
    finally:
        await views.close()
        await ledger.close()
