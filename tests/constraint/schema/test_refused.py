"""What is refused, with its place and the way out; and that nothing hangs or brings the process down."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from ramet.constraint.compile import compile_constraint
from ramet.constraint.limits import Limits, Source
from ramet.constraint.schema.build import schema_tree
from ramet.constraint.schema.sites import NeedsGrammar
from ramet.constraint.vocabulary import Vocabulary
from ramet.errors import InvalidConstraint

STRING: dict[str, Any] = {"type": "string"}

TEXTS = [
    ("not json", "a schema is JSON"),
    ("", "a schema is JSON"),
    ('{"type": "string"', "a schema is JSON"),
    ("5", "#: a schema is an object"),
    ('"string"', "#: a schema is an object"),
    ("[]", "#: a schema is an object"),
    ("null", "#: a schema is an object"),
    ('{"type": "integer", "minimum": NaN}', "NaN is no JSON number"),
    ('{"type": "number", "minimum": 1e400}', "1e400 is beyond"),
    ('{"type": "number", "minimum": 1e-400}', "1e-400 is beyond"),
    ('{"type": "integer", "minimum": 1' + "0" * 400 + "}", "401 digits"),
    ('{"type": "string", "type": "integer"}', "the key 'type' comes twice"),
    ('{"const": "\\ud83d"}', "half of a surrogate pair"),
    ('{"properties": {"\\ude42": {}}}', "half of a surrogate pair"),
    ('{"items": ' * 1000 + "{}" + "}" * 1000, "nests deeper than 100"),
    ("[" * 100_000, "nests deeper than 100"),
]

SHAPES: list[tuple[Any, str]] = [
    ({"type": "foo"}, "#/type: type is one of null, boolean"),
    ({"type": "object", "properties": {"a": {"type": "foo"}}}, "#/properties/a/type: "),
    ({"type": []}, "#/type: "),
    ({"properties": 5}, "#/properties: properties is an object of schemas, not 5"),
    ({"properties": {"a/b~": 5}}, "#/properties/a~1b~0: a schema is an object, true or false, not 5"),
    ({"required": True}, "#/required: required is a list of names, not true: since draft 4"),
    ({"required": ["a", 1]}, "#/required: "),
    ({"minimum": "5"}, "#/minimum: minimum is a number"),
    (
        {"minimum": 5, "exclusiveMinimum": True},
        "#/exclusiveMinimum: exclusiveMinimum is a number, not true: since draft 6 it is the bound itself",
    ),
    ({"minLength": -1}, "#/minLength: minLength is a whole number from 0"),
    ({"minLength": 1.5}, "#/minLength: "),
    ({"maxItems": 10**12}, "#/maxItems: "),
    ({"multipleOf": 0}, "#/multipleOf: multipleOf is a number above 0"),
    ({"enum": []}, "#/enum: enum is a list of values, at least one"),
    ({"enum": "a"}, "#/enum: "),
    ({"anyOf": []}, "#/anyOf: anyOf is a list of schemas, at least one"),
    ({"allOf": {}}, "#/allOf: "),
    ({"items": [STRING]}, "#/items: items is a schema, not .*: since draft 2020-12 a list of schemas stands under prefixItems"),
    ({"additionalProperties": 5}, "#/additionalProperties: a schema is"),
    ({"pattern": 5}, "#/pattern: pattern is a string"),
    ({"uniqueItems": 1}, "#/uniqueItems: uniqueItems is true or false"),
    ({"$schema": "http://json-schema.org/draft-04/schema#"}, "#/\\$schema: .* use draft 2020-12"),
    ({"properteis": {}}, "#/properteis: unknown keyword 'properteis': did you mean 'properties'"),
    (
        {"type": "object", "properties": {"a": {"minlength": 5}}},
        "#/properties/a/minlength: unknown keyword 'minlength': did you mean 'minLength'",
    ),
    ({"strange": 5}, "#/strange: unknown keyword 'strange': leave it out"),
    ({"type": "string", "nullable": True}, "#/nullable: the keyword nullable is not offered"),
    ({"dependencies": {}}, "#/dependencies: .* write dependentRequired"),
    ({"additionalItems": False}, "#/additionalItems: "),
    ({"unevaluatedProperties": False}, "#/unevaluatedProperties: "),
    ({"unevaluatedItems": False}, "#/unevaluatedItems: "),
    ({"$dynamicRef": "#a"}, "#/\\$dynamicRef: "),
    ({"type": "string", "format": "idn-hostname"}, "#/format: the format 'idn-hostname' is not offered"),
    ({"type": "string", "format": "made-up"}, "#/format: the format 'made-up' is not offered"),
]

REFERENCES: list[tuple[Any, str]] = [
    ({"$ref": "/$defs/Color", "$defs": {"Color": STRING}}, "#/\\$ref: '/\\$defs/Color' leads to no schema .* write '#/\\$defs/Color'"),
    ({"$ref": "other.json"}, "'other.json' leads to no schema .* only references within the schema"),
    ({"$ref": "http://x/y#/a"}, "'http://x/y#/a' leads to no schema"),
    ({"$ref": "#/$defs/Missing", "$defs": {"Missin": STRING}}, "'#/\\$defs/Missing' leads to no schema .* did you mean '#/\\$defs/Missin'"),
    ({"$ref": "#/properties", "properties": {}}, "'#/properties' leads to no schema"),
    ({"$ref": "#nowhere"}, "'#nowhere' leads to no schema"),
    ({"$ref": ""}, "'' leads to no schema"),
    ({"$ref": "#"}, "refers to itself"),
    ({"allOf": [{"$ref": "#"}]}, "refers to itself"),
    ({"not": {"$ref": "#"}}, "refers to itself"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "refers to itself"),
    ({"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "refers to itself"),
    ({"$defs": {"a": {"$id": "x", "items": {"$ref": "#"}}}}, "#/\\$defs/a/\\$id: "),
    ({"$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}}, "names two schemas"),
]

EMPTY: list[tuple[Any, str]] = [
    (False, "no value"),
    ({"type": "integer", "minimum": 5, "maximum": 3}, "no whole number from 5 to 3"),
    ({"type": "integer", "minimum": 1.2, "maximum": 1.8}, "no whole number"),
    ({"type": "number", "exclusiveMinimum": 5, "maximum": 5}, "no number"),
    ({"type": "integer", "minimum": 1, "maximum": 6, "multipleOf": 7}, "no whole number from 1 to 6"),
    ({"type": "string", "enum": [1, 2]}, "#: no value of its enum"),
    ({"type": "integer", "const": "a"}, "no value of its const"),
    ({"allOf": [STRING, {"type": "integer"}]}, "no type is left"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength 3 is above maxLength 2"),
    ({"type": "string", "pattern": "^a$", "minLength": 2}, "no string"),
    ({"type": "string", "pattern": "^a", "allOf": [{"pattern": "^b"}]}, "no string"),
    ({"type": "array", "items": STRING, "minItems": 3, "maxItems": 2}, "minItems 3 is above maxItems 2"),
    ({"type": "array", "items": False, "minItems": 1}, "at most 0 items"),
    ({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 3}, "minItems is 3 and there are 2"),
    ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "the required property 'a' has no value"),
    ({"type": "object", "properties": {"b": STRING}, "required": ["a"], "additionalProperties": False}, "'a' has no value"),
    (
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 0}}, "required": ["a"]},
        "#/properties/a: no whole number",
    ),
    ({"type": "object", "properties": {"a": STRING}, "minProperties": 2, "additionalProperties": False}, "minProperties is 2"),
    ({"type": "object", "properties": {"a": STRING}, "required": ["a"], "maxProperties": 0}, "maxProperties 0"),
    ({"oneOf": [STRING, STRING]}, "no value"),
    ({"type": "string", "not": {}}, "no value"),
]

NOT_OFFERED: list[tuple[Any, str]] = [
    ({"type": "array", "items": STRING, "uniqueItems": True}, "#/uniqueItems: "),
    ({"type": "array", "items": STRING, "contains": {"minLength": 1}, "maxContains": 2}, "#/contains: "),
    ({"type": "array", "items": STRING, "contains": {"minLength": 1}, "maxItems": 3}, "#/contains: "),
    ({"type": "object", "additionalProperties": STRING, "minProperties": 2}, "#/minProperties: "),
    ({"type": "string", "not": {"format": "date"}}, "#/not/format: the opposite of format"),
    ({"type": "object", "properties": {"a": STRING}, "not": {"additionalProperties": STRING}}, "#/not/additionalProperties: "),
    ({"oneOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "time"}]}, "#/oneOf: that alternatives 0 and 1 exclude"),
    ({"type": "string", "pattern": "a(?=b)"}, "#/pattern: in the pattern 'a\\(\\?=b\\)' .*look-ahead is not offered"),
    ({"type": "string", "pattern": "(a)\\1"}, "#/pattern: .*back-references are not offered"),
    ({"type": "string", "pattern": "\\bword\\b"}, "#/pattern: .*word boundaries are not offered"),
    ({"type": "string", "pattern": "(^a)*"}, "#/pattern: .*anchor inside a repetition"),
    ({"type": "string", "pattern": "^*"}, "#/pattern: .*an anchor cannot be repeated"),
    ({"type": "string", "pattern": "a{,3}"}, "#/pattern: .*write \\{0,n\\}"),
    ({"type": "string", "pattern": "(?s)a"}, "#/pattern: .*no group of an ECMA pattern"),
    ({"type": "string", "pattern": "[a"}, "#/pattern: .*the class is not closed"),
    ({"type": "string", "pattern": "[]"}, "#/pattern: .*matches nothing"),
    ({"type": "string", "pattern": "(a"}, "#/pattern: .*the group is not closed"),
    ({"type": "string", "pattern": "\\ud83d"}, "#/pattern: .*half of a surrogate pair"),
    ({"type": "string", "pattern": "\\p{Script=Greek}"}, "#/pattern: .*general category"),
    ({"type": "object", "patternProperties": {"(a": STRING}}, "#/patternProperties: .*the group is not closed"),
    ({"type": "integer", "multipleOf": 1999}, "#/multipleOf: it needs more than"),
    ({"type": "string", "pattern": "^([a-z]+-)*[a-z]+$", "maxLength": 100000}, "#/maxLength, #/pattern: it needs more than"),
]


def refusal(text: str, vocabulary: Vocabulary, limits: Limits | None = None) -> InvalidConstraint:
    start_s = time.monotonic()
    with pytest.raises(InvalidConstraint) as caught:
        compile_constraint("json_schema", text, vocabulary, limits=limits)
    assert time.monotonic() - start_s < 3
    assert caught.value.kind == "json_schema"
    return caught.value


@pytest.mark.parametrize(("text", "why"), TEXTS, ids=range(len(TEXTS)))
def test_texts_that_are_no_schema(text: str, why: str, bytes_vocabulary: Vocabulary) -> None:
    assert why in refusal(text, bytes_vocabulary).why


@pytest.mark.parametrize(("schema", "why"), SHAPES + REFERENCES + EMPTY + NOT_OFFERED)
def test_refused_with_the_place(schema: Any, why: str, bytes_vocabulary: Vocabulary) -> None:
    assert re.search(why, refusal(json.dumps(schema), bytes_vocabulary).why, re.DOTALL)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object"},
        {"type": "array"},
        {"type": "object", "additionalProperties": True},
        {"minimum": 5},
        {"type": "array", "items": {}},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "required": ["a"], "properties": {"b": STRING}},
        {"type": "array", "prefixItems": [STRING], "minItems": 2},
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        {"type": "object", "properties": {"a": STRING}, "minProperties": 2},
    ],
)
def test_open_and_recursive_schemas_are_told_apart(schema: Any) -> None:
    with pytest.raises(NeedsGrammar):
        schema_tree(Source("json_schema", json.dumps(schema)))


def test_hostile_schemas_are_quick(bytes_vocabulary: Vocabulary) -> None:
    def shared(number: int, schema: Callable[[dict[str, str]], Any]) -> dict[str, Any]:
        levels = {f"d{at}": schema({"$ref": f"#/$defs/d{at + 1}"}) for at in range(number)}
        return {"$ref": "#/$defs/d0", "$defs": {**levels, f"d{number}": {"type": "integer"}}}

    accepted = [
        shared(40, lambda ref: {"type": "object", "properties": {"l": ref, "r": ref}, "required": ["l", "r"]}),  # 2**40 written out
        {"type": "array", "prefixItems": [{"type": "integer"}] * 500},
        {"enum": [f"word{number * 7919 % 100003}" for number in range(2000)]},
        {"type": "object", "properties": {f"p{number}": STRING for number in range(300)}},
        {"type": "array", "items": {"type": "integer"}, "minItems": 100_000, "maxItems": 1_000_000},
        {"type": "string", "maxLength": 5_000_000},
    ]
    refused = [
        shared(200, lambda ref: ref),
        shared(200, lambda ref: {"type": "array", "items": ref}),
        shared(60, lambda ref: {"allOf": [ref, ref]}),
        {"type": "object", "allOf": [{"anyOf": [{"required": [f"p{at}"]}, {"properties": {f"p{at}": STRING}}]} for at in range(30)]},
        {"type": "string", "pattern": "(a|b|c)*.{0,500}x", "maxLength": 600},
        {"oneOf": [{"type": "string", "pattern": f"a{number}"} for number in range(20)]},
    ]
    for schema in accepted:
        start_s = time.monotonic()
        assert compile_constraint("json_schema", json.dumps(schema), bytes_vocabulary).matcher().mask() is not None
        assert time.monotonic() - start_s < 3
    for schema in refused:
        refusal(json.dumps(schema), bytes_vocabulary, Limits(max_seconds=0.3))


def test_a_nested_schema_of_the_largest_depth(bytes_vocabulary: Vocabulary) -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(49):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    matcher = compile_constraint("json_schema", json.dumps(schema), bytes_vocabulary).matcher()
    for byte in b'{"a": ' * 49 + b"7" + b"}" * 49:
        matcher.accept(byte)
    assert matcher.is_final


def test_what_the_vocabulary_cannot_spell_is_refused() -> None:
    with pytest.raises(InvalidConstraint, match="vocabulary can spell"):
        compile_constraint("json_schema", '{"const": "abc"}', Vocabulary([b"a", b"b", b'"'], eos_ids=()))
