"""The views: current rows, the log of their changes, and how far in the ledger both have come.

`schema` says what a view looks like, `batch` what a step of the pipeline writes and whether it is
its turn, `sqlite` and `postgres` keep it in one transaction, `reading` reads it. Nothing here knows
how a row came about or who is watching it.
"""
