"""Schemas that no finite automaton holds go to llguidance, in a form that says the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ramet.constraint.compile import compile_constraint
from ramet.constraint.compiled import AutomatonConstraint
from ramet.constraint.limits import Source
from ramet.constraint.schema.build import schema_for_grammar, schema_tree
from ramet.constraint.schema.sites import NeedsGrammar
from ramet.constraint.testing import accepts
from ramet.constraint.vocabulary import Vocabulary

STRING: dict[str, Any] = {"type": "string"}


def shape(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"kind": {"const": kind}, **more}, "required": ["kind"], "additionalProperties": False}


SHAPES = {
    "$ref": "#/$defs/Shape",
    "$defs": {
        "Shape": {
            "oneOf": [shape("dot"), shape("group", parts={"type": "array", "items": {"$ref": "#/$defs/Shape"}})],
            "discriminator": {"propertyName": "kind"},
        }
    },
}


def cell(value: str) -> dict[str, Any]:
    properties = {"next": {"$ref": "#/$defs/List"}, "value": {"type": value}}
    return {"type": "object", "properties": properties, "required": ["next", "value"], "additionalProperties": False}


LISTS = {"$ref": "#/$defs/List", "$defs": {"List": {"oneOf": [cell("string"), cell("integer"), {"type": "null"}]}}}


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"),
    [
        (True, ["1", '{"a": [null, {}]}', '"x"'], ["nul", "[1,]"]),
        ({"type": "object"}, ["{}", '{"a": {"b": 1}}'], ["[]", "1"]),
        ({"type": "array", "items": {}}, ["[]", '[1, "a", {}]'], ["{}"]),
        ({"type": "object", "properties": {"a": {}, "b": STRING}, "required": ["b"]}, ['{"a": [1], "b": "x"}'], ['{"a": 1}', '{"b": 1}']),
        (
            SHAPES,
            ['{"kind": "dot"}', '{"kind": "group", "parts": [{"kind": "dot"}]}'],
            ['{"kind": "line"}', '{"kind": "dot", "parts": []}'],
        ),
        (LISTS, ["null", '{"next": null, "value": 1}', '{"next": {"next": null, "value": "a"}, "value": 1}'], ['{"next": null}', "1"]),
        ({"type": "array", "items": {"$ref": "#me"}, "$anchor": "me"}, ["[]", "[[], [[]]]"], ["[1]", "{}"]),
        (
            {"type": "object", "properties": {"v": {"type": "number", "minimum": 1.5}, "next": {"$ref": "#"}}, "required": ["v"], "x-a": 1},
            ['{"v": 1.5}', '{"v": 2, "next": {"v": 3}}'],
            ['{"v": 1}', '{"v": 2, "next": {}}'],
        ),
    ],
)
def test_open_and_recursive_schemas(schema: Any, accepted: list[str], refused: list[str], bytes_vocabulary: Vocabulary) -> None:
    pytest.importorskip("llguidance")
    text = json.dumps(schema)
    assert not isinstance(compile_constraint("json_schema", text, bytes_vocabulary), AutomatonConstraint)
    assert [text_ for text_ in accepted if not accepts("json_schema", text, text_)] == []
    assert [text_ for text_ in refused if accepts("json_schema", text, text_)] == []


def test_the_form_for_the_grammar() -> None:
    schema = {
        "title": "t",
        "properties": {"title": {"minimum": 0.5, "x-note": 1}, "me": {"$ref": "#here"}},
        "oneOf": [{"type": "string"}, {"type": "integer"}],
        "enum": [{"title": 1.5}],
        "$defs": {"a": {"$anchor": "here", "oneOf": [{"minimum": 1}, {"maximum": 2}]}, "b": {"oneOf": [False], "anyOf": [True]}},
    }
    assert schema_for_grammar(Source("json_schema", json.dumps(schema))) == {
        "properties": {"title": {"minimum": 0.5}, "me": {"$ref": "#/$defs/a"}},
        "anyOf": [{"type": "string"}, {"type": "integer"}],
        "enum": [{"title": 1.5}],
        "$defs": {"a": {"oneOf": [{"minimum": 1}, {"maximum": 2}]}, "b": {"oneOf": [False], "anyOf": [True]}},
    }


def test_a_proof_that_meets_a_recursion_twice() -> None:
    part = {"allOf": [{"$ref": "#/$defs/List"}, {"type": "object"}]}

    def option(value: str) -> dict[str, Any]:
        return {"type": "object", "properties": {"part": part, "value": {"type": value}}, "required": ["part", "value"]}

    source = Source("json_schema", json.dumps({"oneOf": [option("string"), option("integer")], "$defs": LISTS["$defs"]}))
    with pytest.raises(NeedsGrammar):  # rather than a oneOf that cannot be shown
        schema_tree(source)
    found = schema_for_grammar(source)
    assert isinstance(found, dict)
    assert "anyOf" in found
    assert "anyOf" in found["$defs"]["List"]
