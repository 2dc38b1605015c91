"""JSON as it is written: what Spark's own parser does not keep.

That one reads numbers with a fraction as floating point and spells escapes its own way, so a value
that is to stay JSON is cut out of the text instead. The text is canonical: without white space. All
repetitions are possessive, so a match takes no stack but for nesting and never tries twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as fn

# More than `ingest.max_json_depth` allows, with what an amend puts around its content.
_MAX_DEPTH: Final = 104
PARSER: Final = {"maxNumLen": "2147483647", "maxStringLen": "2147483647"}
"""Options of Spark's parser, which would not take a number of more than 1,000 digits. Names of more
than 50,000 characters it does not take at all."""
_STRING: Final = r'"(?:[^"\\]++|\\.)*+"'


def _nested() -> str:
    """An array or an object, with all that is in it."""
    pattern = rf'(?:[^\[\]{{}}"]++|{_STRING})*+'
    for _ in range(_MAX_DEPTH - 1):
        pattern = rf'(?:[^\[\]{{}}"]++|{_STRING}|[\[{{]{pattern}[\]}}])*+'
    return rf"[\[{{]{pattern}[\]}}]"


_NESTED: Final = _nested()
_VALUE: Final = rf'(?:{_STRING}|{_NESTED}|[^\[\]{{}}",]++)'
_FRACTION: Final = (
    rf'\G((?:^\{{)?(?:[^"\[\]{{}}0-9-]++|{_STRING}|{_NESTED}|-?[0-9]++(?![.0-9]))*+)'
    r"(-?[0-9]++\.[0-9]++)"
)


def raw_member(text: Column, name: str) -> Column:
    """A member of the object that a text is, as it stands there; null if there is none."""
    member = rf'"\Q{name}\E":'
    others = rf"(?:(?!{member}){_STRING}:{_VALUE},)*+"
    found = fn.regexp_extract(text, rf"^\{{{others}{member}({_VALUE})", 1)
    return fn.nullif(found, fn.lit(""))


def value_begin(text: Column, names: Sequence[str]) -> Column:
    """Where the value of the first member with one of these names begins in the object that a text
    is; null if there is none."""
    member = rf'"(?:{"|".join(names)})":'
    others = rf"(?:(?!{member}){_STRING}:{_VALUE},)*+"
    before = fn.length(fn.regexp_extract(text, rf"^\{{{others}{member}", 0))
    return fn.when(before > 0, before + 1)


def value_at(text: Column, begin: Column) -> Column:
    """The value that begins there, as it stands there."""
    rest = fn.substring(text, begin, fn.length(text))
    return fn.nullif(fn.regexp_extract(rest, rf"^({_VALUE})", 1), fn.lit(""))


def exact_numbers(text: Column) -> Column:
    """An object whose members that are numbers with a fraction have become strings."""
    quoted = fn.regexp_replace(text, _FRACTION, '$1"$2"')
    # Most have none, and to look for that is far cheaper. A time such as "12:00:00.5" is none.
    return fn.when(text.rlike(r'":-?[0-9]+\.[0-9]'), quoted).otherwise(text)
