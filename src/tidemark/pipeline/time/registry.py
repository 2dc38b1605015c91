"""The types of event time: by name, functions from a Spark column to a timestamp column.

A built-in type takes a column of any type that a field can have: the value is read as it is
written in JSON. What cannot be read, or is outside the years that Tidemark knows, is NULL and never
an exception, so that the caller can make an error row of it. That holds for the results of a user's
own types too; only what such a function raises by itself cannot be kept from failing.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from tidemark.config import Config
from tidemark.config.suggestions import and_list, nearest, or_list
from tidemark.errors import ConfigError
from tidemark.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

if TYPE_CHECKING:
    from pyspark.sql import Column

Parser: TypeAlias = "Callable[[Column], Column]"

# A JSON number, or the same as a string: whole part, fraction, exponent. Digits after the 18th of
# the fraction are in no group: a cast would round them, perhaps into the next microsecond.
_NUMBER: Final = r"^([+-]?[0-9]{1,30})(?:(\.[0-9]{1,18})[0-9]{0,30})?([eE][+-]?[0-9]{1,2})?$"
_DIGITS_AFTER_POINT: Final = 18
# RFC 3339: date, time, fraction, sign of the offset, its hours and minutes.
_ISO_8601: Final = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]((?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9])"
    r"(?:(\.[0-9]{1,6})[0-9]{0,24})?(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))$"
)
_COMMON_ISO_8601: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z$"
)
_MICROS_PER_MINUTE: Final = 60_000_000


class EventtimeTypeRegistry:
    """The types by name. A new one has the built-in types and takes more."""

    def __init__(self) -> None:
        self._parsers: dict[str, Parser] = {
            # How many digits before the point the last instant has, and how many microseconds
            # are in a unit, or how many units in a microsecond.
            "unixtimestamp_s": _unix_time(digits=10, multiply=1_000_000),
            "unixtimestamp_ms": _unix_time(digits=13, multiply=1_000),
            "unixtimestamp_us": _unix_time(digits=16),
            "unixtimestamp_ns": _unix_time(digits=19, divide=1_000),
            "iso8601": _iso_8601,
        }

    def register(self, name: str, parser: Parser) -> None:
        """Add a type. `ConfigError` if there is one of this name."""
        if name in self._parsers:
            raise ConfigError(
                f"there is an event-time type {name} already",
                hint="Give it another name.",
                field=_field(name),
            )
        self._parsers[name] = parser

    def resolve(self, name: str) -> Parser:
        """The parser of a type, which gives NULL for a time that Tidemark does not know.

        `ConfigError` if there is no such type, naming those that there are.
        """
        parser = self.unbounded(name)
        return lambda column: within_known_years(parser(column))

    def unbounded(self, name: str) -> Parser:
        """The same, but for the years. Who makes a column of what it gives and only then looks at
        the years by `within_known_years` has Spark read each time once; else it is three times."""
        parser = self._parsers.get(name)
        if parser is None:
            known = self.list()
            near = nearest(name, known)
            meant = f"Did you mean {or_list(near)}? " if near else ""
            raise ConfigError(
                f"there is no event-time type {name}",
                hint=f"{meant}There are {and_list(known)}. More are declared in "
                "`pipeline.eventtime.types`.",
            )
        return lambda column: parser(column).try_cast("timestamp")

    def list(self) -> list[str]:
        """The names, sorted."""
        return sorted(self._parsers)


def registry_of(config: Config) -> EventtimeTypeRegistry:
    """The built-in types and those that the configuration names by import path.

    `ConfigError` for a path that leads to no function of one column.
    """
    registry = EventtimeTypeRegistry()
    for name, path in config.pipeline.eventtime.types.items():
        registry.register(name, _imported(name, path))
    return registry


def _imported(name: str, path: str) -> Parser:
    module_name, _, function_name = path.partition(":")
    if not module_name or not function_name:
        raise _unusable(name, path, "it is not written as `package.module:function`")
    try:
        found: object = importlib.import_module(module_name)
    except Exception as error:
        # A module may fail in any way when it is run, and each of them is a fault of this path.
        raise _unusable(
            name, path, f"{module_name} cannot be imported ({type(error).__name__}: {error})"
        ) from error
    for part in function_name.split("."):
        if not hasattr(found, part):
            raise _unusable(name, path, f"{module_name} has no {function_name}")
        found = getattr(found, part)
    if not callable(found):
        raise _unusable(name, path, f"{function_name} is no function")
    try:
        inspect.signature(found).bind(None)
    except TypeError:
        raise _unusable(name, path, f"{function_name} does not take one column") from None
    except ValueError:
        # Some functions written in C do not say what they take.
        pass
    return found


def _unusable(name: str, path: str, reason: str) -> ConfigError:
    return ConfigError(
        f'the event-time type {name} cannot be loaded from "{path}": {reason}',
        hint="Name a function that takes a Spark column and gives a timestamp column, as "
        "`package.module:function`, in a package that is installed beside Tidemark.",
        field=_field(name),
    )


def _field(name: str) -> str:
    return f"pipeline.eventtime.types.{name}"


def within_known_years(moment: Column) -> Column:
    """NULL in place of a time that Tidemark does not know."""
    from pyspark.sql import functions as fn

    micros = fn.unix_micros(moment)
    return fn.when(micros.between(MIN_TIMESTAMP_US, MAX_TIMESTAMP_US), moment)


def _unix_time(*, digits: int, multiply: int = 1, divide: int = 1) -> Parser:
    """Units since 1970, cut to whole microseconds."""

    def parse(column: Column) -> Column:
        from pyspark.sql import functions as fn

        text = column.cast("string")
        parts = [fn.regexp_extract(text, _NUMBER, group) for group in (1, 2, 3)]
        number = fn.when(text.rlike(_NUMBER), fn.concat(*parts))
        # Wide enough for every instant and narrow enough that the product is exact: 38 digits are
        # the most that Spark has, and where a result needs more it rounds.
        exact = number.try_cast(f"decimal({digits + _DIGITS_AFTER_POINT},{_DIGITS_AFTER_POINT})")
        whole = fn.floor(exact * fn.lit(multiply) if multiply > 1 else exact).try_cast("bigint")
        # It divides towards zero, which would make 1970 of what lies before it.
        counted = fn.when(whole >= 0, fn.call_function("div", whole, fn.lit(divide)))
        return fn.timestamp_micros(counted)

    return parse


def _iso_8601(column: Column) -> Column:
    from pyspark.sql import functions as fn

    text = column.cast("string")

    def part(group: int) -> Column:
        return fn.regexp_extract(text, _ISO_8601, group)

    local = fn.concat(part(1), fn.lit(" "), part(2), part(3), fn.lit("Z")).try_cast("timestamp")
    # Spark itself knows offsets up to 18 hours only.
    offset = part(5).try_cast("int") * fn.lit(60) + part(6).try_cast("int")
    offset = fn.when(part(4) == "-", -offset).when(part(4) == "+", offset).otherwise(fn.lit(0))
    micros = fn.unix_micros(local) - offset.cast("bigint") * fn.lit(_MICROS_PER_MINUTE)
    return (
        # The type is known when a plan is made, so only one of these is left in it.
        fn.when(fn.typeof(column).startswith("timestamp"), column.try_cast("timestamp"))
        # As most write it, and as Spark itself reads it: far cheaper than to take it apart.
        .when(text.rlike(_COMMON_ISO_8601), text.try_cast("timestamp"))
        .when(text.rlike(_ISO_8601), fn.timestamp_micros(micros))
    )
