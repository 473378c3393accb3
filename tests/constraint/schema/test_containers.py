"""Objects, arrays and what combines schemas: (schema, accepted, refused)."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

Row = tuple[Any, list[str], list[str]]
STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}
BOOLEAN: dict[str, Any] = {"type": "boolean"}


def record(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


OBJECTS: list[Row] = [
    (record({}, additionalProperties=False), ["{}"], ['{"a": 1}', "[]", "{", "{ }"]),
    (record({}), ["{}"], ["{ }", "null"]),
    ({"type": "object", "maxProperties": 0}, ["{}"], ['{"a": 1}']),
    (
        record({"a": INTEGER, "b": STRING}, required=["a"]),
        ['{"a": 1}', '{"a": 1, "b": "x"}'],
        ["{}", '{"b": "x"}', '{"a": 1, }', '{"a":1}', '{"b": "x", "a": 1}'],
    ),
    (
        record({"a": INTEGER, "b": INTEGER}, required=["b"]),
        ['{"b": 1}', '{"a": 1, "b": 2}'],
        ['{"a": 1}', "{}", '{, "b": 1}', '{"a": 1 "b": 2}'],
    ),
    (
        record({"a": INTEGER, "b": INTEGER, "c": INTEGER}),
        ["{}", '{"a": 1}', '{"c": 1}', '{"a": 1, "c": 1}', '{"b": 1, "c": 1}'],
        ['{"a": 1,}', '{"a": 1, }', '{, "c": 1}'],
    ),
    (
        record({'ciudad_ñ "x"\n': INTEGER}, required=['ciudad_ñ "x"\n']),
        ['{"ciudad_ñ \\"x\\"\\n": 1}'],
        ['{"ciudad_? \\"x\\"\\n": 1}', '{"ciudad_\\u00f1 \\"x\\"\\n": 1}'],
    ),
    (record({"a": record({"b": INTEGER}, required=["b"])}, required=["a"]), ['{"a": {"b": 1}}'], ['{"a": {}}', '{"a": {"b": {}}}']),
    (record({"a": False, "b": INTEGER}), ["{}", '{"b": 1}'], ['{"a": 1}']),
    (record({"a": INTEGER}, additionalProperties=False), ["{}", '{"a": 1}'], ['{"b": 1}']),
    (
        record({"a": INTEGER}, additionalProperties=STRING),
        ["{}", '{"a": 1}', '{"b": "x"}', '{"a": 1, "aa": "x", "": "y"}'],
        ['{"a": "x"}', '{"b": 1}', '{"\\u0061": "x"}', '{"b": "x", "a": 1}', '{"a": 1, "a": "x"}'],
    ),
    (
        {"type": "object", "additionalProperties": INTEGER},
        ["{}", '{"a": 1}', '{"a": 1, "b": 2}', '{"\\n\\"": 1}'],
        ['{"a": "x"}', '{"a": 1, }', '{"a\n": 1}'],
    ),
    (
        {"type": "object", "patternProperties": {"^x-": STRING, "\\d$": INTEGER}},
        ["{}", '{"x-a": "1"}', '{"a1": 1}', '{"x-a": "", "b2": 2}'],
        ['{"x-1": "a"}', '{"x-1": 1}', '{"a": 1}', '{"x-a": 1}'],
    ),
    (
        {"type": "object", "patternProperties": {"^x": INTEGER}, "additionalProperties": STRING},
        ['{"x": 1}', '{"a": "1"}', '{"a": "1", "xa": 1}'],
        ['{"x": "1"}', '{"a": 1}'],
    ),
    (
        record({"x1": STRING}, patternProperties={"^x": {"minLength": 2, "type": "string"}}),
        ['{"x1": "ab"}', '{"x2": "ab"}'],
        ['{"x1": "a"}', '{"y": "ab"}'],
    ),
    (
        {"type": "object", "propertyNames": {"pattern": "^[a-z]{2}$"}, "additionalProperties": INTEGER},
        ["{}", '{"ab": 1}'],
        ['{"a": 1}', '{"A1": 1}'],
    ),
    ({"type": "object", "propertyNames": {"maxLength": 2}, "additionalProperties": INTEGER}, ['{"ab": 1}', '{"": 1}'], ['{"abc": 1}']),
    (
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": INTEGER},
        ["{}", '{"a": 1, "b": 2}', '{"b": 1}'],
        ['{"c": 1}', '{"a": 1, "a": 2}'],
    ),
    (record({"a": INTEGER, "bb": INTEGER}, propertyNames={"maxLength": 1}), ["{}", '{"a": 1}'], ['{"bb": 1}']),
    (
        record(dict.fromkeys("abcd", INTEGER), minProperties=2),
        ['{"a": 1, "b": 1}', '{"c": 1, "d": 1}', '{"a": 1, "b": 1, "c": 1, "d": 1}'],
        ["{}", '{"a": 1}', '{"d": 1}'],
    ),
    (
        record(dict.fromkeys("abcd", INTEGER), maxProperties=2),
        ["{}", '{"a": 1}', '{"b": 1, "d": 1}'],
        ['{"a": 1, "b": 1, "c": 1}', '{"a": 1, }'],
    ),
    (
        record(dict.fromkeys("abc", INTEGER), minProperties=2, maxProperties=2, required=["b"]),
        ['{"a": 1, "b": 1}', '{"b": 1, "c": 1}'],
        ['{"b": 1}', '{"a": 1, "c": 1}', '{"a": 1, "b": 1, "c": 1}'],
    ),
    ({"type": "object", "additionalProperties": INTEGER, "minProperties": 1}, ['{"a": 1}', '{"a": 1, "b": 1}'], ["{}"]),
    (
        {"type": "object", "additionalProperties": INTEGER, "maxProperties": 2},
        ["{}", '{"a": 1}', '{"a": 1, "b": 1}'],
        ['{"a": 1, "b": 1, "c": 1}'],
    ),
    (
        record({"a": INTEGER}, dependentRequired={"a": ["b"]}, additionalProperties=BOOLEAN),
        ["{}", '{"a": 1, "b": true}', '{"b": true}', '{"c": true}'],
        ['{"a": 1}', '{"a": 1, "c": true}'],
    ),
    (record({"a": INTEGER, "b": INTEGER}, dependentRequired={"a": ["b"]}), ["{}", '{"b": 1}', '{"a": 1, "b": 1}'], ['{"a": 1}']),
    (
        record({"a": INTEGER, "b": INTEGER}, dependentSchemas={"a": {"properties": {"b": {"minimum": 5}}, "required": ["b"]}}),
        ["{}", '{"b": 1}', '{"a": 1, "b": 5}'],
        ['{"a": 1}', '{"a": 1, "b": 4}'],
    ),
]

ARRAYS: list[Row] = [
    ({"type": "array", "items": INTEGER}, ["[]", "[1]", "[1, 2]"], ["[1,2]", "[1, ]", "[, 1]", '["a"]', "[", "[1 2]"]),
    ({"type": "array", "items": INTEGER, "minItems": 2}, ["[1, 2]", "[1, 2, 3]"], ["[]", "[1]"]),
    ({"type": "array", "items": INTEGER, "maxItems": 2}, ["[]", "[1, 2]"], ["[1, 2, 3]"]),
    ({"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 1}, ["[1]"], ["[]", "[1, 2]"]),
    ({"type": "array", "maxItems": 0}, ["[]"], ["[1]"]),
    ({"type": "array", "items": False}, ["[]"], ["[1]", "[null]"]),
    ({"type": "array", "items": {"type": "array", "items": BOOLEAN}}, ["[[]]", "[[true], []]"], ["[true]"]),
    ({"type": "array", "prefixItems": [STRING, INTEGER]}, ["[]", '["a"]', '["a", 1]'], ["[1]", '["a", "b"]', '["a", 1, null]', '["a", ]']),
    (
        {"type": "array", "prefixItems": [STRING, INTEGER], "items": BOOLEAN},
        ["[]", '["a", 1]', '["a", 1, true, false]'],
        ['["a", true]', '["a", 1, 2]'],
    ),
    ({"type": "array", "prefixItems": [STRING, INTEGER], "items": False, "minItems": 2}, ['["a", 1]'], ['["a"]', '["a", 1, 1]']),
    (
        {"type": "array", "prefixItems": [STRING], "items": INTEGER, "minItems": 2, "maxItems": 3},
        ['["a", 1]', '["a", 1, 2]'],
        ['["a"]', '["a", 1, 2, 3]'],
    ),
    ({"type": "array", "prefixItems": [STRING, INTEGER, BOOLEAN], "minItems": 1}, ['["a"]', '["a", 1]', '["a", 1, true]'], ["[]"]),
    ({"type": "array", "prefixItems": [STRING, INTEGER, BOOLEAN], "minItems": 2}, ['["a", 1]', '["a", 1, true]'], ["[]", '["a"]']),
    ({"type": "array", "prefixItems": [STRING, False]}, ["[]", '["a"]'], ['["a", 1]']),
    (
        {"type": "array", "prefixItems": [{"minimum": 2, "type": "integer"}], "allOf": [{"items": {"maximum": 5, "type": "integer"}}]},
        ["[2]", "[5, 0]"],
        ["[1]", "[6]", "[2, 6]"],
    ),
    (
        {"type": "array", "items": {"enum": ["a", "b", 1]}, "uniqueItems": True},
        ["[]", '["a"]', '["b", "a", 1]'],
        ['["a", "a"]', '["a", "b", "a"]'],
    ),
    (
        {"type": "array", "items": BOOLEAN, "uniqueItems": True, "minItems": 2},
        ["[true, false]", "[false, true]"],
        ["[true]", "[true, true]"],
    ),
    ({"type": "array", "items": STRING, "uniqueItems": True, "maxItems": 1}, ["[]", '["a"]'], ['["a", "b"]']),
    ({"type": "array", "items": INTEGER, "uniqueItems": False}, ["[1, 1]"], ["[null]"]),
    ({"type": "array", "items": INTEGER, "contains": {"minimum": 5}}, ["[5]", "[1, 6]", "[7, 1, 2]"], ["[]", "[1, 2]"]),
    ({"type": "array", "items": INTEGER, "contains": {"minimum": 5}, "minContains": 2}, ["[5, 6]", "[1, 6, 2, 7, 1]"], ["[5]", "[1, 6]"]),
    ({"type": "array", "items": INTEGER, "contains": {"minimum": 5}, "minContains": 0}, ["[]", "[1]"], ["[null]"]),
]

KIND = {"type": "object", "required": ["kind"]}
A = {**KIND, "properties": {"kind": {"const": "a"}, "x": INTEGER}}
B = {**KIND, "properties": {"kind": {"const": "b"}, "y": STRING}}

COMBINED: list[Row] = [
    ({"anyOf": [STRING, {"type": "null"}]}, ['"a"', "null"], ["1"]),
    ({"anyOf": [{"minimum": 5}, {"multipleOf": 2}], "type": "integer"}, ["5", "7", "2", "-4"], ["1", "3"]),
    (
        {"anyOf": [A, B]},
        ['{"kind": "a", "x": 1}', '{"kind": "b", "y": "s"}', '{"kind": "a"}'],
        ['{"kind": "a", "y": "s"}', '{"kind": "c"}', "{}"],
    ),
    ({"oneOf": [A, B], "discriminator": {"propertyName": "kind"}}, ['{"kind": "a", "x": 1}', '{"kind": "b"}'], ['{"kind": "c"}']),
    ({"oneOf": [STRING, INTEGER, {"type": "array", "items": INTEGER}]}, ['"a"', "1", "[1]"], ["null", "1.5"]),
    ({"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 4}]}, ["3", "4"], ["3.5"]),
    ({"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "integer", "enum": [1, 3]}]}, ["1", "2", "3", "4"], ["5"]),
    ({"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 10}]}, ["-1", "11"], ["0", "5", "10"]),
    ({"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "b$"}]}, ['"a"', '"b"', '"ac"'], ['"ab"', '"c"']),
    (
        record({"a": INTEGER, "b": INTEGER}, oneOf=[{"required": ["a"]}, {"required": ["b"]}]),
        ['{"a": 1}', '{"b": 1}'],
        ["{}", '{"a": 1, "b": 1}'],
    ),
    (
        record({"a": INTEGER, "b": INTEGER}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
        ['{"a": 1}', '{"b": 1}', '{"a": 1, "b": 1}'],
        ["{}"],
    ),
    (
        {"allOf": [record({"a": INTEGER}, required=["a"]), record({"b": STRING})]},
        ['{"a": 1}', '{"a": 1, "b": ""}'],
        ['{"b": ""}', '{"a": 1, "b": 1}'],
    ),
    (
        {"allOf": [record({"a": INTEGER}), record({"a": {"minimum": 3}, "b": INTEGER})]},
        ["{}", '{"a": 3}', '{"a": 4, "b": 1}'],
        ['{"a": 2}'],
    ),
    ({"allOf": [record({"a": INTEGER}, additionalProperties=False), record({"b": INTEGER})]}, ["{}", '{"a": 1}'], ['{"b": 1}']),
    ({"allOf": [{"type": ["integer", "string"]}, {"type": ["number", "null"]}]}, ["1"], ["1.5", '"a"', "null"]),
    ({"$ref": "#/$defs/a", "$defs": {"a": INTEGER}}, ["1"], ['"a"']),
    ({"$ref": "#/definitions/a~1b%25", "definitions": {"a/b%": INTEGER}}, ["1"], ['"a"']),
    ({"$ref": "#/$defs/a", "minimum": 3, "$defs": {"a": INTEGER}}, ["3"], ["2", "3.5"]),
    ({"$ref": "#here", "$defs": {"a": {"$anchor": "here", "type": "integer"}}}, ["1"], ["null"]),
    ({"$id": "http://x/y", "$ref": "http://x/y#/$defs/a", "$defs": {"a": INTEGER}}, ["1"], ["null"]),
    (record({"a": INTEGER, "b": {"$ref": "#/properties/a"}}, required=["b"]), ['{"b": 1}', '{"a": 1, "b": 2}'], ['{"b": ""}']),
    (
        {
            "type": "array",
            "items": {"$ref": "#/$defs/p"},
            "$defs": {"p": record({"x": {"$ref": "#/$defs/n"}}, required=["x"]), "n": INTEGER},
        },
        ["[]", '[{"x": 1}, {"x": 2}]'],
        ["[{}]"],
    ),
    ({"type": ["string", "null"], "not": {"type": "null"}}, ['"a"'], ["null"]),
    ({"type": "string", "not": {"maxLength": 2}}, ['"abc"'], ['"ab"']),
    ({"type": "string", "not": {"anyOf": [{"pattern": "a"}, {"minLength": 3}]}}, ['"bc"', '""'], ['"a"', '"bcd"']),
    ({"type": "integer", "not": {"allOf": [{"minimum": 3}, {"maximum": 5}]}}, ["2", "6"], ["3", "5"]),
    (record({"a": INTEGER, "b": INTEGER}, **{"not": {"required": ["a", "b"]}}), ["{}", '{"a": 1}', '{"b": 1}'], ['{"a": 1, "b": 1}']),
    (record({"a": STRING}, **{"not": {"properties": {"a": {"const": "x"}}, "required": ["a"]}}), ["{}", '{"a": "y"}'], ['{"a": "x"}']),
    ({"type": "integer", "if": {"minimum": 10}, "then": {"multipleOf": 10}}, ["3", "10", "20"], ["11"]),
    ({"type": "integer", "if": {"minimum": 10}, "then": {"multipleOf": 10}, "else": {"multipleOf": 2}}, ["4", "10", "20"], ["11", "3"]),
    ({"type": "integer", "if": {"minimum": 10}}, ["3", "11"], ["null"]),
    (
        record(
            {"k": {"enum": ["a", "b"]}, "v": {"type": ["integer", "string"]}},
            required=["k", "v"],
            **{"if": {"properties": {"k": {"const": "a"}}}, "then": {"properties": {"v": INTEGER}}, "else": {"properties": {"v": STRING}}},
        ),
        ['{"k": "a", "v": 1}', '{"k": "b", "v": "x"}'],
        ['{"k": "a", "v": "x"}', '{"k": "b", "v": 1}'],
    ),
]

FLEXIBLE: list[Row] = [
    (
        record({"a": INTEGER, "b": {"type": "array", "items": INTEGER}}),
        ["{}", "{ }", '{"a":1,"b":[1,2]}', '{ "a" : 1 , "b" : [ 1 , 2 ] }', '{\n\t"a": 1\r\n}', '{"b":[]}', '{"b":[ ]}'],
        [" {}", "{} ", '{"a":1,}', '{"a":\u00a01}', '{"a":' + " " * 9 + "1}", "{" + " " * 9 + "}", '{"a ":1}'],
    ),
    (record({"a": INTEGER}, maxProperties=1, minProperties=0), ["{}", "{        }"], ["{         }"]),
    ({"const": {"a": [1, 2], "b": {}}}, ['{"a":[1,2],"b":{}}', '{ "a" : [ 1 , 2 ] , "b" : { } }'], ['{"a":[1 2],"b":{}}']),
]


@pytest.mark.parametrize(("schema", "accepted", "refused"), OBJECTS + ARRAYS + COMBINED)
def test_containers(schema: Any, accepted: list[str], refused: list[str], check: Callable[..., None]) -> None:
    check(schema, accepted, refused)


@pytest.mark.parametrize(("schema", "accepted", "refused"), OBJECTS + ARRAYS + COMBINED)
def test_the_compact_kind_and_the_flexible_one(schema: Any, accepted: list[str], refused: list[str], check: Callable[..., None]) -> None:
    def compact(texts: list[str]) -> list[str]:
        return [json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False) for text in texts]

    check(schema, compact(accepted), [text for text in accepted if ", " in text or ": " in text], "json_schema_compact")
    check(schema, [*accepted, *compact(accepted)], [], "json_schema_flexible")


@pytest.mark.parametrize(("schema", "accepted", "refused"), FLEXIBLE)
def test_white_space_is_bounded(schema: Any, accepted: list[str], refused: list[str], check: Callable[..., None]) -> None:
    check(schema, accepted, refused, "json_schema_flexible")


def test_every_selection_of_optional_properties(compiled: Callable[..., Any]) -> None:
    for required in ([], ["c"], ["a", "e"]):
        automaton = compiled(record(dict.fromkeys("abcde", INTEGER), required=required)).automaton
        for size in range(6):
            for names in itertools.permutations("abcde", size):
                text = json.dumps(dict.fromkeys(names, 1))
                assert automaton.accepts(text.encode()) == (list(names) == sorted(names) and set(required) <= set(names)), text


def test_many_optional_nullable_properties(compiled: Callable[..., Any]) -> None:  # JS-31
    start_s = time.monotonic()
    names = [f"f{number:02}" for number in range(24)]
    automaton = compiled(record({name: {"anyOf": [STRING, {"type": "null"}]} for name in names}, additionalProperties=False)).automaton
    good = ["{}", '{"f23": null}', '{"f00": "x", "f23": null}', json.dumps(dict.fromkeys(names))]
    bad = ['{"f00": "x",}', '{"f00": "x", }', '{, "f01": null}', '{"f23": null, "f00": null}']
    assert [automaton.accepts(text.encode()) for text in good + bad] == [True] * 4 + [False] * 4
    assert time.monotonic() - start_s < 2


@pytest.mark.parametrize("size", [4, 12])
def test_counted_properties_by_brute_force(size: int, compiled: Callable[..., Any]) -> None:
    names = [f"k{number:02}" for number in range(size)]
    automaton = compiled(record(dict.fromkeys(names, INTEGER), required=names[1:2], minProperties=2, maxProperties=3)).automaton
    for mask in range(0, 1 << size, 1 if size < 6 else 7):
        chosen = [name for at, name in enumerate(names) if mask >> at & 1]
        assert automaton.accepts(json.dumps(dict.fromkeys(chosen, 1)).encode()) == (names[1] in chosen and 2 <= len(chosen) <= 3)
