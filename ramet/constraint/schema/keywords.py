"""Which keywords there are and what their values look like: what is unknown, misspelt or not offered is refused here, with its place."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

from ramet.constraint.limits import Source
from ramet.constraint.schema.formats import FORMATS, INTEGER_BITS, WITHOUT_EFFECT
from ramet.constraint.schema.read import Value, show

Schema: TypeAlias = "dict[str, Any] | bool"

TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
MAX_COUNT: Final = 10**9

_FORMATS: Final = {*FORMATS, *WITHOUT_EFFECT, *INTEGER_BITS}
_DIALECTS: Final = ("draft/2020-12/schema", "draft/2019-09/schema", "draft-07/schema", "draft-06/schema")
ANNOTATIONS: Final = frozenset(
    ("title", "description", "default", "example", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema", "$id")
    + ("$anchor", "$dynamicAnchor", "contentEncoding", "contentMediaType", "contentSchema", "discriminator", "externalDocs", "xml")
)
_REFUSED: Final[Mapping[str, str]] = {
    "$dynamicRef": "write a $ref",
    "$recursiveRef": "write a $ref",
    "$recursiveAnchor": "write a $ref",
    "$vocabulary": "it belongs into a meta-schema",
    "additionalItems": "since draft 2020-12 `items` beside `prefixItems` says what follows",
    "dependencies": "write dependentRequired or dependentSchemas",
    "divisibleBy": "write multipleOf",
    "nullable": 'write {"type": ["string", "null"]} or anyOf with {"type": "null"}',
    "unevaluatedItems": "write items",
    "unevaluatedProperties": "write additionalProperties and list the properties",
}


def check_schema(source: Source, root: Value) -> dict[str, Schema]:
    """Every schema inside, by its JSON pointer ("#" is the whole). Raises InvalidConstraint naming the pointer and the keyword."""
    schemas: dict[str, Schema] = {}
    todo: list[tuple[str, Value]] = [("#", root)]
    while todo:
        path, schema = todo.pop()
        if not isinstance(schema, bool | dict):
            raise source.error(f"{path}: a schema is an object, true or false, not {show(schema)}")
        schemas[path] = schema
        if isinstance(schema, dict):
            for keyword, value in schema.items():
                todo += _check_keyword(source, path, keyword, value)
            if path != "#" and "$id" in schema and _refers(schema):
                raise source.error(
                    f"{path}/$id: a resource inside the schema whose parts refer is not offered: leave out $id and use #/$defs/..."
                )
    return schemas


def escape(name: str) -> str:
    """A name as one step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _check_keyword(source: Source, path: str, keyword: str, value: Value) -> Iterator[tuple[str, Value]]:
    here = f"{path}/{escape(keyword)}"
    if keyword in ANNOTATIONS or keyword.startswith("x-"):
        if keyword == "$schema" and not (isinstance(value, str) and value.rstrip("#").endswith(_DIALECTS)):
            raise source.error(f"{here}: {show(value)} is not offered: use draft 2020-12")
        return
    if keyword in _REFUSED:
        raise source.error(f"{here}: the keyword {keyword} is not offered: {_REFUSED[keyword]}")
    row = _KEYWORDS.get(keyword)
    if row is None:
        near = difflib.get_close_matches(keyword, [*_KEYWORDS, *ANNOTATIONS], n=1)
        hint = f"did you mean {near[0]!r}?" if near else "leave it out, or begin its name with x- if it is a note"
        raise source.error(f"{here}: unknown keyword {keyword!r}: {hint}")
    is_right, wanted, inner = row
    if not is_right(value):
        way_out = _OLD_FORMS.get((keyword, type(value)), "")
        raise source.error(f"{here}: {keyword} is {wanted}, not {show(value)}" + (f": {way_out}" if way_out else ""))
    if keyword == "format" and value not in _FORMATS:
        raise source.error(f"{here}: the format {value!r} is not offered: write a pattern, or one of {', '.join(sorted(_FORMATS))}")
    if inner == "schema":
        yield here, value
    elif inner == "list":
        yield from ((f"{here}/{number}", item) for number, item in enumerate(value))
    elif inner == "map":
        yield from ((f"{here}/{escape(name)}", item) for name, item in value.items())


def _refers(schema: Value) -> bool:
    todo = [schema]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            if "$ref" in item or "$anchor" in item:
                return True
            todo += item.values()
        elif isinstance(item, list):
            todo += item
    return False


def _is_number(value: Value) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_count(value: Value) -> bool:
    return _is_number(value) and 0 <= value <= MAX_COUNT and value == int(value)


def _is_strings(value: Value) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_types(value: Value) -> bool:
    return value in TYPES if isinstance(value, str) else bool(value) and _is_strings(value) and all(item in TYPES for item in value)


def _is_strings_by_name(value: Value) -> bool:
    return isinstance(value, dict) and all(map(_is_strings, value.values()))


def _is(kind: type) -> Callable[[Value], bool]:
    return lambda value: isinstance(value, kind)


# Whether a value is right, what it should be, and which schemas it holds.
_Row: TypeAlias = tuple[Callable[[Value], bool], str, str]
_SCHEMA: Final[_Row] = (_is(object), "a schema", "schema")
_LIST: Final[_Row] = (lambda value: isinstance(value, list) and bool(value), "a list of schemas, at least one", "list")
_MAP: Final[_Row] = (_is(dict), "an object of schemas", "map")
_COUNT: Final[_Row] = (_is_count, f"a whole number from 0 to {MAX_COUNT}", "")
_NUMBER: Final[_Row] = (_is_number, "a number", "")
_TEXT: Final[_Row] = (_is(str), "a string", "")
_KEYWORDS: Final[Mapping[str, _Row]] = {
    **dict.fromkeys(("not", "if", "then", "else", "contains", "propertyNames", "additionalProperties"), _SCHEMA),
    "items": (lambda value: not isinstance(value, list), "a schema", "schema"),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _LIST),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"), _MAP),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"), _COUNT
    ),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0", ""),
    **dict.fromkeys(("pattern", "format", "$ref"), _TEXT),
    "type": (_is_types, "one of " + ", ".join(TYPES) + ", or a list of them", ""),
    "required": (_is_strings, "a list of names", ""),
    "dependentRequired": (_is_strings_by_name, "an object of lists of names", ""),
    "enum": (lambda value: isinstance(value, list) and bool(value), "a list of values, at least one", ""),
    "const": (_is(object), "a value", ""),
    "uniqueItems": (_is(bool), "true or false", ""),
}
_OLD_FORMS: Final[Mapping[tuple[str, type], str]] = {
    ("exclusiveMinimum", bool): "since draft 6 it is the bound itself, in place of minimum",
    ("exclusiveMaximum", bool): "since draft 6 it is the bound itself, in place of maximum",
    ("items", list): "since draft 2020-12 a list of schemas stands under prefixItems",
    ("required", bool): "since draft 4 the object lists the names of its required properties",
}
