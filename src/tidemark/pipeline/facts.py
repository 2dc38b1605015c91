"""What is left of an event when it has been decoded: one narrow row for each view it concerns.

Facts are what crosses the network between the tasks that read and those that fold. `slot` says
which of them must meet: all facts of one counter's owner, or of one row of a table, have the same.
"""

from __future__ import annotations

from typing import Final

# The event itself.
FACT: Final = "fact"
# An event that puts other content in an earlier one's place, or takes that one away.
AMEND: Final = "amend"
VOID: Final = "void"
# An operator's adjustment.
ADJUST: Final = "adjust"
# An event that could not be decoded for this view.
ERROR: Final = "error"
# Not of an event, but of its commit; of no view.
COMMIT: Final = "commit"
# An event as the time stage sees it, or the end of its stream; of no view.
TUPLE: Final = "tuple"
END: Final = "end"

NO_VIEW: Final = -1

# Amounts of one event are smaller than 10^19 with nine decimals; sums are wider.
VALUE_TYPE: Final = "decimal(28,9)"


def table_column(number: int) -> str:
    """The column that holds the row of the table with this number, a struct; or, with a number
    after those of all tables, the groups of a window."""
    return f"row_{number}"
