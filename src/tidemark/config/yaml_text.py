"""YAML as text into plain values, with the place of each, and nothing that surprises.

Scalars follow YAML 1.2: `true` and `false` are the truth values, so `no` and `on` stay text, and
`12:30` is no number. A key that stands twice, a tag, a second document and a text that grows out
of bounds by its aliases are refused. Messages never quote the text: it may hold a secret.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from tidemark.config.problems import Location, Problem, describe_found, render_path

MAX_BYTES: Final = 1_048_576
MAX_VALUES: Final = 100_000
MAX_DEPTH: Final = 32

_MERGE_KEY: Final = "<<"
_TAG_HINT: Final = "Put text that begins with `!` in quotes."
_PLAIN: Final = "plain"
_QUOTED: Final = "quoted"
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_NULL = re.compile(r"~|null|Null|NULL|")
# Longer runs of digits stay text: nothing that can be set is that large.
_INT = re.compile(r"[-+]?[0-9]{1,30}", re.ASCII)
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]{1,30}|[0-9]{1,30}(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,3})?", re.ASCII
)


class Unreadable(Exception):
    """The text is no YAML that can be used; carries the problems found before giving up."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems[0].message)
        self.problems = problems


class Document:
    """The value of a text, and the line and column of every place in it."""

    def __init__(self, value: Any, places: dict[Location, str]) -> None:
        self.value = value
        self._places = places

    def where(self, location: Location) -> str:
        """The line and column of a location, or of the nearest thing around it."""
        for length in range(len(location), 0, -1):
            place = self._places.get(location[:length])
            if place is not None:
                return place
        return ""


UNUSABLE: Final = "expected text, found a NUL or half of a surrogate pair in it"


def is_unusable(text: str) -> bool:
    """Whether the text holds characters that no file, path or database takes."""
    return "\0" in text or any("\ud800" <= character <= "\udfff" for character in text)


def parse(text: str) -> Document:
    """The one document in the text; `Unreadable` if there is none that can be used."""
    try:
        node = _Loader(text).get_single_node()
    except yaml.YAMLError as error:
        raise Unreadable([_syntax_problem(error, text)]) from None
    except (ValueError, OverflowError):
        # The scanner does not check the range of an escape such as `\UFFFFFFFF`.
        raise Unreadable([Problem("", "found an escape that is no character")]) from None
    builder = _Builder()
    value = None if node is None else builder.build(node, ())
    if builder.problems:
        raise Unreadable(builder.problems)
    return Document(value, builder.places)


