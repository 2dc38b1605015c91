"""Spark SQL that users write: checked before anything runs, and unable to stop the pipeline.

An expression must mean the same whenever and wherever it is evaluated, or a replay would differ
from what was seen live. So whatever is random, or asks for the time, the user, the machine or other
rows, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql.types import DataType, StructType

from tidemark.errors import ConfigError
from tidemark.pipeline.output.schema import ColumnType

# What Spark takes for deterministic because it is the same within one query.
_DEPENDS_ON_THE_RUN: Final = frozenset(
    {
        *(
            "CurrentDate",
            "CurrentTime",
            "CurrentTimestamp",
            "CurrentTimeZone",
            "CurrentBatchTimestamp",
        ),
        *("Now", "LocalTimestamp", "CurrentUser", "CurrentCatalog", "CurrentDatabase"),
        *("InputFileName", "InputFileBlockStart", "InputFileBlockLength", "SparkVersion"),
    }
)
_ONE_ROW_ONLY: Final = re.compile(
    "Aggregate|Window|Generator|Subquery|Exists|ListQuery|PythonUDF|Grouping"
).search
_VALUE: Final = "v"
_NO_FLOATS: Final = (
    "Cast it: cast(… as decimal(28, 9)). Floating point would not add up the same twice."
)


def tried(spark: SparkSession, expression: str) -> Column:
    """The expression's value as field `v` of a struct, or null where it fails on a row.

    With ANSI on, Spark would otherwise stop the whole query for one division by zero.
    """

    session: Any = spark
    jvm: Any = session._jvm
    parsed = (
        session._jsparkSession.sessionState()
        .sqlParser()
        .parseExpression(f"named_struct('{_VALUE}', {expression}\n)")
    )
    attempt = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(parsed)
    return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(attempt))


def checked_type(spark: SparkSession, expression: str, columns: StructType, field: str) -> DataType:
    """The type an expression over these columns has. Raises `ConfigError` if it cannot be used."""
    from pyspark.errors import AnalysisException, ParseException

    empty = spark.createDataFrame([], columns)
    names = ", ".join(columns.fieldNames())
    try:
        result = empty.select(tried(spark, expression).alias("result"))
        analyzed: Any = result._jdf.queryExecution().analyzed()
    except ParseException as error:
        raise _refused(
            expression, field, _first_line(error), "Write one Spark SQL expression."
        ) from error
    except AnalysisException as error:
        raise _refused(
            expression, field, _first_line(error), f"It can use the columns {names}."
        ) from error
    except Exception as error:
        # What the parser raises before it has looked at the text as SQL comes without a class.
        raise _refused(
            expression, field, str(error).splitlines()[0], "Write one Spark SQL expression."
        ) from error
    plan = analyzed.getClass().getSimpleName()
    for node in _nodes(analyzed.expressions()):
        name = node.getClass().getSimpleName()
        if not node.deterministic() or name in _DEPENDS_ON_THE_RUN:
            raise _refused(
                expression,
                field,
                f"`{node.prettyName()}` does not give the same result each time",
                "Use only what follows from the event itself: a replay must equal what was live.",
            )
        if _ONE_ROW_ONLY(name):
            raise _refused(
                expression,
                field,
                f"`{node.prettyName()}` looks beyond the one event",
                "Use an expression over the columns of one event.",
            )
    if plan != "Project":
        raise _refused(
            expression, field, "it looks beyond the one event", "Use an expression over one event."
        )
    struct: Any = result.schema["result"].dataType
    kind: DataType = struct[_VALUE].dataType
    return kind


def require_type(kind: DataType, names: Sequence[str], expression: str, field: str) -> None:
    """Refuses an expression whose type is none of these."""
    text = kind.simpleString()
    if text.split("(")[0] in names:
        return
    hint = f"It must be {' or '.join(names)}."
    if text in ("float", "double"):
        hint = _NO_FLOATS
    raise _refused(expression, field, f"its type is {text}", hint)


def view_type(kind: DataType, expression: str, field: str) -> ColumnType:
    """What a view's column must be to hold values of a Spark type."""
    names: dict[str, ColumnType] = {
        "string": "string",
        "boolean": "boolean",
        "tinyint": "int",
        "smallint": "int",
        "int": "int",
        "bigint": "bigint",
        "timestamp": "timestamp",
    }
    text = kind.simpleString()
    if text.startswith("decimal"):
        return "decimal"
    if text in names:
        return names[text]
    hint = (
        _NO_FLOATS
        if text in ("float", "double")
        else "Cast it to string, boolean, int, bigint, decimal or timestamp."
    )
    raise _refused(expression, field, f"its type is {text}, which a view does not hold", hint)


def _nodes(expressions: Any) -> list[Any]:
    """Every node of some expression trees of the JVM."""
    found = []
    waiting = [expressions.apply(place) for place in range(expressions.size())]
    while waiting:
        node = waiting.pop()
        found.append(node)
        children = node.children()
        waiting += [children.apply(place) for place in range(children.size())]
    return found


def _first_line(error: Any) -> str:
    message = error.getMessage() if hasattr(error, "getMessage") else str(error)
    return str(message).strip().splitlines()[0]


def _refused(expression: str, field: str, why: str, hint: str) -> ConfigError:
    return ConfigError(f"`{expression}`: {why}", hint=hint, field=field)
