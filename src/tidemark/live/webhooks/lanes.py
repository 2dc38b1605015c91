"""What is held for each host, and whose turn it is. No host has more than its share of attempts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from tidemark.live.webhooks.congestion import HostWindow
from tidemark.live.webhooks.outbox import Delivery
from tidemark.live.webhooks.targets import host_of

# A lane without work is only the memory of how wide its host's window was.
MAX_IDLE_LANES = 1_000
# How many rounds of attempts are held ready for a host that answers.
ROUNDS_HELD = 8
# How many slow hosts at least can be at work at the same time, and leave room for another.
SLOW_HOSTS = 16
MAX_FIRST_WINDOW = 8


class DeliveryLimits(msgspec.Struct, frozen=True):
    """Bounds. `held` counts claims in memory, sent or not; an idle outbox is asked each `poll_s`.

    A claim lasts `lease_s`, and nothing is sent that could not end `lease_margin_s` before that.
    """

    batch: int = 500
    held: int = 4_000
    in_flight: int = 512
    in_flight_per_host: int = 32
    lease_s: float = 60.0
    lease_margin_s: float = 5.0
    poll_s: float = 1.0
    drain_s: float = 15.0

    @property
    def first_window(self) -> int:
        """How many attempts a host may have before anything is known of it."""
        share = self.in_flight // SLOW_HOSTS
        return max(1, min(share, MAX_FIRST_WINDOW, self.in_flight_per_host))


class Lane:
    """What is held for one host: `waiting` in the order of claims, and attempts `in_flight`."""

    def __init__(self, window: HostWindow) -> None:
        self.waiting: deque[Delivery] = deque()
        self.in_flight = 0
        self.window = window
        self.has_turn = False
        self.was_trimmed = False

    @property
    def can_start(self) -> bool:
        return bool(self.waiting) and self.in_flight < self.window.size

    @property
    def has_enough(self) -> bool:
        """Whether claiming more for this host would only take room from others."""
        if self.was_trimmed and self.waiting:
            # What was given back is due the longest, so it would be claimed before all others.
            return True
        rounds = 1 if self.window.is_struggling else ROUNDS_HELD
        return self.in_flight + len(self.waiting) >= rounds * self.window.size

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.in_flight


class Lanes:
    """The lanes of all hosts. Those that can start an attempt take turns."""

    def __init__(self, limits: DeliveryLimits) -> None:
        self._limits = limits
        self._lanes: dict[str, Lane] = {}
        self._turns: deque[Lane] = deque()

    def add(self, delivery: Delivery) -> None:
        host = host_of(delivery.url)
        lane = self._lanes.get(host)
        if lane is None:
            self._forget_idle()
            lane = self._lanes[host] = Lane(
                HostWindow(self._limits.first_window, self._limits.in_flight_per_host)
            )
        lane.waiting.append(delivery)
        self.queue_up(lane)

    def queue_up(self, lane: Lane) -> None:
        """Give a lane that can start an attempt its place in the round."""
        if lane.can_start and not lane.has_turn:
            lane.has_turn = True
            self._turns.append(lane)

    def take_turn(self) -> tuple[Lane, Delivery] | None:
        """The next delivery to attempt; its lane has it in flight from now on."""
        while self._turns:
            lane = self._turns.popleft()
            lane.has_turn = False
            if lane.can_start:
                delivery = lane.waiting.popleft()
                lane.was_trimmed = lane.was_trimmed and bool(lane.waiting)
                lane.in_flight += 1
                self.queue_up(lane)
                return lane, delivery
        return None

    def full_hosts(self) -> set[str]:
        return {host for host, lane in self._lanes.items() if lane.has_enough}

    def trim(self) -> list[Delivery]:
        """Take out what will wait the longest: of each lane, what goes beyond its next round."""
        surplus: list[Delivery] = []
        for lane in self._lanes.values():
            while len(lane.waiting) > lane.window.size:
                surplus.append(lane.waiting.pop())
                lane.was_trimmed = True
        return surplus

    def take_out(self, trigger: str | None = None) -> list[Delivery]:
        """Take out everything that waits, or all of one trigger."""
        return [delivery for lane in self._lanes.values() for delivery in _taken(lane, trigger)]

    def _forget_idle(self) -> None:
        if len(self._lanes) >= MAX_IDLE_LANES:
            self._lanes = {host: lane for host, lane in self._lanes.items() if not lane.is_idle}


def _taken(lane: Lane, trigger: str | None) -> Iterator[Delivery]:
    waiting, lane.waiting = lane.waiting, deque()
    for delivery in waiting:
        if trigger is None or delivery.trigger == trigger:
            yield delivery
        else:
            lane.waiting.append(delivery)
