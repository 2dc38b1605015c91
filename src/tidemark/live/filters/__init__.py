"""Which rows somebody wants: Hasura's `where`, for Python and for SQL.

`parsing` reads a `where` into a `tree`, and says what is wrong with one; `values` and `patterns`
are what conditions compare with. `normal` gives equal filters one form. `predicate` makes a
function of it and `sql` a condition, and the two agree on every row.
"""

from tidemark.live.filters.normal import Filter, both
from tidemark.live.filters.parsing import FilterLimits, operators_of, parse_filter
from tidemark.live.filters.predicate import Predicate, compile_predicate
from tidemark.live.filters.sql import row_query, sql_condition

__all__ = [
    "Filter",
    "FilterLimits",
    "Predicate",
    "both",
    "compile_predicate",
    "operators_of",
    "parse_filter",
    "row_query",
    "sql_condition",
]
