"""The rollup: per key, the state after each commit that touched it.

| module | what it holds |
|---|---|
| `parts` | what a fold gives, as Arrow tables |
| `rules` | when a fact of a meter is late |
| `tallies` | running aggregates, one by one, and what a counter's row shows of them |
| `meter_rows` | rows of a meter, as folds in Python read and write them |
| `texts`, `meter_sql` | rows as text, and the fold of meters, as SQL |
| `meters_vectorised` | many plain facts of a meter at once, in SQL over Arrow |
| `meters_plain` | few of them, without the cost of planning a query |
| `meters_corrected` | all facts of a counter's owner from the ledger, corrections included |
| `table_rows` | rows of a table, as folds in Python read and write them |
| `tables`, `tables_plain` | the last row of each key, for many events and for few |
| `tables_corrected` | all events of some keys of a table from the ledger |
| `task` | all of it, as what a Spark task does with its partition |

The folds of one kind give the same; which one runs depends on the work, never the result.
"""
