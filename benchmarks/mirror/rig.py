"""What stands ready for a whole run, and how much of everything is measured."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

import msgspec
import yaml
from confluent_kafka.admin import AdminClient

from benchmarks.pipeline.workload import METRIC
from tests.services.kafka import KafkaBroker
from tests.services.postgres import PostgresServer
from tidemark.clock import SystemClock
from tidemark.config import Config, load_config
from tidemark.ledger.opening import open_ledger
from tidemark.ledger.port import LedgerStore

Store = Literal["sqlite", "postgres"]
STORES: Final[tuple[Store, ...]] = ("sqlite", "postgres")
# As Kafka's own scripts start it. The tests want one that starts quickly.
BROKER_JAVA: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")

# One that was killed is let in again only when it has been missed for so long, by default 9 s.
BROKER_SETTINGS: Final = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}


class Scale(msgspec.Struct, frozen=True):
    """How much is measured."""

    stores: tuple[Store, ...]
    events: int
    repetitions: int
    away_seconds: tuple[float, ...]
    steady_seconds: float
    events_per_s: int
    pipeline_events: int
    warm_up_events: int


FULL: Final = Scale(
    stores=("sqlite",),
    events=1_000_000,
    repetitions=3,
    away_seconds=(5.0, 60.0),
    steady_seconds=10.0,
    events_per_s=1_000,
    pipeline_events=500_000,
    warm_up_events=50_000,
)
QUICK: Final = Scale(
    stores=("sqlite",),
    events=2_000,
    repetitions=1,
    away_seconds=(0.2,),
    steady_seconds=0.5,
    events_per_s=200,
    pipeline_events=1_000,
    warm_up_events=0,
)


class Rig:
    """Entered, the servers run; left, everything is gone."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.home = Path(tempfile.mkdtemp(prefix="tidemark-bench-"))
        self.postgres = PostgresServer(durable=True)
        self.broker = KafkaBroker(
            directory=self.home / "kafka", settings=BROKER_SETTINGS, java_options=BROKER_JAVA
        )
        self._numbers = itertools.count(1)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._stack.callback(shutil.rmtree, self.home, ignore_errors=True)
        self._stack.enter_context(self.postgres)
        self._stack.enter_context(self.broker)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def new_ledger(self, store: Store) -> str:
        """A place for one."""
        if store == "postgres":
            return self.postgres.create_database()
        return f"sqlite:///{self.home / f'ledger-{next(self._numbers)}.db'}"

    def new_configuration(self, ledger_url: str, prefix: str | None = None) -> Path:
        """Of that ledger, with a state directory of its own, and with topics of its own or these.

        Everything that is not named has its default.
        """
        directory = self.home / f"run-{next(self._numbers)}"
        directory.mkdir()
        path = directory / "tidemark.yaml"
        document = {
            "state_dir": str(directory / "state"),
            "ledger": {"url": ledger_url},
            "streams": {"usage": {"kind": "usage"}},
            "meters": {METRIC: {"period": "month"}},
            "mirror": {
                "enabled": True,
                "bootstrap_servers": self.broker.address,
                "topic_prefix": f"{directory.name}." if prefix is None else prefix,
            },
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def remove_topics(self, prefix: str) -> None:
        """What was measured takes no room from what is measured next."""
        admin = AdminClient({"bootstrap.servers": self.broker.address, "log_level": 0})
        topics = [name for name in admin.list_topics(timeout=10).topics if name.startswith(prefix)]
        for removed in admin.delete_topics(topics).values() if topics else ():
            removed.result()


def config_at(path: Path) -> Config:
    return load_config(path, {})


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[LedgerStore]:
    ledger = await open_ledger(config_at(path), SystemClock())
    try:
        yield ledger
    finally:
        await ledger.close()
