"""What the process that leads says of triggers, and what others make of its silence."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.events import SECOND, ManualClock
from tests.contract.triggers_home import Triggers
from tidemark.errors import TidemarkError
from tidemark.live.triggers import leader_reports
from tidemark.live.triggers.leader_reports import SILENT_AFTER_US, TELL_AGAIN_US, LeaderReports
from tidemark.live.triggers.port import LeaderReport

pytest_plugins = ("tests.contract.triggers_fixtures",)

AWAY = TidemarkError("the views are away")
# Long enough for some looks.
WHILE_S = 0.3


async def test_silence_is_measured_by_the_clock_of_who_listens(triggers: Triggers) -> None:
    clock = ManualClock()
    reports = LeaderReports(triggers, clock, lambda: None)
    # The leader's clock may be hours behind ours.
    assert reports.judged(LeaderReport(1)) is None
    clock.pass_time(SILENT_AFTER_US)
    assert reports.judged(LeaderReport(1, AWAY)) is AWAY
    clock.pass_time(SECOND)
    silent = reports.judged(LeaderReport(1, AWAY))
    assert silent is not None
    assert "nothing was heard of one for 31 s" in silent.message
    assert reports.judged(LeaderReport(2, AWAY)) is AWAY
    assert reports.judged(LeaderReport(3)) is None


async def test_that_nobody_ever_led_is_noticed_too(triggers: Triggers) -> None:
    clock = ManualClock()
    reports = LeaderReports(triggers, clock, lambda: None)
    assert reports.judged(None) is None
    clock.pass_time(SILENT_AFTER_US + SECOND)
    assert reports.judged(None) is not None


async def test_the_leader_tells_what_is_new_at_once_and_anything_again_after_a_while(
    triggers: Triggers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_reports, "LOOK_EVERY_S", WHILE_S / 10)
    clock = ManualClock()
    own: list[TidemarkError | None] = [None]
    telling = asyncio.create_task(LeaderReports(triggers, clock, lambda: own[0]).tell())

    async def told() -> LeaderReport:
        await asyncio.sleep(WHILE_S)
        report = await triggers.told()
        assert report is not None
        return report

    first = await told()
    assert first.trouble is None
    clock.pass_time(SECOND)
    assert await told() == first
    own[0] = AWAY
    second = await told()
    assert second.told_at == first.told_at + SECOND
    assert second.trouble is not None
    clock.pass_time(TELL_AGAIN_US)
    assert (await told()).told_at == second.told_at + TELL_AGAIN_US
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)
