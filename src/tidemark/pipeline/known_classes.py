"""What PySpark asks Java for again and again, asked for once.

To put a column together, PySpark asks Java for a class by its name, then for one of its methods,
and then calls that. Java looks for the class in all archives that Spark has, some hundreds. A plan
of ours takes thousands of columns.
"""

from __future__ import annotations

from typing import Any, Final

from py4j.java_gateway import JavaClass, JavaMember
from pyspark.sql import SparkSession

_ASKED_FOR: Final = (
    "functions",
    "org.apache.spark.sql.functions",
    "PythonUtils",
    "PythonSQLUtils",
)


class _KnownClass:
    """A class of Java whose methods are asked for once each."""

    def __init__(self, java_class: Any) -> None:
        self._class = java_class

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._class, name)
        if isinstance(found, JavaMember):
            # From now on it is found here, and this is not called.
            setattr(self, name, found)
        return found


def remember_classes(session: SparkSession) -> None:
    """For as long as the Java of this session lives. Where a class has another name by now, it is
    asked for as ever."""
    java: Any = session._jvm
    for name in _ASKED_FOR:
        found = getattr(java, name)
        # What is none, Py4J takes for a package.
        if isinstance(found, JavaClass):
            setattr(java, name, _KnownClass(found))
