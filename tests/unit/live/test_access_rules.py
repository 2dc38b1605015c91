"""Which rows a session sees, whatever it asks for."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.unit.live.signed_tokens import NOW_S, config
from tidemark.config import Config
from tidemark.errors import AccessDenied, ConfigError
from tidemark.live.access import RowRules, Session, session_from_json, session_to_json
from tidemark.live.filters import Filter, both, compile_predicate, parse_filter
from tidemark.pipeline.output.schema import Column, Value, ViewSchema

TRADES = ViewSchema(
    "trades",
    (
        Column("tenant_id", "string"),
        Column("trade_id", "string"),
        Column("quantity", "int"),
        Column("account", "bigint"),
        Column("price", "decimal"),
        Column("open", "boolean"),
        Column("at", "timestamp"),
        Column("extra", "json"),
        Column("side", "enum", values=("buy", "sell")),
        Column("hidden", "string", hidden=True),
    ),
    ("tenant_id", "trade_id"),
    "hash",
)
PLACES = ViewSchema("places", (Column("name", "string"),), ("name",), "hash")
VISIBLE = [column.name for column in TRADES.visible]

Row = tuple[Value, ...]


def row(**values: Value) -> Row:
    return tuple(values.get(name) for name in VISIBLE)


def by_token(held: frozenset[str] | None = None, /, **claims: object) -> Session:
    return Session("app:ada", claims, frozenset(["read"]), held, NOW_S, by_token=True)


def by_key(*tenants: str) -> Session:
    held = frozenset(tenants) if tenants else None
    return Session("service", {}, frozenset(["read"]), held, None)


def rules(trades: Any = None, **others: Any) -> RowRules:
    chosen: Config = config(**({} if trades is None else {"trades": trades}), **others)
    return RowRules(chosen, [TRADES, PLACES])


def sees(allowed: Filter, *rows: Row) -> list[bool]:
    predicate = compile_predicate(TRADES, allowed)
    return [predicate(each) for each in rows]


OWN = {"tenant_id": {"_eq": "$jwt.tenant"}}
ACME, OTHER = row(tenant_id="acme"), row(tenant_id="other")


def test_a_rule_shows_the_rows_of_the_claim() -> None:
    allowed = rules(OWN).rule("trades", by_token(tenant="acme"))
    assert sees(allowed, ACME, OTHER, row()) == [True, False, False]


def test_an_empty_rule_shows_every_row() -> None:
    assert rules({}).rule("trades", by_token()) == parse_filter(TRADES, {})


def test_a_view_without_a_rule_is_not_shown_to_holders_of_tokens() -> None:
    with pytest.raises(AccessDenied) as caught:
        rules(OWN).rule("places", by_token(tenant="acme"))
    assert caught.value.status == 403
    assert sees(rules().rule("trades", by_key()), ACME, OTHER) == [True, True]


def test_a_claim_is_found_by_its_path() -> None:
    rule = {"tenant_id": {"_eq": "$jwt.org.tenant"}}
    assert sees(rules(rule).rule("trades", by_token(org={"tenant": "acme"})), ACME) == [True]
    assert sees(rules(rule).rule("trades", by_token(**{"org.tenant": "acme"})), ACME) == [True]
    named = {"tenant_id": {"_eq": "$jwt.https://example.com/claims.tenant"}}
    token = by_token(**{"https://example.com/claims": {"tenant": "acme"}})
    assert sees(rules(named).rule("trades", token), ACME) == [True]


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"tenant": None},
        {"Tenant": "acme"},
        {"tenant": {}},
        {"tenant": {"_neq": ""}},
        {"tenant": {"_eq": "acme"}},
        {"tenant": ["acme"]},
        {"tenant": []},
        {"tenant": 7},
        {"tenant": True},
        {"tenant": 1.5},
        {"tenant": "a\0b"},
        {"tenant": "x" * 10_001},
    ],
)
@pytest.mark.parametrize("operator", ["_eq", "_neq", "_gt"])
def test_a_claim_that_is_missing_or_no_value_denies(
    claims: dict[str, object], operator: str
) -> None:
    found = rules({"tenant_id": {operator: "$jwt.tenant"}})
    for _ in range(2):
        with pytest.raises(AccessDenied) as caught:
            found.rule("trades", by_token(**claims))
        assert caught.value.status == 403
        assert caught.value.code == "forbidden"


@pytest.mark.parametrize(
    ("column", "fits", "not_fits"),
    [
        ("quantity", [7], ["7", 7.0, True, 2**31]),
        ("account", [7, "7", 2**62], [7.5, True, "x", 2**63]),
        ("price", [7, "7.5", 7.5], [True, "x", "NaN"]),
        ("open", [True, False], [1, 0, "true"]),
        ("at", ["2025-01-01T00:00:00Z"], [7, "yesterday"]),
        ("side", ["buy"], ["hold", 0]),
    ],
)
def test_the_type_of_a_claim_fits_the_column(
    column: str, fits: list[object], not_fits: list[object]
) -> None:
    found = rules({column: {"_eq": "$jwt.x"}})
    for claim in fits:
        assert found.rule("trades", by_token(x=claim)).columns == {column}
    for claim in not_fits:
        with pytest.raises(AccessDenied, match="does not fit"):
            found.rule("trades", by_token(x=claim))


def test_claims_that_python_takes_for_equal_are_told_apart() -> None:
    found = rules({"open": {"_eq": "$jwt.x"}})
    assert found.rule("trades", by_token(x=True))
    for claim in (1, 1.0):
        with pytest.raises(AccessDenied):
            found.rule("trades", by_token(x=claim))


def test_a_list_of_claims_stands_where_a_list_does() -> None:
    found = rules({"tenant_id": {"_in": "$jwt.tenants"}})
    assert sees(found.rule("trades", by_token(tenants=["acme", "b"])), ACME, OTHER) == [True, False]
    assert sees(found.rule("trades", by_token(tenants="acme")), ACME, OTHER) == [True, False]
    assert sees(found.rule("trades", by_token(tenants=[])), ACME, OTHER, row()) == [False] * 3
    for claim in (["acme", None], [["acme"]], [{"_eq": "acme"}], ["a", 7], {}, ["x"] * 10_001):
        with pytest.raises(AccessDenied):
            found.rule("trades", by_token(tenants=claim))


def test_a_claim_in_a_list_is_a_single_value() -> None:
    found = rules({"tenant_id": {"_in": ["$jwt.tenant", "public"]}})
    public = row(tenant_id="public")
    allowed = found.rule("trades", by_token(tenant="acme"))
    assert sees(allowed, ACME, public, OTHER) == [True, True, False]
    with pytest.raises(AccessDenied):
        found.rule("trades", by_token(tenant=["other"]))


def test_rules_nest_and_name_several_claims() -> None:
    found = rules(
        {
            "_or": [OWN, {"_not": {"quantity": {"_gt": "$jwt.level"}}}],
            "_and": {"trade_id": {"_neq": "$$hidden"}},
        }
    )
    allowed = found.rule("trades", by_token(tenant="acme", level=5))
    assert sees(
        allowed,
        row(tenant_id="acme", trade_id="a", quantity=9),
        row(tenant_id="other", trade_id="a", quantity=5),
        row(tenant_id="other", trade_id="a", quantity=6),
        row(tenant_id="acme", trade_id="$hidden", quantity=1),
    ) == [True, True, False, False]
    # One that is not needed for this row still denies: a rule is all of it.
    with pytest.raises(AccessDenied):
        found.rule("trades", by_token(tenant="acme"))


def test_a_claim_is_never_read_as_another_claim() -> None:
    allowed = rules(OWN).rule("trades", by_token(tenant="$jwt.other", other="acme"))
    assert sees(allowed, ACME, row(tenant_id="$jwt.other")) == [False, True]
    allowed = rules(OWN).rule("trades", by_token(tenant="$$x"))
    assert sees(allowed, row(tenant_id="$$x"), row(tenant_id="$x")) == [True, False]


@pytest.mark.parametrize(
    ("rule", "field", "words"),
    [
        ({"tenant": {"_eq": "$jwt.tenant"}}, "auth.rules.trades.tenant", "no column"),
        ({"hidden": {"_eq": "x"}}, "auth.rules.trades.hidden", "no column"),
        ({"quantity": {"_eq": "many"}}, "auth.rules.trades.quantity._eq", "a whole number"),
        ({"quantity": {"_like": "x"}}, "auth.rules.trades.quantity._like", "has no _like"),
        ({"extra": {"_eq": "$jwt.x"}}, "auth.rules.trades.extra._eq", "has no _eq"),
        ({"trade_id": {"_like": "$jwt.x"}}, "auth.rules.trades.trade_id._like", "cannot be used"),
        ({"trade_id": {"_regex": "$jwt.x"}}, "auth.rules.trades.trade_id._regex", "cannot be used"),
        ({"price": {"_is_null": "$jwt.x"}}, "auth.rules.trades.price._is_null", "cannot be used"),
        ({"trade_id": {"_eq": "$tenant"}}, "auth.rules.trades.trade_id._eq", "is no claim"),
        ({"trade_id": {"_eq": "$jwt."}}, "auth.rules.trades.trade_id._eq", "is no claim"),
        ({"trade_id": {"_in": ["$JWT.x"]}}, "auth.rules.trades.trade_id._in", "is no claim"),
        ({"_or": [{"x": {"_eq": 1}}]}, "auth.rules.trades._or[0].x", "no column"),
    ],
)
def test_a_rule_that_does_not_fit_its_view_is_refused_at_the_start(
    rule: Any, field: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        rules(rule)
    assert caught.value.field == field
    assert words in caught.value.message


def test_a_key_for_some_tenants_sees_their_rows_only() -> None:
    found = rules()
    assert sees(found.rule("trades", by_key("acme")), ACME, OTHER, row()) == [True, False, False]
    assert sees(found.rule("trades", by_key("acme", "other")), ACME, OTHER) == [True, True]
    none = Session("nobody", {}, frozenset(["read"]), frozenset(), None)
    assert sees(found.rule("trades", none), ACME, OTHER, row()) == [False] * 3


def test_a_view_that_does_not_say_whose_its_rows_are_needs_a_key_for_all() -> None:
    found = rules(places={})
    for session in (by_key("acme"), by_token(frozenset(["acme"]))):
        with pytest.raises(AccessDenied):
            found.rule("places", session)
    assert found.rule("places", by_key()) == parse_filter(PLACES, {})
    assert found.rule("places", by_token()) == parse_filter(PLACES, {})


def test_tenants_of_a_token_narrow_its_rule() -> None:
    found = rules({"quantity": {"_gt": 5}})
    allowed = found.rule("trades", by_token(frozenset(["acme"])))
    assert sees(
        allowed,
        row(tenant_id="acme", quantity=6),
        row(tenant_id="acme", quantity=5),
        row(tenant_id="other", quantity=6),
    ) == [True, False, False]


def test_a_rule_for_tokens_does_not_bind_api_keys() -> None:
    assert sees(rules(OWN).rule("trades", by_key()), ACME, OTHER) == [True, True]


def test_equal_sessions_share_a_filter_and_others_do_not() -> None:
    found = rules(OWN)
    first = found.rule("trades", by_token(tenant="acme", iat=1))
    assert found.rule("trades", by_token(tenant="acme", iat=2)) is first
    assert found.rule("trades", by_token(tenant="other")).key != first.key
    narrowed = found.rule("trades", by_token(frozenset(["other"]), tenant="acme"))
    assert sees(narrowed, ACME, OTHER) == [False, False]
    assert sees(found.rule("trades", by_key("acme")), ACME, OTHER) == [True, False]


def test_what_a_trigger_keeps_of_its_creator_gives_the_same_rule() -> None:
    found = rules({"_and": [OWN, {"price": {"_lt": "$jwt.limit"}}]})
    session = by_token(frozenset(["acme"]), tenant="acme", limit=1.5)
    kept = session_from_json(session_to_json(session))
    assert found.rule("trades", kept).key == found.rule("trades", session).key


def test_a_refusal_shows_neither_the_rule_nor_the_claim() -> None:
    found = rules({"quantity": {"_eq": "$jwt.level"}, "trade_id": {"_neq": "internal"}})
    with pytest.raises(AccessDenied) as caught:
        found.rule("trades", by_token(level="private"))
    shown = str(caught.value.as_dict())
    assert "private" not in shown
    assert "internal" not in shown


# Few values, so that they meet often.
TEXTS = ["acme", "other", "", "$jwt.tenant", "%"]
OPERANDS: dict[str, list[Any]] = {
    "tenant_id": TEXTS,
    "trade_id": TEXTS,
    "quantity": [0, 1, 5],
    "account": [0, "1"],
    "price": ["1.5", 2],
    "open": [True, False],
    "side": ["buy", "sell"],
}


def comparison(column: str) -> st.SearchStrategy[dict[str, Any]]:
    values = st.sampled_from(OPERANDS[column])
    plain = st.sampled_from(["_eq", "_neq", "_gt", "_lt", "_gte", "_lte"])
    one_of = st.dictionaries(st.sampled_from(["_in", "_nin"]), st.lists(values, max_size=3))
    patterns = st.sampled_from(["_like", "_nlike", "_ilike", "_nilike"])
    choices = [
        st.dictionaries(plain, values, min_size=1, max_size=2),
        one_of,
        st.fixed_dictionaries({"_is_null": st.booleans()}),
    ]
    if column in ("tenant_id", "trade_id", "side"):
        choices.append(st.dictionaries(patterns, st.sampled_from(["%", "a%", "_ther", ""])))
    return st.one_of(choices)


columns = st.sampled_from(sorted(OPERANDS))
leaves = columns.flatmap(
    lambda column: st.fixed_dictionaries({column: comparison(column)})
) | st.just({})
wheres = st.recursive(
    leaves,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "_and": st.lists(inner, max_size=3),
            "_or": st.lists(inner, max_size=3),
            "_not": inner,
            "tenant_id": comparison("tenant_id"),
        },
    ),
    max_leaves=6,
)
ROWS = [
    row(tenant_id=tenant, trade_id="a", quantity=quantity, account=1, price=price, side=side)
    for tenant in (None, *TEXTS)
    for quantity in (None, 1, 5)
    for price in (None, Decimal("1.5"))
    for side in (None, "buy")
]


def check_that_no_client_widens_its_rule(join: Any) -> int:
    """The number of rows that were let through, so that it is known not to be none."""
    through = itertools.count()

    @settings(
        max_examples=120, deadline=None, database=None, derandomize=True, phases=[Phase.generate]
    )
    @given(wheres, wheres, st.sampled_from(TEXTS), st.sets(st.sampled_from(TEXTS)))
    def is_narrower(own: Any, client: Any, tenant: str, tenants: set[str]) -> None:
        found = rules({"_and": [OWN, _escaped(own)]})
        rule = found.rule("trades", by_token(frozenset(tenants), tenant=tenant))
        lets_through = compile_predicate(TRADES, join(rule, parse_filter(TRADES, client)))
        allows = compile_predicate(TRADES, rule)
        is_own = compile_predicate(TRADES, parse_filter(TRADES, own))
        for candidate in filter(lets_through, ROWS):
            next(through)
            assert allows(candidate)
            assert is_own(candidate)
            # What the rule means, said without any filter.
            assert candidate[VISIBLE.index("tenant_id")] == tenant
            assert tenant in tenants

    is_narrower()
    return next(through)


def _escaped(where: Any) -> Any:
    """The same filter as a rule, in which a text with a dollar stands for itself."""
    if isinstance(where, dict):
        return {name: _escaped(inner) for name, inner in where.items()}
    if isinstance(where, list):
        return [_escaped(inner) for inner in where]
    return f"${where}" if isinstance(where, str) and where.startswith("$") else where


def test_whatever_a_client_asks_for_its_rule_holds() -> None:
    assert check_that_no_client_widens_its_rule(both) > 30


def test_the_check_catches_a_filter_that_widens() -> None:
    def either(rule: Filter, client: Filter) -> Filter:
        return client

    with pytest.raises((AssertionError, ExceptionGroup)):
        check_that_no_client_widens_its_rule(either)
