"""Views of every type, rows for them, and filters over them.

Values are few and at the edges, so that rows and filters often meet.
"""

from __future__ import annotations

import string
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

from tidemark.pipeline.output.schema import Column, Value, ViewSchema

Row: TypeAlias = dict[str, Value]
Where: TypeAlias = dict[str, Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MICROSECOND: Final = 253402300799_999999

TEXTS: Final = (
    "", "a", "A", "b", "k", "K", "\u212a", "é", "É", "e\u0301", "ß", "İ", "ı", "aapl", "AAPL",
    "Aapl Inc.", "日本", "\uffff", "\U00010000", "😀", "a😀b", "a%b", "a_b", "a\\b", "line\nend",
    "end\n", "\t", "'quoted'", "?", "$1", "[x]", "{}", "a.b", "-", "^", "\u2028", "\x1f",
)  # fmt: skip
# Values of enums whose order is not that of their texts, and that SQL might stumble over.
ENUMS: Final = (("low", "medium", "high"), ("it's", "what?", "é😀", "it"), ("only",))
INTS: Final = (-(2**31), -7, -1, 0, 1, 5, 6, 2**31 - 1)
BIGINTS: Final = (-(2**63), -(2**53) - 1, -1, 0, 1, 10, 2**53, 2**53 + 1, 2**63 - 1)
DECIMALS: Final = tuple(
    Decimal(text)
    for text in (
        "0", "1", "-1", "1.5", "-1.5", "10.25", "0.000000001", "-0.000000001", "1.000000001",
        "-1.000000001", "9007199254740993", "99999999999999999999999999999.999999999",
        "-99999999999999999999999999999.999999999",
    )
)  # fmt: skip
# Between and beyond those that a store can hold.
MORE_DECIMALS: Final = (
    "1.0000000001", "-1.0000000001", "0.0000000005", "-0.0000000005", "1e399", "-1e399", "1e29",
    "-1e29", "-99999999999999999999999999999.9999999999", "1e-399", "2e0", "1.50", "-0", "0.0",
)  # fmt: skip
TIMES: Final = (
    -62135596800_000000, -1, 0, 1, 1704067200_000000, 1704067200_000001, 1704067199_999999,
    2**53 // 10, _LAST_MICROSECOND,
)  # fmt: skip
JSON: Final = ('{"a":1}', "[]", "1", '"x"', "false")
NUMBERS: Final = {"int": INTS, "bigint": BIGINTS, "decimal": DECIMALS}

_texts = st.one_of(
    st.sampled_from(TEXTS),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4),
)
_ALL: Final = (
    Column("name", "string"),
    Column("note", "string"),
    Column("qty", "int"),
    Column("big", "bigint"),
    Column("dec", "decimal"),
    Column("ok", "boolean"),
    Column("at", "timestamp"),
    Column("doc", "json"),
    Column("memory", "string", hidden=True),
)


@st.composite
def schemas(draw: st.DrawFn, name: str = "generated") -> ViewSchema:
    """Views whose key ends in `id`, a bigint that is different in each row."""
    columns = [Column("id", "bigint"), *_ALL, Column("lvl", "enum", draw(st.sampled_from(ENUMS)))]
    columns = draw(st.permutations(columns))
    first = draw(st.sampled_from([None, "name", "qty", "dec", "ok", "at", "lvl"]))
    key = ("id",) if first is None else (first, "id")
    return ViewSchema(name, tuple(columns), key, "first")


def values(column: Column) -> st.SearchStrategy[Value]:
    """What a column may hold, without null."""
    match column.type:
        case "string":
            return _texts
        case "boolean":
            return st.booleans()
        case "enum":
            return st.sampled_from(column.values)
        case "json":
            return st.sampled_from(JSON)
        case "timestamp":
            return st.sampled_from(TIMES)
        case _:
            return st.sampled_from(NUMBERS[column.type])


@st.composite
def rows(draw: st.DrawFn, schema: ViewSchema, max_size: int = 10) -> list[Row]:
    """Rows with all columns, hidden ones too; a third of the values is null."""
    count = draw(st.integers(0, max_size))
    ids = draw(st.permutations(BIGINTS + tuple(range(100, 100 + max_size))))
    made = []
    for number in range(count):
        row = {
            column.name: None if draw(st.integers(0, 2)) == 0 else draw(values(column))
            for column in schema.columns
        }
        made.append(row | {"id": ids[number]})
    return made


