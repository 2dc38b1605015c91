"""How far the copies of the ledger are, by what their processes have told the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.config import Config
from tidemark.errors import TidemarkError
from tidemark.ledger.port import CopyState
from tidemark.ledger.sequencer import Head
from tidemark.mirror.telling import MIRROR
from tidemark.ops.lag import Lag, Lags
from tidemark.ops.parts import Part, reason_of
from tidemark.timestamps import format_timestamp

# As those who tell call themselves.
PARQUET: Final = "landing.parquet"
CLICKHOUSE: Final = "landing.clickhouse"
COPY_NAMES: Final = (MIRROR, PARQUET, CLICKHOUSE)

# They tell about once a second.
SILENT_AFTER_US: Final = 30 * MICROS_PER_SECOND
_WITHOUT_TICKS: Final = frozenset({PARQUET, CLICKHOUSE})
_COMMANDS: Final = {MIRROR: "mirror", PARQUET: "land", CLICKHOUSE: "land"}


class _Known(NamedTuple):
    """What was told of a copy, and what follows from it."""

    state: CopyState
    lag: Lag


class _Heard(NamedTuple):
    """What was told last, and when, by the listener's own clock."""

    told_at: int
    elapsed_us: int


class Copies:
    """The copies that a configuration has, each as a part."""

    def __init__(self, config: Config, lags: Lags, clock: Clock) -> None:
        landing = config.landing
        self._is_enabled = {
            MIRROR: config.mirror.enabled,
            PARQUET: landing.parquet.enabled,
            CLICKHOUSE: landing.clickhouse.enabled,
        }
        self._lags = lags
        self._clock = clock
        self.are_wanted = any(self._is_enabled.values())
        self._heard: dict[str, _Heard] = {}
        self._listened_us: int | None = None

    async def parts(self, told: Mapping[str, CopyState], head: Head) -> dict[str, Part]:
        """`told` is what the ledger was told before this was its head."""
        parts = self.unknown("")
        self.hear(told)
        now_us = self._clock.elapsed_us()
        for name, is_enabled in self._is_enabled.items():
            if is_enabled:
                state = told.get(name)
                known = None if state is None else _Known(state, await self._lag(state, head))
                silent_us = 0 if known is None else now_us - self._heard[name].elapsed_us
                parts[name] = copy_part(name, known, silent_us)
        return parts

    def hear(self, told: Mapping[str, CopyState]) -> None:
        """Note what the ledger was told. To be called often, however seldom somebody asks.

        The clocks of those who tell may be wrong, and may be set: they count only for what was told
        between two calls, or before the first one.
        """
        now_us, before_us = self._clock.elapsed_us(), self._listened_us
        self._listened_us = now_us
        for name, state in told.items():
            heard = self._heard.get(name)
            if heard is None or heard.told_at != state.told_at:
                ago_us = max(0, self._clock.wall_us() - state.told_at)
                if before_us is not None:
                    ago_us = min(ago_us, now_us - before_us)
                self._heard[name] = _Heard(state.told_at, now_us - ago_us)

    def unknown(self, reason: str) -> dict[str, Part]:
        """While the ledger cannot say what it was told."""
        return {
            name: Part("degraded", reason)
            if is_enabled
            else Part("disabled", f"{name}.enabled is false")
            for name, is_enabled in self._is_enabled.items()
        }

    async def _lag(self, state: CopyState, head: Head) -> Lag:
        if state.name in _WITHOUT_TICKS:
            return await self._lags.of_events(head, state.last_sequence)
        return await self._lags.of_commits(head, state.last_sequence, state.received_at)


def copy_part(name: str, known: _Known | None, silent_us: int) -> Part:
    """The state of a copy that is wanted, by what its process has told."""
    command = _COMMANDS[name]
    advice = f"Start `tidemark {command}`; `tidemark up` runs it beside the server."
    if known is None:
        return Part("degraded", f"its process has never run. {advice}")
    state, lag = known
    reason = ""
    if silent_us > SILENT_AFTER_US:
        seconds = silent_us // MICROS_PER_SECOND
        reason = f"its process does not run: it was last heard of {seconds} s ago. {advice}"
        if state.error is not None:
            reason += f" The last that it said: {reason_of(state.error)}"
    elif state.error is not None:
        reason = reason_of(state.error)
    return Part(
        "degraded" if reason else "ready",
        reason,
        str(state.last_sequence),
        format_timestamp(state.received_at) if state.received_at else None,
        str(lag.events),
        round(lag.seconds, 3),
        format_timestamp(state.told_at),
    )


def landing_part(parts: Mapping[str, Part]) -> Part:
    """All that is landed as one: as bad as the worst, as far as the slowest."""
    wanted = [parts[name] for name in (PARQUET, CLICKHOUSE) if parts[name].state != "disabled"]
    if not wanted:
        return Part("disabled", "nothing is enabled in `landing`")
    # Of one that was never told of nothing is known, and that is the slowest there can be.
    slowest = min(wanted, key=lambda part: int(part.last_sequence or 0))
    return next((part for part in wanted if part.state == "degraded"), slowest)


def untold(error: TidemarkError) -> str:
    """Why nothing is known of any copy."""
    return f"what the ledger was told of it cannot be read: {error.message}"
