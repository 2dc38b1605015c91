"""One event → the bytes that stand for it in every request, retry and split from then on.

A retry can only be recognised if nothing in it moves. So whatever the client adds (the `ts` of a
usage event, an idempotency key) is added here, once, before the event is first sent.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from tidemark.clock import Clock
from tidemark.errors import ClientError
from tidemark.timestamps import format_timestamp

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
MAX_STAMP_LEAD_US = 3_600_000_000
# No quantity of the ledger has more; it keeps Decimal("1e999999") from becoming a megabyte.
MAX_DECIMAL_DIGITS = 1000
MAX_DEPTH = 100


class Stamps:
    """Microseconds that no two events of this process share.

    Two usage events that differ in nothing but `ts` are one event if their `ts` is equal, and a
    fast program makes two within a microsecond.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_us = 0

    def next_us(self, wall_us: int) -> int:
        """The reading of the wall clock, moved on where it was given before.

        A clock that was set back by more than an hour is followed: stamps that run further ahead
        of it would be refused as lying in the future.
        """
        with self._lock:
            if wall_us <= self._last_us <= wall_us + MAX_STAMP_LEAD_US:
                wall_us = self._last_us + 1
            self._last_us = wall_us
            return wall_us

    def after_fork(self) -> None:
        # Another thread may have held the lock at the fork, and no thread is left to release it.
        self._lock = threading.Lock()


_stamps = Stamps()
os.register_at_fork(after_in_child=_stamps.after_fork)


def take(event: Mapping[str, Any], clock: Clock, *, auto_key: bool) -> bytes:
    """Fix an event: its JSON, with a `ts` if it is a usage event without one, and a key if asked.

    Raises `ClientError` with code `invalid_event` and the field's path if it has no JSON form.
    """
    if not isinstance(event, Mapping):
        raise ClientError(
            f"an event is a mapping, not {_a(type(event))}",
            hint='Pass a dict such as {"tenantId": "acme", "metric": "api_calls", …}.',
            code="invalid_event",
        )
    additions: dict[str, Any] = {}
    # A CloudEvent has an identity of its own (source and id) and no room for ours.
    if event.get("specversion") is None:
        if _is_usage(event) and event.get("ts") is None:
            additions["ts"] = format_timestamp(_stamps.next_us(clock.wall_us()))
        if auto_key and event.get("idempotencyKey") is None:
            additions["idempotencyKey"] = str(uuid.uuid4())
    return encode({**event, **additions})


def encode(event: Mapping[str, Any]) -> bytes:
    """Compact UTF-8 JSON. Decimals become exact strings, datetimes RFC 3339 in UTC."""
    try:
        return _JSON.encode(event).encode()
    except (TypeError, ValueError, RecursionError, ClientError):
        fault = _find_fault(event, "", 0)
        if fault is None:
            raise
        raise fault from None


def _is_usage(event: Mapping[str, Any]) -> bool:
    # To the server, a field that is null is absent.
    return all(event.get(name) is None for name in ("stream", "control", "data"))


def _plain(value: object) -> object:
    """The JSON form of a value that `json` itself does not know."""
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ClientError(f"{value} is not a number", hint="Send finite numbers only.")
        if abs(value.adjusted()) > MAX_DECIMAL_DIGITS:
            raise ClientError(
                f"a number of more than {MAX_DECIMAL_DIGITS} digits",
                hint="The ledger takes up to 19 digits before the point and 9 after it.",
            )
        return format(value, "f")
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ClientError(
                "a datetime without a time zone",
                hint="Which instant it means is not known. Give it a zone: "
                "value.replace(tzinfo=timezone.utc).",
            )
        try:
            return format_timestamp((value - EPOCH) // MICROSECOND)
        except (ValueError, OverflowError, OSError):
            raise ClientError(f"{value} is not in the calendar", hint="Use UTC.") from None
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise ClientError(
        f"{_a(type(value))} has no JSON form",
        hint="Use dict, list, str, int, float, bool, None, Decimal, datetime or UUID.",
    )


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)


def _find_fault(value: object, path: str, depth: int) -> ClientError | None:
    """Where and why `encode` failed. It walks as `json` does, so that the fast path need not."""
    if depth > MAX_DEPTH:
        return _fault(path, f"nested deeper than {MAX_DEPTH} levels", "Flatten the event.")
    if isinstance(value, Mapping):
        for key, member in value.items():
            member_path = f"{path}.{key}" if path else str(key)
            if not isinstance(key, str | int | float | bool | None):
                return _fault(member_path, f"{_a(type(key))} as a key", "Keys are strings.")
            found = _find_fault(key, member_path, depth) or _find_fault(
                member, member_path, depth + 1
            )
            if found:
                return found
        return None
    if isinstance(value, list | tuple):
        for index, member in enumerate(value):
            if found := _find_fault(member, f"{path}[{index}]", depth + 1):
                return found
        return None
    try:
        _JSON.encode(value).encode()
    except ClientError as error:
        return _fault(path, error.message, error.hint)
    except UnicodeEncodeError:
        return _fault(path, "a lone surrogate is not text", "Decode the bytes it came from.")
    except (TypeError, ValueError) as error:
        return _fault(path, str(error), "Send finite numbers of at most 4300 digits.")
    return None


def _fault(path: str, message: str, hint: str) -> ClientError:
    where = path.encode("utf-8", "backslashreplace").decode()
    return ClientError(f"{where}: {message}", hint=hint, field=where, code="invalid_event")


def _a(kind: type) -> str:
    return f"{'an' if kind.__name__[:1] in 'aeiouAEIOU' else 'a'} {kind.__name__}"
