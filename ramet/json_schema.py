"""The text of a JSON Schema from what a program has at hand: a class, a type, a dict, or the text itself.

pydantic is used where it is installed and never asked for; without it dataclasses and the plain types of `typing` are converted here.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib.util
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Final

from ramet.errors import InvalidConstraint

_KIND: Final = "json_schema"
_PLAIN: Final[Mapping[Any, dict[str, Any] | bool]] = {
    Any: True,
    None: {"type": "null"},
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    list: {"type": "array"},
    dict: {"type": "object"},
}


def schema_text(source: object) -> str:
    """The JSON text of a schema.

    `source` is the text itself, a schema as a dict or a bool, a class with `model_json_schema` (pydantic), or a type: a dataclass, an Enum,
    a TypedDict, a Literal, a list, dict, Optional or Union of such. pydantic converts types where it is installed and can; elsewhere they
    are converted here: what has no default is required, and nothing else is allowed.
    Raises InvalidConstraint for anything else. The text itself is not looked at.
    """
    if isinstance(source, str):
        return source
    if isinstance(source, bool | dict):
        return _dumped(source, source)
    if isinstance(source, type) and callable(getattr(source, "model_json_schema", None)):
        return _dumped(source, source.model_json_schema())  # type: ignore[attr-defined]
    if not _is_annotation(source):
        raise _error(source, "a schema is a JSON text, a dict, a bool, a pydantic model, a dataclass or a type")
    if importlib.util.find_spec("pydantic") is not None:
        return _dumped(source, _by_pydantic(source))
    return _dumped(source, schema_of_type(source))


def schema_of_type(source: object) -> dict[str, Any] | bool:
    """The schema of a type, without pydantic. Raises InvalidConstraint for a type that is not known here."""
    converter = _Converter()
    schema = converter.schema(source)
    if not converter.definitions or isinstance(schema, bool):
        return schema
    return {**schema, "$defs": converter.definitions}


def _is_annotation(source: object) -> bool:
    return source is None or source is Any or isinstance(source, type) or typing.get_origin(source) is not None


def _by_pydantic(source: Any) -> dict[str, Any] | bool:
    import pydantic

    try:
        return pydantic.TypeAdapter(source).json_schema()
    except (pydantic.errors.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError, NameError) as error:
        try:
            return schema_of_type(source)  # such as a TypedDict of `typing` before Python 3.12
        except InvalidConstraint:
            raise _error(source, f"pydantic makes no schema of it: {error}") from error


def _dumped(source: object, schema: object) -> str:
    try:
        return json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _error(source, f"it is no JSON: {error}") from error


def _error(source: object, why: str) -> InvalidConstraint:
    return InvalidConstraint(_KIND, repr(source)[:200], why)


class _Converter:
    """Dataclasses go under `definitions` once, so that they may refer to themselves."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._owners: dict[str, type] = {}

    def schema(self, source: Any) -> dict[str, Any] | bool:
        """The schema of one annotation."""
        origin, arguments = typing.get_origin(source), typing.get_args(source)
        if origin in (typing.Annotated, typing.Required, typing.NotRequired):
            return self.schema(arguments[0])
        if origin is None and source in _PLAIN:
            plain = _PLAIN[source]
            return dict(plain) if isinstance(plain, dict) else plain
        if isinstance(source, enum.EnumMeta):
            return self._listed(source, [member.value for member in source])  # type: ignore[var-annotated]
        if isinstance(source, type) and (dataclasses.is_dataclass(source) or typing.is_typeddict(source)):
            return self._reference(source)
        if origin is typing.Literal:
            return self._listed(source, list(arguments))
        if origin in (typing.Union, types.UnionType):
            return {"anyOf": [self.schema(option) for option in arguments]}
        if origin is list:
            return {"type": "array", "items": self.schema(arguments[0])}
        if origin is dict and arguments[0] is str:
            return {"type": "object", "additionalProperties": self.schema(arguments[1])}
        if origin is tuple and arguments and arguments[-1] is not Ellipsis:
            items = [self.schema(item) for item in arguments]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        raise _error(source, "without pydantic only dataclasses, enums and plain types are converted: install pydantic or write the schema")

    def _listed(self, source: Any, values: list[Any]) -> dict[str, Any]:
        plain = [value.value if isinstance(value, enum.Enum) else value for value in values]
        if not plain or not all(value is None or isinstance(value, str | int | float) for value in plain):
            raise _error(source, "its values are no JSON")
        return {"enum": plain}

    def _reference(self, source: type) -> dict[str, Any]:
        name = source.__name__
        if self._owners.setdefault(name, source) is not source:
            raise _error(source, f"two classes are called {name}")
        if name not in self.definitions:
            self.definitions[name] = {}
            try:
                hints = typing.get_type_hints(source, include_extras=True)
            except NameError as error:
                raise _error(source, f"an annotation cannot be resolved: {error}") from error
            required = _required_names(source, hints)
            self.definitions[name] = {
                "type": "object",
                "properties": {field: self.schema(hints[field]) for field in required},
                "required": [field for field, is_required in required.items() if is_required],
                "additionalProperties": False,
            }
        return {"$ref": f"#/$defs/{name}"}


def _required_names(source: Any, hints: Mapping[str, Any]) -> dict[str, bool]:
    """The fields of a dataclass or TypedDict in their order, and whether each must be there."""
    if typing.is_typeddict(source):  # whose own list of required keys is wrong where annotations are strings
        marks = {typing.Required: True, typing.NotRequired: False}
        return {name: marks.get(typing.get_origin(hint), name in source.__required_keys__) for name, hint in hints.items()}
    missing = dataclasses.MISSING
    return {field.name: field.default is missing and field.default_factory is missing for field in dataclasses.fields(source) if field.init}
