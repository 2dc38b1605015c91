"""The time stage in the driver: takes what tasks found, writes streams in order, keeps state."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tidemark.config import Config
from tidemark.crash import crash_point
from tidemark.pipeline.fold.parts import ENDS, TUPLES, Gathered
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.output.errors import DefinitionChanged
from tidemark.pipeline.time.ordered import OrderedOutput
from tidemark.pipeline.time.plans import plan_of
from tidemark.pipeline.time.reorder import TUPLES_SCHEMA
from tidemark.pipeline.time.stage import STATE_NAME, TimeStage
from tidemark.pipeline.time.watermarks import COMMITS_SCHEMA, ENDS_SCHEMA
from tidemark.pipeline.windows.keeper import Anew, WindowKeeper


class TimeKeeper:
    """Event time between two commits of the views. After a failure it is to be thrown away."""

    def __init__(
        self,
        config: Config,
        frontier: Frontier | None,
        state: Mapping[str, bytes],
        windows: WindowKeeper,
    ) -> None:
        """Goes on from what is committed. Raises `DefinitionChanged` if that is not possible."""
        reached = None if frontier is None else frontier.received_at
        self._outputs = {
            stream: OrderedOutput(
                config.state_dir / (ordered.path or f"ordered/{stream}"), ordered.format
            )
            for stream, ordered in config.pipeline.ordered.items()
        }
        for output in self._outputs.values():
            output.recover(reached)
        buffers = {stream: output.buffer for stream, output in self._outputs.items()}
        self._windows = windows
        self._stage = TimeStage(
            plan_of(config),
            buffers,
            state.get(STATE_NAME),
            watched={window.stream for window in config.windows.values()},
        )
        if self._stage.reached != reached:
            raise DefinitionChanged(
                "event time, an ordered output or the first window came after the views were begun",
                hint="Take it out again, or build the views anew from the ledger.",
                field="pipeline",
            )

    def advance(
        self, gathered: Gathered, commits: pa.Table, anew: Mapping[str, Anew]
    ) -> dict[str, bytes | None]:
        """Takes in a batch, of which these windows were folded anew. What is to be kept is what
        must be committed with it; what it changes is added to what was gathered."""
        tuples, ends = gathered.take("", TUPLES), gathered.take("", ENDS)
        state: dict[str, bytes | None] = {}
        self._windows.begin(anew)
        for step in self._stage.advance(
            commits.select(COMMITS_SCHEMA.names),
            TUPLES_SCHEMA.empty_table() if tuples is None else tuples,
            ENDS_SCHEMA.empty_table() if ends is None else ends,
        ):
            for stream, records in step.records.items():
                self._outputs[stream].write(step.start, records)
                crash_point("pipeline.ordered_written")
            self._windows.take(gathered, commits, step, anew)
            state = {STATE_NAME: step.state_after}
        self._windows.end(gathered, anew)
        return state

    def close(self) -> None:
        self._stage.close()
        self._windows.close()


def keeps_time(config: Config) -> bool:
    """Whether anything of a configuration needs event time to be kept."""
    return bool(config.pipeline.eventtime.enabled or config.pipeline.ordered or config.windows)
