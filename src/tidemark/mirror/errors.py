"""What keeps the mirror from going on."""

from __future__ import annotations

from tidemark.errors import TidemarkError


class MirrorUnavailable(TidemarkError):
    """It goes on by itself once the brokers can do again what they were asked to."""

    code = "mirror_unavailable"


class MirrorRefused(TidemarkError):
    """What is in Kafka cannot be gone on from: a person has to look."""

    code = "mirror_refused"


class MirrorFenced(TidemarkError):
    """Another mirror of this ledger has taken over."""

    code = "mirror_fenced"
