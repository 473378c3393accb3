"""Which JSON Schemas llguidance does exactly: everything else is refused here, by name.

Found by experiment with version 1.9.1, against the library jsonschema. llguidance passes over keywords that it does not know, over names of
formats in places, and over `$schema`; it reads large numbers as floats; it counts a key that comes twice twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from ramet.constraint.grammar.deep import RULES_PER_SCHEMA, check_depth
from ramet.constraint.grammar.ends import Schema, check_ends, resolved
from ramet.constraint.grammar.pattern import format_pattern, normal_patterns
from ramet.constraint.limits import Source
from ramet.constraint.schema.formats import FORMATS

_DIALECTS: Final = ("draft/2020-12/schema", "draft/2019-09/schema", "draft-07/schema", "draft-06/schema")
_ANNOTATIONS: Final = frozenset(
    ("title", "description", "default", "example", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$id", "$schema")
    + ("$anchor", "$dynamicAnchor", "contentEncoding", "contentMediaType", "contentSchema", "discriminator", "externalDocs", "xml")
)
_MAX_EXACT: Final = 2**53  # from here on llguidance rounds numbers
# Of optional properties of one object, all without a required one, before the first required one, and behind: llguidance follows 4, 3 or
# 2 items for each, and 2,000 altogether are the limit (`grammar.matcher`), which a text would meet at its first brace.
_MAX_OPTIONAL, _MAX_OPTIONAL_BEFORE, _MAX_OPTIONAL_BEHIND = 490, 650, 980
_SPELLED_CONTROLS: Final = frozenset("\b\f\n\r\t")
_TYPES: Final = frozenset(("null", "boolean", "object", "array", "number", "string", "integer"))


def exact_schema(schema: Schema, source: Source) -> Schema:
    """The schema as llguidance shall read it: without annotations, with patterns in its own form.

    Raises InvalidConstraint naming the keyword that is not done exactly, and for a schema that is none. Changes nothing of its argument.
    """
    return _Reader(source).read(schema)


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._places: set[str] = set()  # of schemas inside, as pointers
        self._refs: list[str] = []

    def read(self, schema: Schema) -> Schema:
        exact = self._schema(schema, "#", 0)
        for ref in self._refs:
            if _normal_pointer(ref) not in self._places:
                raise self._error(f"$ref {ref!r} leads to no schema in this one")
        check_ends(exact, self._refs, self._source)
        parts = [exact, *(resolved(exact, ref) for ref in sorted(set(self._refs)))]
        check_depth(RULES_PER_SCHEMA * sum(map(_depth, parts)), self._source)
        return exact

    def _schema(self, schema: Any, place: str, depth: int) -> Schema:
        self._places.add(place)
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise self._error(f"at {place}: a schema is an object, true or false, not {_shown(schema)}")
        if depth > self._source.limits.max_nesting:
            raise self._error(f"schemas nest deeper than the limit of {self._source.limits.max_nesting}")
        exact: dict[str, Any] = {}
        for keyword, value in schema.items():
            if keyword in _ANNOTATIONS:
                self._check_annotation(keyword, value, place)
                continue
            read = _KEYWORDS.get(keyword)
            if read is None:
                raise self._error(f"at {place}: the keyword {keyword} is not offered in a schema that recurses or leaves objects open")
            exact[keyword] = read(self, keyword, value, f"{place}/{_escaped(keyword)}", depth)
        self._check_together(exact, place)
        exact.pop("minProperties", None)  # no more than the required ones
        exact.pop("uniqueItems", None)  # false
        patterns = [*exact.pop("pattern", ()), *([exact.pop("format")] if "format" in exact else ())]
        if patterns:
            exact["pattern"] = patterns[0]
            exact["allOf"] = [*exact.get("allOf", ()), *({"pattern": pattern} for pattern in patterns[1:])]
        if not exact.get("allOf", True):
            del exact["allOf"]
        return exact

    def _check_annotation(self, keyword: str, value: Any, place: str) -> None:
        if keyword == "$schema" and not (isinstance(value, str) and value.rstrip("#").endswith(_DIALECTS)):
            raise self._error(f"$schema {_shown(value)} is not offered: use draft 2020-12")

    def _check_together(self, schema: dict[str, Any], place: str) -> None:
        num_required = len(set(schema.get("required", ())))
        if schema.get("minProperties", 0) > num_required:
            raise self._error(
                f"at {place}: minProperties beyond the number of required properties is not offered: a key may come twice and count once"
            )
        self._check_optional(schema, place)

    def _check_optional(self, schema: dict[str, Any], place: str) -> None:
        required = set(schema.get("required", ()))
        runs = [0]
        for name in schema.get("properties", ()):
            if name in required:
                runs.append(0)
            else:
                runs[-1] += 1
        for number, num_optional in enumerate(runs):
            limit = _MAX_OPTIONAL if not required else _MAX_OPTIONAL_BEHIND if number else _MAX_OPTIONAL_BEFORE
            if num_optional > limit:
                raise self._error(
                    f"at {place}/properties: {num_optional} optional properties in a row are more than the limit of {limit} "
                    "in a schema that recurses or leaves objects open: make some of them required"
                )

    def schemas_by_name(self, keyword: str, value: Any, place: str, depth: int) -> Any:
        if not isinstance(value, dict):
            raise self._wrong(keyword, value, place, "an object of schemas")
        for name in value:
            self._check_text(name, place)
        return {name: self._schema(inner, f"{place}/{_escaped(name)}", depth + 1) for name, inner in value.items()}

    def schemas_by_pattern(self, keyword: str, value: Any, place: str, depth: int) -> Any:
        if not isinstance(value, dict):
            raise self._wrong(keyword, value, place, "an object of schemas")
        exact: dict[str, Schema] = {}
        for name, inner in value.items():
            pattern, *others = normal_patterns(name, f"{place}/{_escaped(name)}", self._source)
            if others:
                raise self._error(
                    f"at {place}: look-ahead in the pattern {name!r} is not offered in a schema that recurses or leaves objects open"
                )
            if pattern in exact:
                raise self._error(f"at {place}: the pattern {name!r} says the same as another one")
            exact[pattern] = self._schema(inner, f"{place}/{_escaped(name)}", depth + 1)
            self._places.discard(f"{place}/{_escaped(name)}")  # it has another name now, so that no $ref would find it
        return exact

    def schema_list(self, keyword: str, value: Any, place: str, depth: int) -> Any:
        if not isinstance(value, list) or not value:
            raise self._wrong(keyword, value, place, "a list of schemas that is not empty")
        return [self._schema(inner, f"{place}/{number}", depth + 1) for number, inner in enumerate(value)]

    def one_schema(self, keyword: str, value: Any, place: str, depth: int) -> Any:
        if isinstance(value, list):
            raise self._error(f"at {place}: a list of {keyword} is the form of older drafts: use prefixItems")
        return self._schema(value, place, depth + 1)

    def ref(self, keyword: str, value: Any, place: str, depth: int) -> Any:
        if not isinstance(value, str) or not (value == "#" or value.startswith("#/")):
            raise self._error(f"at {place}: $ref {_shown(value)} is not offered: refer by #/$defs/...")
        self._refs.append(value)
        return value

    def type_names(self, keyword: str, value: Any, place: str, depth: int) -> Any:
        names = value if isinstance(value, list) else [value]
        if not names or not all(isinstance(name, str) and name in _TYPES for name in names):
            raise self._wrong(keyword, value, place, "one of " + ", ".join(sorted(_TYPES)) + ", or a list of them")
        return value

    def names(self, keyword: str, value: Any, place: str, depth: int) -> Any:
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise self._wrong(keyword, value, place, "a list of strings")
        for name in value:
            self._check_text(name, place)
        return value

    def literal(self, keyword: str, value: Any, place: str, depth: int) -> Any:
        if keyword == "enum" and (not isinstance(value, list) or not value):
            raise self._wrong(keyword, value, place, "a list that is not empty")
        self._check_value(value, place, 0)
        return value

    def count(self, keyword: str, value: Any, place: str, depth: int) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value < 0 or value % 1 or value >= _MAX_EXACT:
            raise self._wrong(keyword, value, place, "a whole number, not negative")
        return int(value)

    def bound(self, keyword: str, value: Any, place: str, depth: int) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(keyword, value, place, "a number")
        self._check_value(value, place, 0)
        return value

    def multiple(self, keyword: str, value: Any, place: str, depth: int) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self._wrong(keyword, value, place, "a number above zero")
        if value % 1 or value >= 2**16:
            raise self._error(f"at {place}: multipleOf is offered for whole numbers below {2**16} only")
        return int(value)

    def pattern(self, keyword: str, value: Any, place: str, depth: int) -> Any:
        if not isinstance(value, str):
            raise self._wrong(keyword, value, place, "a pattern")
        return normal_patterns(value, place, self._source)

    def format(self, keyword: str, value: Any, place: str, depth: int) -> Any:
        if value not in FORMATS:
            raise self._error(f"at {place}: the format {_shown(value)} is not known; known are " + ", ".join(FORMATS))
        return format_pattern(value, place, self._source)

    def never_unique(self, keyword: str, value: Any, place: str, depth: int) -> Any:
        if value is not False:
            raise self._error(f"at {place}: uniqueItems is not offered: what came before cannot be excluded")
        return value

    def _check_value(self, value: Any, place: str, depth: int) -> None:
        if depth > self._source.limits.max_nesting:
            raise self._error(f"values nest deeper than the limit of {self._source.limits.max_nesting}")
        if isinstance(value, str):
            self._check_text(value, place)
            if any((char < " " and char not in _SPELLED_CONTROLS) or char == "\x7f" for char in value):
                raise self._error(
                    f"at {place}: control characters but \\b \\f \\n \\r \\t are not offered in a value, such as {_shown(value)}"
                )
        elif isinstance(value, int | float) and not isinstance(value, bool):
            if abs(value) >= _MAX_EXACT or not math.isfinite(value):
                raise self._error(f"at {place}: {_shown(value)} is too large to be exact: the limit is 2**53")
        elif isinstance(value, dict):
            for name, inner in value.items():
                self._check_value(name, place, depth)
                self._check_value(inner, place, depth + 1)
        elif isinstance(value, list):
            for inner in value:
                self._check_value(inner, place, depth + 1)

    def _check_text(self, text: str, place: str) -> None:
        if any(0xD800 <= ord(char) <= 0xDFFF for char in text):
            raise self._error(f"at {place}: {_shown(text)} holds half of a surrogate pair, which is no character")

    def _wrong(self, keyword: str, value: Any, place: str, wanted: str) -> Exception:
        return self._error(f"at {place}: {keyword} must be {wanted}, not {_shown(value)}")

    def _error(self, why: str) -> Exception:
        return self._source.error(why)


_Read = Callable[[_Reader, str, Any, str, int], Any]
_KEYWORDS: Final[Mapping[str, _Read]] = {
    **dict.fromkeys(("properties", "$defs", "definitions"), _Reader.schemas_by_name),
    "patternProperties": _Reader.schemas_by_pattern,
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), _Reader.schema_list),
    **dict.fromkeys(("items", "additionalProperties"), _Reader.one_schema),
    "$ref": _Reader.ref,
    "type": _Reader.type_names,
    "required": _Reader.names,
    **dict.fromkeys(("enum", "const"), _Reader.literal),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _Reader.count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _Reader.bound),
    "multipleOf": _Reader.multiple,
    "pattern": _Reader.pattern,
    "format": _Reader.format,
    "uniqueItems": _Reader.never_unique,
}


def _depth(value: Any) -> int:
    """How deep the schemas and values of a schema nest, without following references."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict) + max(map(_depth, inner), default=0)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _normal_pointer(ref: str) -> str:
    return "#" + "".join("/" + part for part in unquote(ref[1:]).split("/")[1:])


def _shown(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."
