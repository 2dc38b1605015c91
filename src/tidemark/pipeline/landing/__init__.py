"""Raw events for analysts, in files beside the ledger.

blocks      which events stand together, once and for all
rows        an event as it is landed, and the hash of what it says
parquet     the directory of blocks
following   from the ledger into the directory, as the ledger grows
comparing   the directory held against the ledger, block by block
"""
