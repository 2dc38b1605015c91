"""How much one document may ask for. There is a limit on everything."""

from __future__ import annotations

import msgspec


class DocumentLimits(msgspec.Struct, frozen=True):
    """What a document may be like, and how many are remembered.

    A parsed document takes about a hundred times the memory of its text, so the cache is bounded by
    the texts' bytes as well as by their number.
    """

    max_bytes: int = 65_536
    max_tokens: int = 10_000
    max_comments: int = 1_000
    max_depth: int = 12
    max_fields: int = 500
    max_fragments: int = 200
    max_root_fields: int = 20
    max_aliases: int = 100
    cached_documents: int = 1_000
    cached_bytes: int = 1_000_000


class QueryLimits(msgspec.Struct, frozen=True):
    """How many rows a query gets if it does not say, and at most; how far it may skip.

    It also says how many queries there may be.
    """

    default_rows: int = 1_000
    max_rows: int = 10_000
    max_offset: int = 1_000_000
    max_order_columns: int = 20
    # How often a document is answered anew because the views moved on between two of its fields.
    attempts: int = 5
    # How many are answered at the same time, which is less than the store can do, so that
    # subscriptions get their snapshots meanwhile; and how long the others wait for their turn.
    at_once: int = 4
    turn_within_s: float = 10.0
