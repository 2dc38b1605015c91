"""Spark SQL that users write: checked before anything runs, and unable to stop the pipeline.

An expression must mean the same whenever and wherever it is evaluated, or a replay would differ
from what was seen live. So whatever is random, or asks for the time, the user, the machine or other
rows, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
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
_BEYOND_ONE_ROW: Final = re.compile(
    "AggregateExpression|WindowExpression|.*Subquery|Exists|ListQuery|.*PythonUDF.*|Grouping.*"
).fullmatch
# Spark would complete a text without a date by today's, and some words stand for the day itself.
_HAS_A_DATE: Final = re.compile(r"\s*[0-9]{4}-.*", re.DOTALL).fullmatch
_TODAY: Final = re.compile(
    r"""\b(?:date|timestamp(?:_ntz|_ltz)?)\s*['"]\s*(?:now|today|tomorrow|yesterday)\b""", re.I
).search
_REPLACEABLE: Final = "org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable"
_VALUE: Final = "v"
_ONE_EXPRESSION: Final = "Write one Spark SQL expression."
_ONE_EVENT: Final = "Use an expression over the columns of one event."
_ONLY_THE_EVENT: Final = (
    "Use only what follows from the event itself: a replay must equal what was live."
)
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

    names = ", ".join(columns.fieldNames())
    try:
        result = _empty(spark, columns).select(tried(spark, expression).alias("result"))
        analyzed: Any = result._jdf.queryExecution().analyzed()
    except ParseException as error:
        raise _refused(expression, field, _first_line(error), _ONE_EXPRESSION) from error
    except AnalysisException as error:
        hint = f"Use one Spark SQL expression over the columns of one event: {names}."
        raise _refused(expression, field, _first_line(error), hint) from error
    except Exception as error:
        # What the parser raises before it has looked at the text as SQL comes without a class.
        raise _refused(expression, field, str(error).splitlines()[0], _ONE_EXPRESSION) from error
    for node in _nodes(spark, analyzed.expressions()):
        name = node.getClass().getSimpleName()
        if not node.deterministic() or name in _DEPENDS_ON_THE_RUN:
            raise _refused(
                expression,
                field,
                f"`{node.prettyName()}` does not give the same result each time",
                _ONLY_THE_EVENT,
            )
        if _BEYOND_ONE_ROW(name):
            raise _refused(
                expression,
                field,
                f"`{node.prettyName()}` looks beyond the one event",
                _ONE_EVENT,
            )
        if name == "Cast" and _may_take_todays_date(node):
            raise _refused(
                expression,
                field,
                "a text without a date would be completed by the current one",
                f"{_ONLY_THE_EVENT} Name the format: to_timestamp(…, \"yyyy-MM-dd'T'HH:mm:ssX\").",
            )
    if _TODAY(expression):
        raise _refused(expression, field, "it names the current day", _ONLY_THE_EVENT)
    # Windows and the like stand below the expression that uses them.
    if analyzed.getClass().getSimpleName() != "Project" or analyzed.child().children().size():
        raise _refused(expression, field, "it looks beyond the one event", _ONE_EVENT)
    struct: Any = result.schema["result"].dataType
    if len(struct) != 1:
        raise _refused(expression, field, "it is more than one expression", _ONE_EXPRESSION)
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


def _empty(spark: SparkSession, columns: StructType) -> DataFrame:
    """No rows of these columns, without the cost of an RDD."""
    session: Any = spark
    jvm, java = session._jvm, session._jsparkSession
    rows = java.createDataFrame(jvm.java.util.ArrayList(), java.parseDataType(columns.json()))
    return DataFrame(rows, spark)


def _may_take_todays_date(cast: Any) -> bool:
    """Whether a cast reads text as a time and the text may have no date."""
    text, kind = cast.child(), str(cast.dataType().simpleString())
    if text.dataType().simpleString() != "string" or not kind.startswith(("timestamp", "date")):
        return False
    if not text.foldable():
        # A date has no time of day to be completed.
        return kind != "date"
    value = text.eval(None)
    return value is not None and not _HAS_A_DATE(value.toString())


def _nodes(spark: SparkSession, expressions: Any) -> list[Any]:
    """Every node of some expression trees of the JVM, and of what stands for some of them."""
    session: Any = spark
    replaceable = session._jvm.java.lang.Class.forName(_REPLACEABLE)
    found = []
    waiting = [expressions.apply(place) for place in range(expressions.size())]
    while waiting:
        node = waiting.pop()
        found.append(node)
        children = node.children()
        waiting += [children.apply(place) for place in range(children.size())]
        if replaceable.isInstance(node):
            waiting.append(node.replacement())
    return found


def _first_line(error: Any) -> str:
    message = error.getMessage() if hasattr(error, "getMessage") else str(error)
    return str(message).strip().splitlines()[0]


def _refused(expression: str, field: str, why: str, hint: str) -> ConfigError:
    return ConfigError(f"`{expression}`: {why}", hint=hint, field=field)
