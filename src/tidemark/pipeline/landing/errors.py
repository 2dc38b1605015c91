"""What can be wrong with a place that events are landed in.

TidemarkError
├── LandingError        landing_mismatch     it does not hold what this ledger's landing would
├── LandingUnavailable  landing_unavailable  trying again later may help
├── LandingRefused      landing_refused      it may not be written to
└── LandingRunning      landing_running      somebody lands there already
"""

from __future__ import annotations

from tidemark.errors import TidemarkError


class LandingError(TidemarkError):
    """What is there is not what this ledger's landing would have put there."""

    code = "landing_mismatch"


class LandingUnavailable(TidemarkError):
    """A disk is full or a server does not answer. Trying again later may help."""

    code = "landing_unavailable"


class LandingRefused(TidemarkError):
    """The place may not be written to, or not by this user."""

    code = "landing_refused"


class LandingRunning(TidemarkError):
    """Another process lands there."""

    code = "landing_running"
