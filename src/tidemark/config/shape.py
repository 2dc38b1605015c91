"""The models seen as data: which settings there are, what each takes, and where it stands."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from tidemark.config.durations import format_duration
from tidemark.config.faults import Expected, Names
from tidemark.config.model import Config
from tidemark.config.problems import Location
from tidemark.config.section import Section

Kind = Literal[
    "section", "mapping", "list", "text", "number", "flag", "choice", "duration", "scalar", "filter"
]


@dataclass(frozen=True, slots=True)
class Shape:
    """What may stand at one place.

    `expected` is the phrase that an error uses for it, `limits` are JSON Schema keywords, `names`
    is the pattern of a mapping's keys.
    """

    kind: Kind
    expected: str
    secret: bool = False
    nullable: bool = False
    model: type[Section] | None = None
    item: Shape | None = None
    names: str = ""
    choices: tuple[str, ...] = ()
    limits: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its key in the file, its attribute, its shape, and its default as written."""

    key: str
    attribute: str
    shape: Shape
    info: FieldInfo

    @property
    def required(self) -> bool:
        return self.info.is_required()

    @property
    def default(self) -> object:
        """The default as a file would say it; None if there is none, or nothing is the default."""
        if self.required:
            return None
        value = self.info.get_default(call_default_factory=True, validated_data={})
        if self.shape.kind == "duration" and value is not None:
            return format_duration(value)
        return str(value) if isinstance(value, Path) else value


@cache
def settings_of(model: type[Section]) -> dict[str, Setting]:
    """The settings of a section by their keys, in the order in which they are declared."""
    settings = {}
    for attribute, info in model.model_fields.items():
        alias = info.validation_alias
        key = alias if isinstance(alias, str) else attribute
        shape = _shape(info.annotation, tuple(info.metadata))
        settings[key] = Setting(key, attribute, shape, info)
    return settings


ROOT = Shape("section", "a mapping of settings", model=Config)


def shape_at(location: Location) -> Shape | None:
    """What may stand at a location, or None where nothing may."""
    shape: Shape | None = ROOT
    for part in location:
        if shape is None:
            return None
        if shape.model is not None:
            setting = settings_of(shape.model).get(str(part))
            shape = None if setting is None else setting.shape
        else:
            shape = shape.item
    return shape


def every_setting() -> Iterator[tuple[Location, Setting]]:
    """All settings that have a fixed place, with it: sections first, then what is in them."""
    yield from _settings_below((), Config)


def _settings_below(place: Location, model: type[Section]) -> Iterator[tuple[Location, Setting]]:
    for key, setting in settings_of(model).items():
        yield (*place, key), setting
        if setting.shape.model is not None:
            yield from _settings_below((*place, key), setting.shape.model)


def _shape(annotation: Any, metadata: tuple[Any, ...]) -> Shape:
    while get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        metadata = (*_flat(inner), *metadata)
    expected = next((item for item in metadata if isinstance(item, Expected)), None)
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        if type(None) in get_args(annotation):
            return _nullable(annotation, metadata)
        assert expected is not None
        return Shape("scalar", expected.phrase, secret=expected.secret)
    if expected is not None:
        return _marked(annotation, expected, metadata)
    if origin is Literal:
        choices = tuple(str(choice) for choice in get_args(annotation))
        return Shape("choice", f"one of {', '.join(choices)}", choices=choices)
    if origin is list:
        item = _shape(get_args(annotation)[0], ())
        least = _bound(metadata, "min_length")
        phrase = "a list with an entry or more" if least else "a list"
        return Shape("list", phrase, item=item, limits={"minItems": least} if least else {})
    if origin is dict:
        names = next(item.pattern for item in metadata if isinstance(item, Names))
        return Shape("mapping", "a mapping", item=_shape(get_args(annotation)[1], ()), names=names)
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return Shape("section", "a mapping of settings", model=annotation)
    return _plain(annotation, metadata)


def _nullable(annotation: Any, metadata: tuple[Any, ...]) -> Shape:
    (inner,) = (choice for choice in get_args(annotation) if choice is not type(None))
    return replace(_shape(inner, metadata), nullable=True)


def _marked(annotation: Any, expected: Expected, metadata: tuple[Any, ...]) -> Shape:
    if get_origin(annotation) is dict:
        return Shape("filter", expected.phrase)
    limits = _text_limits(metadata)
    if expected.pattern is not None:
        limits["pattern"] = expected.pattern
    if annotation is not int:
        return Shape("text", expected.phrase, secret=expected.secret, limits=limits)
    least = _bound(metadata, "ge")
    of_at_least = "" if least is None else f" of at least {format_duration(least)},"
    phrase = expected.phrase.replace(" such", f"{of_at_least} such", 1)
    return Shape("duration", phrase, limits=limits)


def _plain(annotation: Any, metadata: tuple[Any, ...]) -> Shape:
    if annotation is bool:
        return Shape("flag", "`true` or `false`")
    if annotation is int:
        low, high = _bound(metadata, "ge"), _bound(metadata, "le")
        limits = {"minimum": low, "maximum": high}
        return Shape("number", f"a whole number from {low} to {high}", limits=limits)
    text_limits = _text_limits(metadata)
    if not text_limits:
        return Shape("text", "text")
    phrase = "text of {minLength} to {maxLength} characters".format_map(text_limits)
    return Shape("text", phrase, limits=text_limits)


def _text_limits(metadata: tuple[Any, ...]) -> dict[str, object]:
    names = {"minLength": "min_length", "maxLength": "max_length"}
    bounds = {keyword: _bound(metadata, name) for keyword, name in names.items()}
    return {keyword: bound for keyword, bound in bounds.items() if bound is not None}


def _flat(metadata: list[Any]) -> Iterator[Any]:
    """The constraints, also those that a `Field` inside an annotation brings."""
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from item.metadata
        else:
            yield item


def _bound(metadata: tuple[Any, ...], name: str) -> int | None:
    return next((getattr(item, name) for item in metadata if hasattr(item, name)), None)
