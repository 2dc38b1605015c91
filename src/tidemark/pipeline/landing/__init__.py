"""Raw events for analysts, in places beside the ledger.

errors      what can be wrong with such a place
blocks      which events stand together, once and for all
rows        an event as it is landed, and the hash of what it says
target      what every place is: blocks, each whole or not there
parquet     a directory of files
clickhouse  a table, by way of `clickhouse_connection`
following   from the ledger into a place, as the ledger grows
comparing   a place held against the ledger, block by block
"""
