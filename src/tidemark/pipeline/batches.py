"""One micro-batch: from rows of the ledger to everything that is written for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidemark.pipeline import facts
from tidemark.pipeline.decode.stage import Decoder
from tidemark.pipeline.definitions import (
    Definitions,
    MeterDefinition,
    TableDefinition,
    deleted_schema,
    members_schema,
    meter_schema,
    table_schema,
)
from tidemark.pipeline.fold.parts import (
    COMMITS,
    CORRECTED,
    Gathered,
    Part,
    from_ipc,
)
from tidemark.pipeline.fold.task import (
    OUTPUT,
    PLAIN_LIMIT,
    FoldedView,
    FoldTask,
    OpenViews,
    RefoldTask,
)
from tidemark.pipeline.optimising import optimised
from tidemark.pipeline.output.batch import Frontier, ViewBatch
from tidemark.pipeline.output.errors import DefinitionChanged, LedgerRewound
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.pipeline.source.frames import ledger_rows
from tidemark.pipeline.time_keeping import TimeKeeper
from tidemark.pipeline.windows.definition import WindowDefinition, window_schema, window_schemas
from tidemark.pipeline.windows.keeper import Anew
from tidemark.pipeline.windows.refolding import WindowRefolder

# Nothing was received at or before this time.
_BEGINNING = 0
# The views that have been folded up to the frontier, by name.
_VIEWS_STATE = "views"


class BatchFolder:
    """Turns the rows of some commits into a `ViewBatch`."""

    def __init__(
        self,
        spark: SparkSession,
        definitions: Definitions,
        decoder: Decoder,
        address: str,
        ledger_id: str,
        open_views: OpenViews,
        refolder: WindowRefolder,
        plain_limit: int = PLAIN_LIMIT,
    ) -> None:
        self._spark = spark
        self._refolder = refolder
        self._decoder = decoder
        self._address = address
        self._ledger_id = ledger_id
        self._open_views = open_views
        self._plain_limit = plain_limit
        self._views: list[FoldedView] = []
        for meter in definitions.meters:
            logged = meter.name not in definitions.unlogged
            self._views.append(FoldedView(meter, meter_schema(meter, logged=logged), logged))
        for place, table in enumerate(definitions.tables):
            logged = table.name not in definitions.unlogged
            schema = table_schema(table, decoder.calculated[place], logged=logged)
            self._views.append(FoldedView(table, schema, logged, place))
        for place, window in enumerate(definitions.windows, len(definitions.tables)):
            logged = window.name not in definitions.unlogged
            schema = window_schema(window, logged=logged)
            self._views.append(FoldedView(window, schema, logged, place))

    @property
    def schemas(self) -> list[ViewSchema]:
        """Every view that a batch may write to."""
        found = []
        for view in self._views:
            found.append(view.schema)
            if isinstance(view.definition, TableDefinition):
                if view.definition.delete_when is not None:
                    found.append(deleted_schema(view.definition))
            elif isinstance(view.definition, WindowDefinition):
                found += window_schemas(view.definition, logged=view.logged)[1:]
            elif view.definition.aggregate == "unique":
                found.append(members_schema(view.definition))
        return found

    def require_same_views(self, frontier: Frontier | None, state: Mapping[str, bytes]) -> None:
        """Refuses a view that was not there for all that is folded: its rows would lack it."""
        if frontier is None:
            return
        known = msgspec.json.decode(state.get(_VIEWS_STATE, b"[]"), type=frozenset[str])
        new = sorted(
            view.definition.name for view in self._views if view.definition.name not in known
        )
        if new:
            raise DefinitionChanged(
                f"{', '.join(new)}: new, and the views hold {frontier.ingress_sequence:,} events"
                " already that are not in it",
                hint="Take it out of the configuration again, or build it beside the others:"
                " `tidemark replay --as NAME`, and with --swap it joins them.",
                field=new[0],
            )

    def folded(self, events: DataFrame) -> DataFrame:
        """What the tasks make of rows of the ledger. It goes with a stream, so that most of its
        planning is done once and not for every batch."""
        task = FoldTask(self._views, self._open_views, self._plain_limit)
        return optimised(self._decoder.facts(events).repartition("slot").mapInArrow(task, OUTPUT))

    def batch(
        self, gathered: Gathered, start: Frontier | None, time: TimeKeeper | None = None
    ) -> ViewBatch | None:
        """What to write for a batch of folded rows, on top of views that stand at `start`.

        None if there is nothing beyond it. Raises `LedgerRewound` if they do not continue it.
        """
        commits = gathered.take("", COMMITS)
        if commits is None:
            return None
        commits = commits.sort_by("received_at")
        end = self._end(commits, start)
        if end is None:
            return None
        self._refold(gathered, start, end)
        state = self._state()
        if time is not None:
            state |= time.advance(gathered, commits, self._refold_windows(gathered, start, end))
        return ViewBatch(
            start=start,
            end=end,
            rows=[w for schema in self.schemas if (w := gathered.row_writes(schema)) is not None],
            changes=[c for schema in self.schemas if (c := gathered.changes(schema)) is not None],
            adjustments=list(gathered.adjustments()),
            errors=list(gathered.errors()),
            state=state,
        )

    def _state(self) -> dict[str, bytes | None]:
        names = sorted(view.definition.name for view in self._views)
        return {_VIEWS_STATE: msgspec.json.encode(names)}

    def _end(self, commits: pa.Table, start: Frontier | None) -> Frontier | None:
        first, last = commits.slice(0, 1).to_pylist()[0], commits.slice(commits.num_rows - 1)
        [last] = last.to_pylist()
        if start is not None and last["received_at"] <= start.received_at:
            return None
        before = (first["previous_received_at"], first["previous_chain"])
        if start is not None and before != (start.received_at, start.chain):
            raise LedgerRewound(
                f"the views stand at {start.received_at}, and what the ledger has next does not"
                " follow from it",
                hint="The ledger was restored from a backup or replaced while it was read. Restore"
                " the views too, or rebuild them from the ledger.",
            )
        return Frontier(last["last_sequence"], last["received_at"], last["chain"], self._ledger_id)

    def _refold(self, gathered: Gathered, start: Frontier | None, end: Frontier) -> None:
        """Replaces what was said of everything that corrections have touched."""
        owners: set[tuple[str, str, str]] = set()
        streams: set[tuple[str, str]] = set()
        targets: set[str] = set()
        for view in self._views:
            corrections = gathered.take(view.definition.name, CORRECTED)
            if corrections is None:
                continue
            tenants = corrections.column("tenant_id").to_pylist()
            if isinstance(view.definition, MeterDefinition):
                customers = corrections.column("customer_ref").to_pylist()
                metric = view.definition.metric
                owners |= {(t, metric, c) for t, c in zip(tenants, customers, strict=True)}
            elif isinstance(view.definition, TableDefinition):
                streams |= {(view.definition.stream, tenant) for tenant in tenants}
                targets |= set(corrections.column("target_key").to_pylist())
        begin = _BEGINNING if start is None else start.received_at
        if owners:
            events = self._rows(end, owners=sorted(owners))
            decoded = self._decoder.facts(events, whole=True, of="meters").repartition("slot")
            task = RefoldTask(self._views, self._open_views, begin, frozenset())
            gathered.replace(collected(decoded.mapInArrow(task, OUTPUT)))
        if streams:
            self._refold_tables(gathered, begin, end, sorted(streams), targets)

    def _refold_windows(
        self, gathered: Gathered, start: Frontier | None, end: Frontier
    ) -> dict[str, Anew]:
        streams = self._refolder.streams(gathered)
        if not streams:
            return {}
        decoded = self._decoder.facts(self._rows(end, streams=streams), whole=True, of="windows")
        # Kept, because it is looked at several times, and planning it takes long.
        decoded = decoded.cache()
        try:
            begin = _BEGINNING if start is None else start.received_at
            return self._refolder.refold(gathered, decoded, begin, end.received_at)
        finally:
            decoded.unpersist()

    def _refold_tables(
        self,
        gathered: Gathered,
        begin: int,
        end: Frontier,
        streams: Sequence[tuple[str, str]],
        targets: set[str],
    ) -> None:
        rows = self._rows(end, streams=streams)
        # Kept, because it is looked at several times, and planning it takes long.
        decoded = self._decoder.facts(rows, whole=True, of="tables").cache()
        try:
            gathered.replace(self._refolded_tables(decoded, begin, targets))
        finally:
            decoded.unpersist()

    def _refolded_tables(self, decoded: DataFrame, begin: int, targets: set[str]) -> Gathered:
        corrected = decoded.filter(fn.col("target_key").isNotNull())
        named = self._frame("key string", [(key,) for key in sorted(targets)])
        concerns = (decoded["idempotency_key"] == named["key"]) | (
            decoded["target_key"] == named["key"]
        )
        slots = {
            row["slot"]
            for row in decoded.filter(fn.col("kind") != facts.VOID)
            .join(fn.broadcast(named), concerns, "left_semi")
            .select("slot")
            .distinct()
            .collect()
        }
        originals = {
            (row["tenant_id"], row["target_key"])
            for row in corrected.select("tenant_id", "target_key").distinct().collect()
        }
        touched = self._frame("slot bigint", [(slot,) for slot in sorted(slots)])
        known = self._frame("tenant_id string, idempotency_key string", sorted(originals))
        own = decoded.join(fn.broadcast(touched), "slot", "left_semi")
        others = (
            decoded.join(fn.broadcast(touched), "slot", "left_anti")
            .join(fn.broadcast(known), ["tenant_id", "idempotency_key"], "left_semi")
            .select(own.columns)
        )
        rest = decoded.join(fn.broadcast(touched), "slot", "left_anti").filter(
            fn.col("target_key").isNotNull()
        )
        whole = own.unionByName(others).unionByName(rest.select(own.columns))
        # All of a tenant's corrections must meet their originals.
        together = whole.repartition(fn.xxhash64("view", "tenant_id"))
        task = RefoldTask(self._views, self._open_views, begin, frozenset(slots))
        return collected(together.mapInArrow(task, OUTPUT))

    def _rows(
        self,
        end: Frontier,
        owners: Sequence[tuple[str, str, str]] | None = None,
        streams: Sequence[tuple[str, str]] | None = None,
    ) -> DataFrame:
        return ledger_rows(
            self._spark, self._address, upto=end.received_at, owners=owners, streams=streams
        )

    def _frame(self, schema: str, rows: Iterable[tuple[object, ...]]) -> DataFrame:
        return self._spark.createDataFrame(list(rows), schema)


def collected(packed: DataFrame) -> Gathered:
    """What the tasks have made of a batch; this is when they do so."""
    gathered = Gathered()
    for row in packed.collect():
        gathered.add(Part(row["view"], row["kind"], from_ipc(row["payload"])))
    return gathered
