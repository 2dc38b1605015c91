"""Every error Tidemark raises on purpose.

    TidemarkError
    ├── ConfigError            config_invalid          the configuration cannot be used
    │   └── InvalidConfig      (in config)             … with every problem of the file
    ├── RequestError           (code per case)         a whole request is refused with a 4xx
    │   ├── AccessDenied       unauthorized|forbidden
    │   └── NotFound           not_found
    ├── EventRejected          (code per case)         one event of a request is refused
    ├── LedgerError
    │   ├── LedgerUnavailable  ledger_unavailable      try again; nothing was acknowledged
    │   ├── LedgerDamaged      ledger_damaged          somebody else has written to the database
    │   ├── QueueFull          queue_full              try again later; memory stays bounded
    │   ├── ClockLeap          clock_leap              ingest is held until an operator confirms
    │   ├── StorageRefused     storage_refused         the database refuses this very content
    │   ├── SaltMismatch       salt_mismatch           the ledger was made with another salt
    │   ├── SchemaMismatch     schema_mismatch         the store's schema is not this version's
    │   └── ImportRefused      import_refused          a history cannot be imported as it is
    │       └── InvalidHistory (in ledger.importer)    … with the lines that are at fault
    ├── EventFileError         (in event_files)        a file of events cannot be read on
    └── ClientError            (code per case)         the client library cannot deliver
        └── DeliveryFailed     (in client)             … with the events that were not delivered

Each has a stable `code`, a `message` that says what happened, a `hint` that says what to do and,
where one is at fault, a `field`. All of them pickle, because Spark workers send them home.
"""

from __future__ import annotations

from typing import Any


class TidemarkError(Exception):
    """The root of the tree; `code` is what programs test for, the rest is for people."""

    code = "internal_error"

    def __init__(
        self, message: str, *, hint: str = "", field: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field
        if code is not None:
            self.code = code

    def as_dict(self) -> dict[str, str]:
        """The one JSON shape of an error."""
        body = {"code": self.code, "message": self.message, "hint": self.hint}
        if self.field is not None:
            body["field"] = self.field
        return body

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.__dict__.copy()))


def _rebuild(kind: type[TidemarkError], message: str, state: dict[str, Any]) -> TidemarkError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class ConfigError(TidemarkError):
    """The configuration cannot be used; `field` is the path of the fault."""

    code = "config_invalid"


class RequestError(TidemarkError):
    """A whole request is refused; `status` is the HTTP status.

    `retry_after_s` is set where sending the same request again later helps.
    """

    code = "bad_request"

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        hint: str = "",
        field: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, field=field, code=code)
        self.status = status
        self.retry_after_s = retry_after_s


class AccessDenied(RequestError):
    """The caller is not known (401) or not allowed (403)."""

    code = "forbidden"


class NotFound(RequestError):
    """The thing that was asked for is not there."""

    code = "not_found"

    def __init__(self, message: str, *, hint: str = "", field: str | None = None) -> None:
        super().__init__(message, status=404, hint=hint, field=field)


class EventRejected(TidemarkError):
    """One event is refused; its neighbours are not."""

    code = "rejected"


class LedgerError(TidemarkError):
    """The ledger could not do what was asked."""

    code = "ledger_error"


class LedgerUnavailable(LedgerError):
    """The store did not answer or could not make the group durable. Retrying is safe."""

    code = "ledger_unavailable"


class LedgerDamaged(LedgerError):
    """The store holds what Tidemark has not written, or not all that it has."""

    code = "ledger_damaged"


class QueueFull(LedgerError):
    """More events wait for the ledger than the configured bound."""

    code = "queue_full"


class ClockLeap(LedgerError):
    """The wall clock stepped forward further than the monotonic clock explains."""

    code = "clock_leap"


class StorageRefused(LedgerError):
    """The database refuses this very content; a retry would be refused again."""

    code = "storage_refused"


class SaltMismatch(LedgerError):
    """The configured salt is not the one this ledger was made with."""

    code = "salt_mismatch"


class SchemaMismatch(LedgerError):
    """The store's schema is newer than this version, or needs `tidemark migrate`."""

    code = "schema_mismatch"


class ImportRefused(LedgerError):
    """A history cannot be imported into this ledger."""

    code = "import_refused"


class ClientError(TidemarkError):
    """The client library could not deliver."""

    code = "client_error"
