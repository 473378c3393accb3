"""Schemas that recurse or leave objects open: nothing wrong is accepted, and what is not done exactly is refused by name."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from ramet.constraint.base import Compiled
from ramet.constraint.compile import compile_constraint
from ramet.constraint.grammar.json import compile_json_grammar
from ramet.constraint.limits import Source
from ramet.constraint.testing import byte_vocabulary, explain_bytes
from ramet.constraint.vocabulary import Vocabulary
from ramet.errors import InvalidConstraint

BYTES = byte_vocabulary()

NODE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "required": ["name", "kids"],
    "additionalProperties": False,
}
LIST = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["v", "next"],
}
EXPR = {
    "anyOf": [
        {"type": "number"},
        {"type": "object", "properties": {"op": {"enum": ["+", "-"]}, "args": {"$ref": "#/$defs/args"}}, "required": ["op", "args"]},
    ],
    "$defs": {"args": {"type": "array", "items": {"$ref": "#"}, "minItems": 1, "maxItems": 2}},
}
SCHEMAS: list[dict[str, Any]] = [
    {},
    {"type": "object"},
    {"type": "array"},
    {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
    LIST,
    EXPR,
    {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}, "required": ["b"]},
    {"type": "object", "required": ["q"], "additionalProperties": {"type": "integer"}},
    {"type": "object", "properties": {"\n": {"type": "integer"}, 'é"': {"type": "null"}}, "additionalProperties": {"type": "string"}},
    {"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
    {"type": "object", "patternProperties": {"^a": {"type": "integer"}, "^b": {"type": "null"}}, "properties": {"ab": {"minimum": 3}}},
    {"type": "object", "maxProperties": 2, "additionalProperties": {"maximum": 5}},
    {"type": "object", "additionalProperties": {"$ref": "#"}, "properties": {"k": {"const": [1, "x", None]}}},
    {"type": "object", "additionalProperties": {"type": "string", "pattern": "^[a-c]+$|x", "maxLength": 3}},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"$ref": "#"}], "items": {"type": "string", "minLength": 2}, "maxItems": 4},
    {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "integer", "minimum": -3, "exclusiveMaximum": 12, "multipleOf": 3}]}},
    {
        "oneOf": [
            {"type": "null"},
            {"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]},
            {"type": "string", "maxLength": 1},
        ]
    },
    {
        "type": "object",
        "allOf": [{"properties": {"a": {"type": "number"}}}, {"properties": {"a": {"minimum": 1.5, "maximum": 2}}, "required": ["a"]}],
    },
    {
        "type": "object",
        "properties": {"d": {"type": "string", "format": "date"}, "u": {"type": "string", "format": "ipv4"}},
        "required": ["d", "u"],
    },
    {"type": ["array", "string", "object"], "minItems": 1, "minLength": 1, "enum": [["a"], "b", 3, {"a": 1}, []]},
]


def compiled_of(schema: Any, kind: str = "json_schema", vocabulary: Vocabulary | None = None) -> Compiled:
    return compile_json_grammar(Source(kind, json.dumps(schema)), schema, vocabulary or BYTES)


def accepted(compiled: Compiled, text: str) -> bool:
    return explain_bytes(compiled, text.encode()).is_accepted


def random_text(compiled: Compiled, rng: random.Random) -> str | None:
    """A text that the constraint accepts, with much of what breaks parsers; None when it grows too long."""
    matcher = compiled.matcher()
    text = bytearray()
    while len(text) < 160:
        mask = matcher.mask()
        assert mask is not None
        options = mask.nonzero().flatten().tolist()
        if 256 in options:
            if len(options) == 1 or rng.random() < 0.3 or len(text) > 50:
                return text.decode()
            options.remove(256)
        is_late = len(text) > 50
        weights = [
            40.0
            if is_late and chr(byte) in '"}]'
            else 6.0
            if chr(byte) in '"}],{[' and not is_late
            else 4.0
            if chr(byte) in "\\abcx019"
            else 0.3
            for byte in options
        ]
        text.append(rng.choices(options, weights)[0])
        matcher.accept(text[-1])
    return None


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_everything_accepted_is_valid(number: int) -> None:
    schema = SCHEMAS[number]
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    compiled = compiled_of(schema)
    rng = random.Random(number)
    texts = {text for _ in range(15) if (text := random_text(compiled, rng)) is not None}
    assert texts
    for text in texts:
        value = json.loads(text)
        text.encode()
        assert validator.is_valid(value), text


VALUES = [
    None,
    True,
    0,
    -3,
    2,
    1.75,
    1e300,
    "",
    "a",
    "abc",
    "x",
    'é\n"',
    [],
    [1],
    [1, [2, []]],
    ["a"],
    {},
    {"a": 1},
    {"a": "x"},
    {"b": True},
]
VALUES += [{"a": 3, "b": False, "c": "x"}, {"q": 1, "r": 2}, {"q": "x"}, {"v": 1, "next": None}, {"v": 1, "next": {"v": 2, "next": None}}]
VALUES += [
    {"v": 1},
    {"name": "n", "kids": [{"name": "m", "kids": []}]},
    {"name": "n", "kids": [{}]},
    {"op": "+", "args": [1, {"op": "-", "args": [2]}]},
]
VALUES += [
    {"op": "+", "args": []},
    {"a": 1.5},
    {"a": 2.5},
    {"x": {"x": None}},
    {"x": 3},
    {"d": "2024-02-29", "u": "1.2.3.4"},
    {"d": "2023-02-29", "u": "1.2.3.4"},
]


@pytest.mark.parametrize("kind", ["json_schema", "json_schema_compact", "json_schema_flexible"])
@pytest.mark.parametrize("number", range(0, len(SCHEMAS), 3))
def test_values_are_judged_as_jsonschema_does(number: int, kind: str) -> None:
    schema = SCHEMAS[number]
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    compiled = compiled_of(schema, kind)
    separators = (", ", ": ") if kind == "json_schema" else (",", ":")
    for value in VALUES:
        text = json.dumps(value, ensure_ascii=False, separators=separators)
        if "e+" not in text:
            assert accepted(compiled, text) == validator.is_valid(value), text


@pytest.mark.parametrize(
    ("kind", "yes", "no"),
    [
        ("json_schema", '{"a": [1, 2]}', ['{"a":[1,2]}', '{ "a": 1}', ' {"a": 1}', '{"a": 1} ', '{"a" : 1}']),
        ("json_schema_compact", '{"a":[1,2]}', ['{"a": 1}', "[1, 2]"]),
        ("json_schema_flexible", '{ "a"\n:\t[ 1 , 2 ] }', ["{" + " " * 9 + "}", " {}", "{} "]),
    ],
)
def test_white_space(kind: str, yes: str, no: list[str]) -> None:
    compiled = compiled_of({}, kind)
    assert accepted(compiled, yes)
    assert not any(accepted(compiled, text) for text in no)


@pytest.mark.parametrize(
    ("schema", "yes", "no"),
    [
        # What llguidance 1.9.1 takes for another key: one written with an escape.
        (SCHEMAS[6], ['{"a": 1, "b": "x"}'], ['{"\\u0061": "x"}', '{"a": "x"}', '{"b": "x", "a": 1}']),
        (SCHEMAS[9], ['{"\\n": 1}'], ['{"\\n": "x"}', '{"\\u000a": "x"}', '{"\\u000A": 1}']),
        (SCHEMAS[10], ['{"ab": 1, "b": "x"}'], ['{"ab": "x"}', '{"a\\u0062": "x"}', '{"\\u0061b": "x"}']),
        ({"type": "string"}, ['"\\n\\t\\"\\\\\\b\\f\\r"', '"\u2028/"'], ['"\\ud83d"', '"\\u0041"', '"\n"', '"\x7f"', '"\\/"', '"\\x"']),
        ({"type": "string", "maxLength": 1}, ['"\\n"', '"😀"', '""'], ['"ab"', '"\\n\\n"']),
        ({"type": "string", "pattern": "a.c"}, ['"abc"', '"xxabcyy"'], ['"ac"', '"a\\nc"']),
        ({"type": "string", "pattern": "^a|b$"}, ['"ax"', '"xb"'], ['"xa"']),
        ({"type": "string", "pattern": "^[a&&b]$"}, ['"&"', '"a"'], ['"c"']),
        ({"type": "string", "pattern": "^\\d\\w$"}, ['"1a"'], ['"٣a"', '"1é"']),
        (
            {"type": "object", "patternProperties": {"^a|b$": {"type": "null"}}, "additionalProperties": False},
            ['{"xb": null}'],
            ['{"xa": null}'],
        ),
        ({"type": "number", "minimum": 1.5}, ["1.5", "2", "1000000"], ["1.49", "-2", "1e0"]),
        ({"type": "integer"}, ["-0", "12"], ["1.0", "01", "1e2"]),
        ({"const": {"b": 1, "a": [2.5]}}, ['{"b": 1, "a": [2.5]}'], ['{"a": [2.5], "b": 1}']),
        ({"minProperties": 1, "required": ["a"], "type": "object"}, ['{"a": 1}'], ["{}"]),
        ({"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"type": "null"}}}, ["null"], ["1"]),
        (
            {"uniqueItems": False, "title": "t", "default": 3, "type": "null", "$schema": "https://json-schema.org/draft/2020-12/schema"},
            ["null"],
            ["1"],
        ),
        (True, ["1", "{}"], ["x"]),
    ],
)
def test_verdicts(schema: Any, yes: list[str], no: list[str]) -> None:
    compiled = compiled_of(schema)
    assert [text for text in yes if not accepted(compiled, text)] == []
    assert [text for text in no if accepted(compiled, text)] == []


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        *[
            ({keyword: {}}, keyword)
            for keyword in ("not", "if", "then", "contains", "propertyNames", "unevaluatedProperties", "dependentSchemas")
        ],
        ({"dependentRequired": {"a": ["b"]}}, "dependentRequired"),
        ({"nullable": True}, "nullable"),
        ({"xyz": 1}, "xyz"),
        ({"properties": {"a": {"items": {"xyz": 1}}}}, "#/properties/a/items: the keyword xyz"),
        ({"x-guidance": {"lenient": True}}, "x-guidance"),
        ({"$dynamicRef": "#a"}, "dynamicRef"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "draft-04"),
        ({"items": [{}]}, "prefixItems"),
        ({"additionalItems": False}, "additionalItems"),
        ({"uniqueItems": True}, "uniqueItems"),
        ({"minProperties": 1}, "minProperties"),
        ({"exclusiveMinimum": True}, "must be a number"),
        ({"minimum": 2**53}, "2\\*\\*53"),
        ({"const": 2**60}, "2\\*\\*53"),
        ({"enum": [float("nan")]}, "too large"),
        ({"const": "\x01"}, "control characters"),
        ({"const": "\ud800"}, "surrogate"),
        ({"multipleOf": 0.1}, "whole numbers"),
        ({"multipleOf": 0}, "above zero"),
        ({"maxLength": -1}, "not negative"),
        ({"type": "foo"}, "one of"),
        ({"type": []}, "one of"),
        ({"required": "a"}, "list of strings"),
        ({"properties": []}, "object of schemas"),
        ({"enum": []}, "not empty"),
        ({"anyOf": []}, "not empty"),
        ({"format": "unheard-of"}, "unheard-of"),
        ({"pattern": "(a)\\1"}, "pattern"),
        ({"pattern": "^(?!a)"}, "look-ahead"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf: that its options exclude each other"),
        ({"$ref": "#/$defs/missing"}, "missing"),
        ({"$ref": "other.json"}, "other.json"),
        ({"type": "array", "items": {"$ref": "#"}, "enum": [["a"]]}, "circular references with sibling keys"),
        ({"$ref": "#/default", "default": {}}, "#/default"),
        ({"$ref": "#"}, "again and again"),
        ({"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]}, "again and again"),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "again and again"),
        (False, "false"),
        (3, "object, true or false"),
    ],
)
def test_refused_by_name(schema: Any, why: str) -> None:
    with pytest.raises(InvalidConstraint, match=why):
        compiled_of(schema)


NONE_OR_ROOT = {"anyOf": [{"type": "null"}, {"$ref": "#"}]}


def ring(num_schemas: int, **last: Any) -> dict[str, Any]:
    """Definitions that each require the next one."""
    definitions: dict[str, Any] = {
        f"d{i}": {"type": "object", "properties": {"x": {"$ref": f"#/$defs/d{i + 1}"}}, "required": ["x"], "additionalProperties": False}
        for i in range(num_schemas)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{num_schemas}": last}}


def web(num_schemas: int) -> dict[str, Any]:
    """Definitions that all refer to all."""
    properties = {f"p{i}": {"$ref": f"#/$defs/d{i}"} for i in range(num_schemas)}
    part = {"oneOf": [{"type": "null"}, {"type": "object", "properties": properties, "additionalProperties": False}]}
    return {"$ref": "#/$defs/d0", "$defs": {f"d{i}": part for i in range(num_schemas)}}


@pytest.mark.parametrize(
    ("schema", "yes", "no"),
    [
        (
            {"type": "object", "properties": {f"p{i}": inner for i in range(num_properties)}, "additionalProperties": False},
            ["{}", '{"p0": {}}', f'{{"p3": {{"p{num_properties - 1}": {{}}}}}}'],
            [f'{{"p{num_properties}": {{}}}}', '{"p0": 1}'],
        )
        for num_properties in (12, 61, 490)
        for inner in ({"$ref": "#"}, NONE_OR_ROOT)
    ]
    + [
        (
            ring(100, **{"anyOf": [{"type": "null"}, {"$ref": "#/$defs/d0"}]}),
            ['{"x": ' * 100 + "null" + "}" * 100],
            ["null", '{"x": null}'],
        ),
        (web(30), ["null", '{"p1": {"p29": null}}'], ['{"p30": null}', "1"]),
    ],
)
def test_how_wide_a_recursive_schema_is_says_nothing_of_its_depth(schema: Any, yes: list[str], no: list[str]) -> None:
    compiled = compile_constraint("json_schema", json.dumps(schema), BYTES)
    assert [text for text in yes if not accepted(compiled, text)] == []
    assert [text for text in no if accepted(compiled, text)] == []


@pytest.mark.parametrize(("names", "limit"), [([], 490), (["p999"], 650), (["p0"], 980), (["p19"], None), (["p400"], None)])
def test_too_many_optional_properties_in_a_row(names: list[str], limit: int | None) -> None:
    schema = {"type": "object", "properties": {f"p{i}": NONE_OR_ROOT for i in range(1000)}, "required": names}
    if limit is None:
        compiled = compile_constraint("json_schema", json.dumps(schema), BYTES)
        assert accepted(compiled, json.dumps(dict.fromkeys(["p2", *names, "p998", "more"])))
        return
    with pytest.raises(InvalidConstraint, match=f"#/properties: [0-9]+ optional properties in a row are more than the limit of {limit}"):
        compile_constraint("json_schema", json.dumps(schema), BYTES)


def test_a_long_chain_of_references_that_ends_is_deep() -> None:
    assert accepted(compile_constraint("json_schema", json.dumps(ring(59, type="null")), BYTES), '{"x": ' * 59 + "null" + "}" * 59)
    with pytest.raises(InvalidConstraint, match="#/\\$defs/d59/properties/x: values nest deeper than 60"):
        compile_constraint("json_schema", json.dumps(ring(60, type="null")), BYTES)


def test_deep_schemas_are_refused() -> None:
    schema: Any = {}
    for _ in range(500):
        schema = {"items": schema}
    with pytest.raises(InvalidConstraint, match="deeper"):
        compiled_of(schema)
    value: Any = 1
    for _ in range(500):
        value = [value]
    with pytest.raises(InvalidConstraint, match="deeper"):
        compiled_of({"const": value})