class _Loader(yaml.SafeLoader):
    """Composes nodes whose tag says only how they were written; explicit tags stay as they are."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        return _PLAIN if kind is yaml.ScalarNode and implicit[0] else _QUOTED

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            # Composing recurses, so the bound must hold before the nodes are there.
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            raise Unreadable([_too_deep(event.start_mark)])
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Builder:
    """Turns nodes into values and remembers where they stand."""

    def __init__(self) -> None:
        self.places: dict[Location, str] = {}
        self.problems: list[Problem] = []
        self._value_count = 0

    def build(self, node: Any, location: Location) -> Any:
        self.places.setdefault(location, _place(node.start_mark))
        self._value_count += 1
        if self._value_count > MAX_VALUES:
            message = f"expected at most {MAX_VALUES} values, found more"
            raise Unreadable([Problem("", message, "An alias repeats all that its anchor holds.")])
        if len(location) > MAX_DEPTH:
            raise Unreadable([_too_deep(node.start_mark)])
        if node.tag not in (_PLAIN, _QUOTED):
            self._report(location, node, "expected a value, found a YAML tag", _TAG_HINT)
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*location, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, location)

    def _mapping(self, node: Any, location: Location) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        merged: list[Any] = []
        for key_node, value_node in node.value:
            key = self._key(key_node, location)
            if key is None:
                continue
            if key == _MERGE_KEY and key_node.tag == _PLAIN:
                merged.append(value_node)
                continue
            here = (*location, key)
            if key in mapping:
                message = f"expected each key once, found it again after {self.places[here]}"
                self._report(here, key_node, message, "Remove one of the two.")
                continue
            self.places[here] = _place(key_node.start_mark)
            mapping[key] = self.build(value_node, here)
        for value_node in merged:
            self._merge(value_node, mapping, location)
        return mapping

    def _merge(self, node: Any, mapping: dict[str, Any], location: Location) -> None:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in sources:
            value = self.build(source, (*location, _MERGE_KEY))
            if isinstance(value, dict):
                for key, inner in value.items():
                    mapping.setdefault(key, inner)
            else:
                self._report(location, source, "expected a mapping behind `<<`")

    def _key(self, node: Any, location: Location) -> str | None:
        key = self.build(node, (*location, ""))
        if isinstance(key, str):
            return key
        message = f"expected a key that is text, found {describe_found(key, secret=True)}"
        self._report(location, node, message, "Put a key that is to be text in quotes.")
        return None

    def _scalar(self, node: Any, location: Location) -> str | int | float | bool | None:
        text: str = node.value
        if node.tag == _PLAIN:
            if _NULL.fullmatch(text):
                return None
            if _BOOL.fullmatch(text):
                return text.lower() == "true"
            if _INT.fullmatch(text):
                return int(text)
            if _FLOAT.fullmatch(text):
                return float(text)
        if is_unusable(text):
            # JSON escapes what lies beyond 16 bits as two halves, and JSON is to be YAML.
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        if is_unusable(text):
            self._report(location, node, UNUSABLE)
        return text

    def _report(self, location: Location, node: Any, message: str, hint: str = "") -> None:
        path = render_path(tuple(part for part in location if part != ""))
        self.problems.append(Problem(path, message, hint, _place(node.start_mark)))


# What the parser says, and what it means to somebody who writes a configuration.
_SYNTAX: Final = (
    (r"'\t' that cannot start", "found a tab", "Indent with spaces."),
    (
        "cannot start any token",
        "found a character that cannot begin a value",
        "Put text that begins with one of @ ` % in quotes.",
    ),
    (
        "mapping values are not allowed",
        "found a second `:` where a value was expected",
        "Check the indentation, and put text that holds `: ` in quotes.",
    ),
    (
        "could not find expected ':'",
        "expected `key: value`, found a line without a colon",
        "Check the indentation and the quotes of the lines above.",
    ),
    ("end of stream", "found the end of the file inside quotes", "Close the quotes."),
    (
        "expected <block end>",
        "found something that does not fit what stands around it",
        "Check the indentation and the quotes.",
    ),
    ("expected ',' or", "found a `[` or `{` that is not closed", "Close it with `]` or `}`."),
    (
        "expected the node content",
        "expected a value, found something else",
        "Check that each `[` and `{` is closed.",
    ),
    ("single document", "expected one document, found a second after `---`", "Remove one."),
    (
        "undefined alias",
        "found an alias without an anchor of that name",
        "Put text that begins with `*` in quotes.",
    ),
    ("duplicate anchor", "found two anchors of one name", "Rename one of the two."),
    ("tag handle", "expected a value, found a YAML tag", _TAG_HINT),
)


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        where = f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"
        return Problem("", "found a control character", "Remove it.", where)
    assert isinstance(error, yaml.MarkedYAMLError)
    said = f"{error.context} {error.problem}"
    where = _place(error.problem_mark or error.context_mark)
    for fragment, message, hint in _SYNTAX:
        if fragment in said:
            return Problem("", message, hint, where)
    return Problem("", "found what is no YAML", "Check the indentation and the quotes.", where)


def _too_deep(mark: Any) -> Problem:
    message = f"expected at most {MAX_DEPTH} levels, found more"
    return Problem("", message, "", _place(mark))


def _place(mark: Any) -> str:
    return "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"
