"""Constraints among the sampling parameters: what is accepted, what is refused, and what a compiler gets of it."""

from __future__ import annotations

import json
import re
from types import MappingProxyType
from typing import Any

import pytest

from ramet.constraint.compile import KINDS
from ramet.errors import InvalidConstraint, InvalidParams, UnsupportedFeature
from ramet.params import CONSTRAINT_FIELDS, SamplingParams

NESTED: dict[str, Any] = {}
for _ in range(100_000):
    NESTED = {"not": NESTED}


@pytest.mark.parametrize(
    ("raw", "constraint"),
    [
        ({}, None),
        ({"regex": "[ab]"}, ("regex", "[ab]")),
        ({"regex": ""}, None),
        ({"regex": None, "ebnf": "", "json_schema": "", "lark": "", "structural_tag": "", "choices": None}, None),
        ({"json_schema": "not read here"}, ("json_schema", "not read here")),
        ({"json_schema": '{"type":  "object"}'}, ("json_schema", '{"type":  "object"}')),
        ({"json_schema": {"z": 1, "a": {"ñ": "\u6771"}}}, ("json_schema", '{"z": 1, "a": {"ñ": "\u6771"}}')),
        ({"json_schema": MappingProxyType({"type": "null"})}, ("json_schema", '{"type": "null"}')),
        ({"json_schema": {}}, ("json_schema", "{}")),
        ({"json_schema": True}, ("json_schema", "true")),
        ({"json_schema": False}, ("json_schema", "false")),
        ({"ebnf": 'root ::= "a"'}, ("ebnf", 'root ::= "a"')),
        ({"lark": 'start: "a"'}, ("lark", 'start: "a"')),
        ({"structural_tag": {"type": "structural_tag"}}, ("structural_tag", '{"type": "structural_tag"}')),
        ({"structural_tag": "{}"}, ("structural_tag", "{}")),
        ({"choices": ["Mt. Fuji", 'a "b"', "é"]}, ("choice", '["Mt. Fuji", "a \\"b\\"", "é"]')),
        ({"choices": ("x",), "regex": ""}, ("choice", '["x"]')),
    ],
)
def test_one_constraint_is_taken(raw: dict[str, Any], constraint: tuple[str, str] | None) -> None:
    params = SamplingParams.from_mapping(raw)
    assert params.constraint == constraint
    assert params.with_changes(max_new_tokens=3).constraint == constraint
    hash(params)


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        ({"regex": 5}, "regex=5: must be a text"),
        ({"ebnf": ["root"]}, "ebnf=['root']: must be a text"),
        ({"lark": {"start": 1}}, "must be a text"),
        ({"json_schema": 5}, "json_schema=5: must be a JSON text"),
        ({"json_schema": 1.5}, "must be a JSON text"),
        ({"json_schema": [{}]}, "must be a JSON text"),
        ({"json_schema": b"{}"}, "must be a JSON text"),
        ({"json_schema": {"enum": [object]}}, "has no JSON text"),
        ({"json_schema": {"minimum": float("inf")}}, "has no JSON text"),
        ({"json_schema": NESTED}, "nested too deeply"),
        ({"structural_tag": True}, "must be a JSON text"),
        ({"structural_tag": 0}, "must be a JSON text"),
        ({"choices": []}, "at least one option"),
        ({"choices": "yes"}, "at least one option"),
        ({"choices": ""}, "at least one option"),
        ({"choices": {"a": 1}}, "at least one option"),
        ({"choices": ["a", 5]}, "not 5"),
        ({"regex": "a", "json_schema": {}}, "json_schema='{}': cannot be combined with regex"),
        ({"json_schema": "{}", "ebnf": "e"}, "ebnf='e': cannot be combined with json_schema"),
        ({"lark": "l", "ebnf": "e"}, "lark='l': cannot be combined with ebnf"),
        ({"choices": ["a"], "structural_tag": "{}"}, "cannot be combined with structural_tag"),
        ({"json_shema": "{}"}, "did you mean 'json_schema'"),
    ],
)
def test_what_is_no_constraint_is_refused(raw: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidParams, match=re.escape(what)):
        SamplingParams.from_mapping(raw)


def test_a_schema_may_be_a_type() -> None:
    constraint = SamplingParams.from_mapping({"json_schema": dict[str, int]}).constraint
    assert constraint is not None and json.loads(constraint[1])["additionalProperties"] == {"type": "integer"}
    with pytest.raises(InvalidConstraint, match="a schema is"):
        SamplingParams.from_mapping({"json_schema": object()})


@pytest.mark.parametrize("name", CONSTRAINT_FIELDS)
def test_an_empty_constraint_is_refused_where_none_is_meant_by_none(name: str) -> None:
    with pytest.raises(InvalidParams, match=name):
        SamplingParams(**{name: ""})


def test_every_constraint_has_a_kind() -> None:
    for name in CONSTRAINT_FIELDS:
        constraint = SamplingParams.from_mapping({name: ["x"] if name == "choices" else "{}"}).constraint
        assert constraint is not None and constraint[0] in KINDS


def test_what_is_not_offered_is_still_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="beam_width"):
        SamplingParams.from_mapping({"beam_width": 4})
