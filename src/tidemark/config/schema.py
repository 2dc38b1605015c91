"""The configuration as a JSON Schema, for completion and checks in an editor.

It says what each setting takes. What spans several settings only `tidemark check` knows.
"""

from __future__ import annotations

from typing import Any, Final

from tidemark.config.model import Config, FieldConfig
from tidemark.config.section import Section
from tidemark.config.shape import Setting, Shape, settings_of

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "mapping": ("object",),
    "list": ("array",),
    "text": ("string",),
    "choice": ("string",),
    "duration": ("string",),
    "number": ("integer",),
    "flag": ("boolean",),
    "filter": ("object",),
    "scalar": ("string", "number", "boolean"),
}


def json_schema() -> dict[str, Any]:
    """A schema of the whole file, in which each section is a definition."""
    definitions: dict[str, Any] = {}
    root = _section(Config, definitions)
    return {
        "$schema": DIALECT,
        "title": "Tidemark configuration",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _section(model: type[Section], definitions: dict[str, Any]) -> dict[str, Any]:
    settings = settings_of(model)
    required = [key for key, setting in settings.items() if setting.required]
    schema: dict[str, Any] = {
        "description": model.__doc__,
        # A section may be there with nothing in it, unless something in it must be set.
        "type": "object" if required else ["object", "null"],
        "additionalProperties": False,
        "properties": {key: _property(setting, definitions) for key, setting in settings.items()},
    }
    if required:
        schema["required"] = required
    return schema


def _property(setting: Setting, definitions: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    if setting.info.description is not None:
        schema["description"] = setting.info.description
    schema |= _value(setting.shape, definitions)
    if setting.shape.model is None and setting.default is not None:
        schema["default"] = setting.default
    return schema


def _value(shape: Shape, definitions: dict[str, Any]) -> dict[str, Any]:
    if shape.model is not None:
        reference = _reference(shape.model, definitions)
        return {"anyOf": [reference, {"type": "null"}]} if shape.nullable else reference
    empty = shape.nullable or (shape.kind in ("mapping", "list") and not shape.limits)
    kinds = (*_TYPES[shape.kind], "null") if empty else _TYPES[shape.kind]
    schema: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else list(kinds), **shape.limits}
    if shape.choices:
        schema["enum"] = list(shape.choices)
    if shape.kind == "mapping" and shape.item is not None:
        schema["propertyNames"] = {"pattern": shape.names}
        schema["additionalProperties"] = _value(shape.item, definitions)
    elif shape.item is not None:
        schema["items"] = _value(shape.item, definitions)
    return schema


def _reference(model: type[Section], definitions: dict[str, Any]) -> dict[str, Any]:
    name = model.__name__.removesuffix("Config")
    if name not in definitions:
        definitions[name] = {}
        schema = _section(model, definitions)
        if model is FieldConfig:
            shorthand = {"type": "string", "enum": schema["properties"]["type"]["enum"]}
            schema = {"description": schema.pop("description"), "anyOf": [shorthand, schema]}
        definitions[name] = schema
    return {"$ref": f"#/$defs/{name}"}
