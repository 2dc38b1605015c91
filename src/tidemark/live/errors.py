"""Every error that Live raises on purpose.

LiveError
├── TooManySubscriptions  too_many_subscriptions  in this process or on this connection
├── CannotResume        cannot_resume        the log does not go on from there
├── SnapshotTooLarge    snapshot_too_large   more rows than a subscription may begin with
├── ViewNotReady        view_not_ready       the pipeline has not made it yet
├── SlowClient          slow_client          a client did not read what it asked for
├── InvalidFilter       invalid_filter       a `where` cannot be used; `field` is the path to why
├── InvalidArgument     invalid_argument     an argument of GraphQL cannot be used; `field` names it
├── WebhookRefused      webhook_refused      a webhook must not be sent to where it points
├── InvalidTrigger      invalid_trigger      a trigger cannot be made as it is described
├── TriggerExists       trigger_exists       another trigger has this name
├── TooManyTriggers     too_many_triggers    a deployment has room for no other trigger
├── UnknownTrigger      unknown_trigger      no trigger has this name
├── TriggersRefused     triggers_refused     the store of triggers refuses this very content
└── TriggersUnavailable triggers_unavailable the store of triggers did not answer; try again
"""

from __future__ import annotations

from tidemark.errors import TidemarkError


class LiveError(TidemarkError):
    """Live could not do what was asked."""

    code = "live_error"


class TooManySubscriptions(LiveError):
    """There is no room for another subscription, in this process or on this connection."""

    code = "too_many_subscriptions"


class CannotResume(LiveError):
    """What a subscription wants to go on from is not there (any more)."""

    code = "cannot_resume"


class SnapshotTooLarge(LiveError):
    """More rows pass a filter than a subscription may begin with."""

    code = "snapshot_too_large"


class ViewNotReady(LiveError):
    """The view is configured, and the pipeline has not made it yet."""

    code = "view_not_ready"


class SlowClient(LiveError):
    """A client did not read what it asked for."""

    code = "slow_client"


class InvalidFilter(LiveError):
    """A `where` cannot be used; `field` is the path of the fault, such as `where.qty._gt`."""

    code = "invalid_filter"


class InvalidArgument(LiveError):
    """An argument of GraphQL cannot be used; `field` is its name."""

    code = "invalid_argument"


class WebhookRefused(LiveError):
    """A webhook must not be sent to where it points: no proper URL, or not a public address."""

    code = "webhook_refused"


class InvalidTrigger(LiveError):
    """A trigger cannot be made as it is described; `field` is what is at fault."""

    code = "invalid_trigger"


class TriggerExists(LiveError):
    """Another trigger of this deployment has the name. Nothing was changed."""

    code = "trigger_exists"


class TooManyTriggers(LiveError):
    """A deployment has room for no other trigger. Nothing was changed."""

    code = "too_many_triggers"


class UnknownTrigger(LiveError):
    """No trigger of this deployment has the name."""

    code = "unknown_trigger"


class TriggersRefused(LiveError):
    """The store of triggers refuses this very content; a retry would be refused again."""

    code = "triggers_refused"


class TriggersUnavailable(LiveError):
    """The store of triggers did not answer or could not commit. Retrying is safe."""

    code = "triggers_unavailable"
