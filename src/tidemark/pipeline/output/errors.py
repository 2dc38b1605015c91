"""Every error the views store raises on purpose.

ViewsError
├── ViewsUnavailable    views_unavailable    try again; the frontier says what is there
├── DefinitionChanged   definition_changed   a view is declared with another meaning
├── InvalidView         invalid_view         a view cannot be kept as it is declared
├── UnknownView         unknown_view         no such view, or no such column in it
├── FrontierGap         frontier_gap         a batch does not begin where the views end
├── LedgerRewound       ledger_rewound       the views were made from another history
├── BatchRefused        batch_refused        a batch contradicts itself or the view
├── BeyondFrontier      beyond_frontier      the time asked for is not folded yet
├── ChangesForgotten    changes_forgotten    the log does not reach back that far
└── QueryTooSlow        query_too_slow       a query was ended because it took too long
"""

from __future__ import annotations

from tidemark.errors import TidemarkError


class ViewsError(TidemarkError):
    """The views store could not do what was asked."""

    code = "views_error"


class ViewsUnavailable(ViewsError):
    """The store did not answer or could not commit. Retrying is safe: what is there is skipped."""

    code = "views_unavailable"


class DefinitionChanged(ViewsError):
    """A view of this name exists with another definition. Nothing was changed."""

    code = "definition_changed"


class InvalidView(ViewsError):
    """A view cannot be kept as it is declared; `field` is what is at fault."""

    code = "invalid_view"


class UnknownView(ViewsError):
    """There is no such view, or no such column among those that a reader may see."""

    code = "unknown_view"


class FrontierGap(ViewsError):
    """A batch begins before or after the frontier and does not end before it."""

    code = "frontier_gap"


class LedgerRewound(ViewsError):
    """The views hold a history that the ledger does not have."""

    code = "ledger_rewound"


class BatchRefused(ViewsError):
    """A batch contradicts itself, the view or the database; a retry would be refused again."""

    code = "batch_refused"


class BeyondFrontier(ViewsError):
    """The time asked for has not been folded yet."""

    code = "beyond_frontier"


class ChangesForgotten(ViewsError):
    """The log of changes does not reach back to the time asked for."""

    code = "changes_forgotten"


class QueryTooSlow(ViewsError):
    """A query took longer than one may, and was ended. It would again."""

    code = "query_too_slow"
