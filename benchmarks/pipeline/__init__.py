"""How fast the ledger becomes rows, beside what plain Spark and DuckDB take for less.

| module | what it holds |
|---|---|
| `workload` | ledgers of usage events, made at rest |
| `rig` | a PostgreSQL, a Spark session, and the pipeline over a ledger |
| `limits` | the final aggregation alone, over the same events in Parquet |
| `catch_up` | a ledger from its beginning, with the change log |
| `growth` | the same work on top of ever more |
| `latency` | from commit to visible row while events keep coming |
| `results`, `report` | what was found, for programs and for people |
"""
