"""Events of a stream as facts of windows."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as fn

from tidemark.pipeline import facts
from tidemark.pipeline.decode.shape import (
    FactShape,
    attempt_name,
    error_name,
    is_void,
    kept,
    kept_as,
    kind_of,
    ledger,
)
from tidemark.pipeline.decode.stream_fields import StreamFields, fault
from tidemark.pipeline.expressions import checked_type, require_type, tried
from tidemark.pipeline.windows.definition import NumberedWindow, WindowDefinition

NUMBERS: Final = ("tinyint", "smallint", "int", "bigint", "decimal")
_WHERE, _VALUE = 0, 1


class WindowDecoder:
    """Decodes for the windows of one definition. Making one checks its expressions.

    `view` is its number among all views, `place` that of the column with its groups.
    """

    def __init__(
        self,
        spark: SparkSession,
        window: WindowDefinition,
        view: int,
        place: int,
        fields: StreamFields,
    ) -> None:
        self._spark = spark
        self._window = window
        self.view = view
        self._place = place
        self.fields = fields
        # By `whole`: putting columns together takes longer than a small batch.
        self._facts: dict[bool, Column] = {}
        columns, path = self.fields.columns, f"windows.{window.name}"
        kind = checked_type(spark, window.value, columns, f"{path}.value")
        require_type(kind, NUMBERS, window.value, f"{path}.value")
        if window.where is not None:
            kind = checked_type(spark, window.where, columns, f"{path}.where")
            require_type(kind, ("boolean",), window.where, f"{path}.where")

    @property
    def numbered(self) -> NumberedWindow:
        return NumberedWindow(self._window, self.view, facts.table_column(self._place))

    @property
    def row_type(self) -> str:
        """The struct that holds the values of the groups, as it stands in the facts."""
        groups = ", ".join(f"`{group.name}`: {kept_as(group)}" for group in self._window.groups)
        # A struct must have something in it.
        return f"struct<{groups or '`@none`: boolean'}>"

    @cached_property
    def attempts(self) -> list[Column]:
        """The columns that its fact needs besides those of the stream."""
        expressions = {_VALUE: self._window.value, _WHERE: self._window.where}
        return [
            tried(self._spark, expression).alias(attempt_name(self.view, place))
            for place, expression in expressions.items()
            if expression is not None
        ]

    def fact(self, shape: FactShape, *, whole: bool) -> Column:
        """The window's fact, null where there is none.

        With `whole`, events that are no facts are there too, without a value: a correction may
        make facts of them.
        """
        if whole not in self._facts:
            self._facts[whole] = self._fact(shape, whole=whole)
        return self._facts[whole]

    @cached_property
    def error(self) -> Column:
        """A pair of code and message for an event that the window cannot take; else null."""
        attempt, passes = self._attempt()
        own = self.fields.fault()
        failed = attempt.isNull()
        if self._window.where is not None:
            condition = fn.col(attempt_name(self.view, _WHERE))
            # The value of an event that is not taken plays no part.
            failed = condition.isNull() | (passes & failed)
        named = f"an expression of window {self._window.name} fails for this event"
        return fn.when(
            ~is_void(),
            fn.when(own.isNotNull(), own)
            .when(failed, fault("expression_failed", named))
            .when(
                passes & attempt["v"].isNotNull() & self._value().isNull(),
                fault(
                    "value_out_of_range",
                    "the value does not have 19 digits before the point and 9 after",
                ),
            ),
        )

    def _fact(self, shape: FactShape, *, whole: bool) -> Column:
        window, control = self._window, ledger("control")
        error, (_, passes) = fn.col(error_name(self.view)), self._attempt()
        # The time of an amended event without a time of its own is that of its original.
        time = self.fields.time(fn.when(control.isNull(), ledger("received_at")))
        groups = [kept(fn.col(group.name), group) for group in window.groups]
        is_event = ~is_void() & error.isNull()
        value = fn.when(is_event & passes, self._value())
        own_groups = fn.struct(*groups or [fn.lit(True).alias("@none")])
        fact = shape.fact(
            view=self.view,
            slot=fn.xxhash64(
                fn.lit(self.view), ledger("tenant_id"), *(fn.col(n) for n in window.group_by)
            ),
            kind=kind_of(error),
            ts=fn.when(is_event, time),
            value=value,
            error_code=error[0],
            error_message=error[1],
            **{facts.table_column(self._place): fn.when(is_event, own_groups)},
        )
        return fn.when(
            (ledger("stream") == window.stream)
            & (control.isNull() | control.isin(facts.VOID, facts.AMEND))
            # An event without a value is none; a correction may make none of one, or one of none.
            & (control.isNotNull() | error.isNotNull() | value.isNotNull() | fn.lit(whole)),
            fact,
        )

    def _attempt(self) -> tuple[Column, Column]:
        """The value as it was tried, and whether the event is one that is taken."""
        attempt, passes = fn.col(attempt_name(self.view, _VALUE)), fn.lit(True)
        if self._window.where is not None:
            condition = fn.col(attempt_name(self.view, _WHERE))
            passes = fn.coalesce(condition["v"], fn.lit(False))
        return attempt, passes

    def _value(self) -> Column:
        return fn.col(attempt_name(self.view, _VALUE))["v"].try_cast(facts.VALUE_TYPE)