def filters(schema: ViewSchema, *, depth: int = 3) -> st.SearchStrategy[Where]:
    """A `where` over all visible columns, every operator and every spelling of a value."""
    conditions = st.one_of([_on_column(column) for column in schema.visible])

    def joined(inner: st.SearchStrategy[Where]) -> st.SearchStrategy[Where]:
        lists = st.lists(inner, max_size=3) | inner
        return st.one_of(
            st.builds(lambda parts: {"_and": parts}, lists),
            st.builds(lambda parts: {"_or": parts}, lists),
            st.builds(lambda part: {"_not": part}, inner),
            st.builds(lambda one, two: one | two, inner, inner),
            st.builds(lambda one, parts: one | {"_or": parts}, conditions, lists),
        )

    where: st.SearchStrategy[Where] = st.one_of(conditions, st.just({}))
    for _ in range(depth):
        where = where | joined(where)
    return where


def spelled(column: Column, value: Value) -> st.SearchStrategy[Any]:
    """The ways to write a value in JSON."""
    match column.type:
        case "bigint":
            return st.sampled_from([value, str(value)])
        case "decimal":
            assert isinstance(value, Decimal)
            zeros = f"{value:f}" + ("0" if "." in f"{value:f}" else ".00")
            ways: list[Any] = [value, str(value), zeros, f"{value:e}".replace("E", "e")]
            if value == value.to_integral_value():
                ways.append(int(value))
            if Decimal(str(float(value))) == value:
                ways.append(float(value))
            return st.sampled_from(ways)
        case "timestamp":
            assert isinstance(value, int)
            return st.sampled_from([0, 90, -420]).map(lambda minutes: _instant(value, minutes))
        case _:
            return st.just(value)


def like_patterns() -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(
            ["", "%", "_", "a%", "%A%", "%\\%%", "%b", "a\\_b", "%😀%", "_%_", "k", "K"]
        ),
        st.lists(
            st.sampled_from([*"aAbkKéÉ%_.\n😀[", "\\%", "\\_", "\\\\", "\\a"]), max_size=5
        ).map("".join),
    )


def regexes() -> st.SearchStrategy[str]:
    """In the part that every store understands, and never larger than may be."""
    fixed = st.sampled_from(["^(?:ab){2}$", "a{2,100}", "^.{1,100}$", "(?:a|b{2}){3}", "^a?$|b{0}"])
    punctuation = [f"\\{sign}" for sign in string.punctuation]
    characters = st.sampled_from([*"aAbkKé😀\n -_,/", *punctuation])
    members = st.lists(
        st.sampled_from(
            ["a", "b-k", "A-Z", "0-9", "é", "😀", "\\]", "\\[", "\\^", "\\-", "\\\\", "."]
        ),
        min_size=1,
        max_size=3,
    ).map("".join)
    classes = st.builds(
        lambda start, body: f"{start}{body}]", st.sampled_from(["[", "[^"]), members
    )
    atoms = characters | st.just(".") | classes
    repeats = st.sampled_from(["", "", "*", "+", "?", "{0}", "{2}", "{1,}", "{0,2}"])

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        branch = st.lists(inner, max_size=2).map("".join)
        group = st.lists(branch, min_size=1, max_size=2).map("|".join)
        return st.builds(
            lambda start, body, repeat: f"{start}{body}){repeat}",
            st.sampled_from(["(", "(?:"]),
            group,
            st.sampled_from(["", "*", "+", "?"]),
        )

    quantified = st.builds(lambda atom, repeat: atom + repeat, atoms, repeats)
    pieces = quantified | st.sampled_from(["^", "$"])
    pieces = pieces | larger(pieces | larger(pieces))
    branches = st.lists(pieces, max_size=3).map("".join)
    return fixed | st.lists(branches, min_size=1, max_size=2).map("|".join)


def _on_column(column: Column) -> st.SearchStrategy[Where]:
    operators = st.dictionaries(st.sampled_from(_operators(column)), st.none(), max_size=2)

    @st.composite
    def condition(draw: st.DrawFn) -> Where:
        return {column.name: {name: draw(_against(column, name)) for name in draw(operators)}}

    return condition()


def _operators(column: Column) -> list[str]:
    if column.type == "json":
        return ["_is_null"]
    plain = ["_eq", "_neq", "_gt", "_lt", "_gte", "_lte", "_in", "_nin", "_is_null"]
    if column.type not in ("string", "enum"):
        return plain
    return [*plain, "_like", "_nlike", "_ilike", "_nilike", "_regex"]


def _against(column: Column, operator: str) -> st.SearchStrategy[Any]:
    if operator == "_is_null":
        return st.booleans()
    if operator == "_regex":
        return regexes()
    if "like" in operator:
        return like_patterns()
    value = values(column).flatmap(lambda value: spelled(column, value))
    if column.type == "decimal":
        value = value | st.sampled_from(MORE_DECIMALS)
    if operator in ("_in", "_nin"):
        return st.lists(value, max_size=4) | value
    return value


def _instant(us: int, offset_minutes: int) -> str:
    moment = _EPOCH + timedelta(microseconds=us)
    # The first and the last year have no such offset.
    with suppress(OverflowError):
        moment = moment.astimezone(timezone(timedelta(minutes=offset_minutes)))
    return moment.isoformat()
