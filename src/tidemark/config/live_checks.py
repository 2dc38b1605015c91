"""What must fit together in access, live limits, triggers and webhooks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, get_args

from tidemark.config.access_model import Algorithm
from tidemark.config.durations import format_duration, parse_duration
from tidemark.config.live_model import LiveConfig, WebhooksConfig
from tidemark.config.names import TRIGGER_NAME_PATTERN
from tidemark.config.problems import Location, shorten
from tidemark.config.raw_settings import Finding, Rule, mapping_of, sections, texts_of
from tidemark.config.suggestions import and_list, did_you_mean
from tidemark.config.webhook_values import MAX_SECRETS
from tidemark.config.window_checks import late_view

# RFC 7518, 3.2: a secret is no shorter than the digest.
SECRET_BYTES: Final[dict[str, int]] = {"HS256": 32, "HS384": 48, "HS512": 64}

# The settings that say what a token is verified with.
_TOKEN_KEYS: Final[tuple[str, ...]] = ("secret", "public_key_file", "jwks_file")
_TOKEN_SCOPES: Final = ("read", "triggers", "introspect")
_TRIGGER_NAME = re.compile(TRIGGER_NAME_PATTERN)


def tokens_have_one_key(raw: dict[str, Any]) -> Iterator[Finding]:
    for index, issuer in _issuers(raw):
        place: Location = ("auth", "jwt", index)
        there = [name for name in _TOKEN_KEYS if name in issuer]
        algorithm = str(issuer.get("algorithm"))
        if len(there) != 1:
            found = and_list(there) if there else "none"
            message = f"expected one of `secret`, `public_key_file`, `jwks_file`, found {found}"
            yield place, message, "A token is verified with exactly one of them."
        elif algorithm not in get_args(Algorithm):
            continue
        elif there == ["public_key_file"] and algorithm in SECRET_BYTES:
            message = f"expected a secret with the algorithm {algorithm}, found a public key"
            hint = "Say `secret`, or name the algorithm of the key, such as RS256."
            yield (*place, "public_key_file"), message, hint
        elif there == ["secret"] and algorithm not in SECRET_BYTES:
            message = f"expected a public key with the algorithm {algorithm}, found a secret"
            hint = "Say `public_key_file` or `jwks_file`, or use HS256 with a secret."
            yield (*place, "secret"), message, hint
        elif there == ["secret"] and isinstance(issuer["secret"], str):
            length = len(issuer["secret"].encode("utf-8", "surrogatepass"))
            if 0 < length < SECRET_BYTES[algorithm]:
                message = f"expected at least {SECRET_BYTES[algorithm]} bytes, found {length}"
                yield (*place, "secret"), message, "Make one with `openssl rand -base64 48`."


def tokens_need_keys(raw: dict[str, Any]) -> Iterator[Finding]:
    auth = mapping_of(raw, "auth")
    if auth.get("jwt") and auth.get("keys") in (None, []):
        message = "expected `auth.keys` beside it, found none"
        hint = (
            "Without keys everyone on this machine may do everything outside GraphQL; "
            "`tidemark keygen` makes one."
        )
        yield ("auth", "jwt"), message, hint


def issuers_have_names_of_their_own(raw: dict[str, Any]) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for index, issuer in _issuers(raw):
        name = issuer.get("name")
        if isinstance(name, str):
            if name in first:
                message = f"expected another name than that of auth.jwt[{first[name]}]"
                yield ("auth", "jwt", index, "name"), message, "Change or remove one of the two."
            first.setdefault(name, index)


def scopes_of_tokens_are_those_of_graphql(raw: dict[str, Any]) -> Iterator[Finding]:
    for index, issuer in _issuers(raw):
        for number, scope in texts_of(issuer.get("scopes")):
            if scope in ("ingest", "control", "admin"):
                message = f"expected one of {', '.join(_TOKEN_SCOPES)}, found {shorten(scope)}"
                hint = "Tokens are for GraphQL; for everything else there are `auth.keys`."
                yield ("auth", "jwt", index, "scopes", number), message, hint


def rules_are_for_views(raw: dict[str, Any]) -> Iterator[Finding]:
    names = _names_of_views(raw)
    for name, _ in sections(mapping_of(raw, "auth"), "rules"):
        if name not in names:
            message = f"expected the name of a meter or a view, found {shorten(name)}"
            yield ("auth", "rules", name), message, did_you_mean(name, names)


def triggers_watch_views(raw: dict[str, Any]) -> Iterator[Finding]:
    views = dict(_views(raw))
    for name, trigger in sections(raw, "triggers"):
        if not _TRIGGER_NAME.fullmatch(name):
            message = "expected a name of at most 64 letters, digits, `_` and `-`"
            yield ("triggers", name), f"{message}, found {shorten(name)}", ""
        view = trigger.get("view")
        if not isinstance(view, str):
            continue
        place: Location = ("triggers", name, "view")
        if view not in views:
            message = f"expected the name of a meter or a view, found {shorten(view)}"
            yield place, message, did_you_mean(view, views)
        elif views[view].get("live") is False:
            message = f"expected a view whose changes are kept, found {shorten(view)}"
            yield place, message, "Remove its `live: false`, or watch another."


def lists_of_access_have_no_repeats(raw: dict[str, Any]) -> Iterator[Finding]:
    webhooks = mapping_of(raw, "webhooks")
    lists: list[tuple[Location, Any]] = [
        (("webhooks", name), webhooks.get(name)) for name in ("secrets", "allow")
    ]
    lists += [(("auth", "jwt", i, "scopes"), issuer.get("scopes")) for i, issuer in _issuers(raw)]
    for place, entries in lists:
        seen = set()
        for index, entry in texts_of(entries):
            if entry in seen:
                # Not shown: it may be a secret.
                yield (*place, index), "expected each entry once, found one again", "Remove it."
            seen.add(entry)


def webhooks_have_two_secrets_at_most(raw: dict[str, Any]) -> Iterator[Finding]:
    secrets = mapping_of(raw, "webhooks").get("secrets")
    if isinstance(secrets, list) and len(secrets) > MAX_SECRETS:
        message = f"expected at most {MAX_SECRETS} secrets, found {len(secrets)}"
        yield ("webhooks", "secrets"), message, "Remove those that every receiver has replaced."


def limits_rise(raw: dict[str, Any]) -> Iterator[Finding]:
    """Of two limits that follow each other, the first is not the larger."""
    live, webhooks = mapping_of(raw, "live"), mapping_of(raw, "webhooks")
    for first, second in (
        ("merge_above", "close_above"),
        ("merge_above_bytes", "close_above_bytes"),
        ("documents_per_second", "document_burst"),
    ):
        low = live.get(first, getattr(LiveConfig(), first))
        high = live.get(second, getattr(LiveConfig(), second))
        if type(low) is int and type(high) is int and low > high:
            message = f"expected at most {high}, which is `live.{second}`, found {low}"
            yield ("live", first), message, "Lower one or raise the other."
    low = webhooks.get("max_concurrent_per_host", WebhooksConfig().max_concurrent_per_host)
    high = webhooks.get("max_concurrent", WebhooksConfig().max_concurrent)
    if "max_concurrent_per_host" in webhooks and type(low) is type(high) is int and low > high:
        message = f"expected at most {high}, which is `webhooks.max_concurrent`, found {low}"
        yield ("webhooks", "max_concurrent_per_host"), message, "Lower one or raise the other."
    for first, second in (("first_retry", "max_retry"), ("max_retry", "retry_for")):
        shorter, longer = _duration(webhooks, first), _duration(webhooks, second)
        if shorter is not None and longer is not None and shorter > longer:
            message = (
                f"expected at most {format_duration(longer)}, which is `webhooks.{second}`, "
                f"found {format_duration(shorter)}"
            )
            yield ("webhooks", first), message, "Lower one or raise the other."


LIVE_RULES: Final[tuple[Rule, ...]] = (
    tokens_have_one_key,
    tokens_need_keys,
    issuers_have_names_of_their_own,
    scopes_of_tokens_are_those_of_graphql,
    rules_are_for_views,
    triggers_watch_views,
    lists_of_access_have_no_repeats,
    webhooks_have_two_secrets_at_most,
    limits_rise,
)


def _issuers(raw: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    issuers = mapping_of(raw, "auth").get("jwt")
    if not isinstance(issuers, list):
        return []
    return [
        (index, {key: value for key, value in issuer.items() if value is not None})
        for index, issuer in enumerate(issuers)
        if isinstance(issuer, dict)
    ]


def _names_of_views(raw: dict[str, Any]) -> list[str]:
    return [name for name, _ in _views(raw)]


def _views(raw: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything that has rows to be seen, with its settings."""
    for kind in ("meters", "views", "windows"):
        for name, settings in sections(raw, kind):
            yield name, settings
            if kind == "windows" and settings.get("late") == "side_output":
                yield late_view(name), settings


def _duration(webhooks: dict[str, Any], name: str) -> int | None:
    if name not in webhooks:
        default: int = getattr(WebhooksConfig(), f"{name}_us")
        return default
    try:
        return parse_duration(webhooks[name])
    except (TypeError, ValueError, AttributeError):
        return None
