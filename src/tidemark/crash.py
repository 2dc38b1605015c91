"""Named points at which a test can kill this very process.

`TIDEMARK_CRASH_AT=ledger.before_commit` kills the process with SIGKILL when it first reaches that
point, `…:3` when it reaches it for the third time. Unarmed, a point costs one comparison.
"""

from __future__ import annotations

import os
import signal

POINTS = (
    "ingress.decoded",
    "ledger.locked",
    "ledger.events_written",
    "ledger.before_commit",
    "ledger.after_commit",
    "ingress.before_response",
    "import.before_commit",
    "import.after_commit",
    "migrate.before_commit",
    "pipeline.batch_begun",
    "pipeline.ordered_written",
    "pipeline.batch_folded",
    "views.before_commit",
    "views.after_commit",
    "pipeline.batch_committed",
    "replay.recorded",
    "views.before_swap",
    "views.after_swap",
    "landing.block_begun",
    "landing.block_written",
    "landing.block_landed",
    "landing.partition_begun",
    "landing.partition_staged",
    "landing.partition_replaced",
    "mirror.begun",
    "mirror.events_sent",
    "mirror.before_commit",
    "mirror.committed",
    "mirror.placed",
    "webhook.claimed",
    "webhook.sent",
    "webhook.settled",
    "trigger.stepped",
    "trigger.advanced",
)


_target: tuple[str, int] | None = None
_reached = 0


def arm() -> None:
    """Do as the environment says. A process that was given another environment asks for it."""
    global _target, _reached
    _target, _reached = _wanted(), 0


def _wanted() -> tuple[str, int] | None:
    setting = os.environ.get("TIDEMARK_CRASH_AT")
    if not setting:
        return None
    name, _, count = setting.partition(":")
    if name not in POINTS:
        raise ValueError(f"TIDEMARK_CRASH_AT names no crash point: {name!r}; there are {POINTS}")
    return name, int(count or 1)


def crash_point(name: str) -> None:
    """Die here if this point is armed."""
    global _reached
    if _target is None or _target[0] != name:
        return
    _reached += 1
    if _reached >= _target[1]:
        os.kill(os.getpid(), signal.SIGKILL)


arm()
