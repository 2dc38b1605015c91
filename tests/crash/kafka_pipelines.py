"""Pipelines that read the mirror's topics and not the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.folding.mixed import config_of
from tests.services.kafka import KafkaBroker, shared_broker
from tests.services.mirroring import MirrorWorld
from tidemark.config import Config


class KafkaWorld(MirrorWorld):
    """Topics of their own for a ledger, and the settings of pipelines that read them."""

    def __init__(
        self,
        directory: Path,
        ledger_url: str,
        settings: dict[str, Any],
        broker: KafkaBroker | None = None,
    ) -> None:
        super().__init__(directory, ledger_url, broker or shared_broker())
        self._state_dir = directory / "mirror"
        mirror = {"bootstrap_servers": self.broker.address, "topic_prefix": self.prefix}
        self._mirrored = {**settings, "mirror": mirror}
        self.from_kafka: dict[str, Any] = {
            **self._mirrored,
            "pipeline": {**settings["pipeline"], "source": "kafka"},
        }

    @property
    def config(self) -> Config:
        return config_of(self._mirrored, self._state_dir, self.ledger_url, self.ledger_url)
