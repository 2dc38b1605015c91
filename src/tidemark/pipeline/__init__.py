"""The pipeline on Spark: decode → time → rollup → commit.

Nothing here depends on how the ledger is cut into micro-batches, on a wall clock, or on the process
having stopped: what depends on arrival depends on the commit.
"""
