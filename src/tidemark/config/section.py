"""What every group of settings is made of."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from tidemark.config.problems import redact
from tidemark.config.values import null_is_empty_list, null_is_empty_mapping

_Item = TypeVar("_Item")
ListOf = Annotated[list[_Item], BeforeValidator(null_is_empty_list)]
MappingOf = Annotated[dict[str, _Item], BeforeValidator(null_is_empty_mapping)]
Text = Annotated[str, Field(min_length=1, max_length=256)]


class Section(BaseModel):
    """A group of settings. One that is there with nothing in it has all its defaults."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        validate_by_alias=True,
        validate_by_name=True,
        hide_input_in_errors=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_empty(cls, value: Any) -> Any:
        return null_is_empty_mapping(value)

    def __repr_args__(self) -> Any:
        for name, value in super().__repr_args__():
            yield name, redact(value) if isinstance(value, str) else value
