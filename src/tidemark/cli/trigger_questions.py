"""Triggers of a server, asked for and changed over GraphQL, so that its checks and rules apply.

In GraphQL a trigger is changed through its view, and people know it by its name alone. So where no
view is named the server is asked for it first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from tidemark.cli.answers import not_ours
from tidemark.cli.graphql import GraphqlAsking
from tidemark.cli.listing import Page
from tidemark.cli.options import Server
from tidemark.cli.outcome import usage_error
from tidemark.errors import ClientError

TRIGGER_FIELDS: Final = (
    *("name", "view", "webhook", "match", "unmatch"),
    *("since", "until", "enabled", "disabled_reason"),
)
DELIVERY_FIELDS: Final = (
    *("event_id", "trigger_name", "event_type", "row_key", "source_timestamp", "status"),
    *("attempts", "created_at", "next_attempt_at", "delivered_at", "response_status", "last_error"),
    *("payload", "last_attempts"),
)
LARGEST_PAGE: Final = 1000

_TRIGGER: Final = f"{{ {' '.join(TRIGGER_FIELDS)} }}"
_DELIVERY: Final = (
    f"{{ {' '.join(DELIVERY_FIELDS)} {{ attempted_at status response_status error }} }}"
)
_NAME: Final = re.compile(r"[_A-Za-z][_0-9A-Za-z]*").fullmatch

Trigger = dict[str, Any]


class TriggerQuestions:
    """What a server is asked about triggers; `view` is the only one that is looked at, if given."""

    def __init__(self, target: Server, view: str | None) -> None:
        if view is not None and not _NAME(view):
            raise usage_error(f"{view!r} cannot be the name of a view", field="view")
        self._asking = GraphqlAsking(target)
        self._view = view

    def listed(self) -> list[msgspec.Raw]:
        """All triggers that the caller may see, by name."""
        field = "triggers" if self._view is None else f"{self._view}_triggers"
        found: list[msgspec.Raw] = _read(self._only(f"{{ {field} {_TRIGGER} }}"), list[msgspec.Raw])
        return found

    def add(
        self, name: str, webhook: str, match: msgspec.Raw, unmatch: msgspec.Raw | None
    ) -> msgspec.Raw:
        assert self._view is not None
        given = {"name": name, "webhook": webhook, "match": match}
        if unmatch is not None:
            given["unmatch"] = unmatch
        document = (
            f"mutation ($input: {self._view}TriggerInput!) {{ create_{self._view}_trigger"
            f"(input: $input) {_TRIGGER} }}"
        )
        try:
            return self._only(document, {"input": given})
        except ClientError as error:
            if error.code == "graphql_variables":
                error.hint = (
                    f"`tidemark schema` prints the columns of {self._view} and what each can be"
                    " compared with."
                )
            raise

    def change(self, verb: str, name: str) -> msgspec.Raw:
        """`verb` is enable, disable or restart; the trigger as the server then shows it."""
        return self._change(f"{verb}_{self._view_of(name)}_trigger", name)

    def delete(self, name: str) -> msgspec.Raw:
        """The trigger as it was."""
        if self._view is None:
            return self._change("delete_trigger", name)
        return self._change(f"delete_{self._view_of(name)}_trigger", name)

    def redeliver(self, name: str, event_id: str | None) -> int:
        """How many deliveries are made again."""
        document = (
            "mutation ($name: String!, $event: String) {"
            f" redeliver_{self._view_of(name)}_trigger(name: $name, event_id: $event) }}"
        )
        count: int = _read(self._only(document, {"name": name, "event": event_id}), int)
        return count

    def deliveries(self, name: str, status: str | None, limit: int | None) -> Iterator[Page]:
        """The latest first, page by page, up to `limit` of them."""
        document = (
            "query ($name: String!, $status: DeliveryStatus, $limit: Int, $after: String) {"
            f" {self._view_of(name)}_trigger_deliveries"
            "(name: $name, status: $status, limit: $limit, after: $after)"
            f" {{ deliveries {_DELIVERY} next_cursor }} }}"
        )
        left, cursor = limit, None
        while True:
            size = LARGEST_PAGE if left is None else min(LARGEST_PAGE, left)
            variables = {"name": name, "status": status, "limit": size, "after": cursor}
            answer = _read(self._only(document, variables), dict[str, msgspec.Raw])
            try:
                entries = _read(answer["deliveries"], list[msgspec.Raw])
                cursor = _read(answer["next_cursor"], str | None)
            except KeyError:
                raise not_ours("deliveries that cannot be read") from None
            yield Page(entries, next_cursor=cursor)
            if left is not None:
                left -= len(entries)
            if cursor is None or left == 0:
                return

    def _view_of(self, name: str) -> str:
        """The view of a trigger; `not_found` if the caller may not see one of this name."""
        field = "trigger" if self._view is None else f"{self._view}_trigger"
        document = f"query ($name: String!) {{ {field}(name: $name) {{ view }} }}"
        found = _read(self._only(document, {"name": name}), Trigger | None)
        if found is not None:
            return str(found["view"])
        of_view = "" if self._view is None else f" on the view {self._view}"
        raise ClientError(
            f"there is no trigger {name}{of_view}",
            hint="`tidemark triggers list` shows those there are.",
            field="name",
            code="not_found",
        )

    def _change(self, field: str, name: str) -> msgspec.Raw:
        document = f"mutation ($name: String!) {{ {field}(name: $name) {_TRIGGER} }}"
        return self._only(document, {"name": name})

    def _only(self, document: str, variables: Mapping[str, Any] | None = None) -> msgspec.Raw:
        [found] = self._ask(document, variables).values()
        return found

    def _ask(
        self, document: str, variables: Mapping[str, Any] | None = None
    ) -> dict[str, msgspec.Raw]:
        try:
            return self._asking.ask(document, variables)
        except ClientError as error:
            if error.code != "graphql_invalid":
                raise
            told = "view of this trigger" if self._view is None else f"view {self._view}"
            raise ClientError(
                f"the server has no {told} whose rows can be watched",
                hint="`tidemark schema` prints what there is; a view with `live: false` has no"
                " triggers, and --view names one.",
                field="view",
                code="unknown_view",
            ) from error


def _read(raw: msgspec.Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError:
        raise not_ours("an answer of GraphQL that cannot be read") from None
