"""Structural tags: free text with regions of JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ramet.constraint.compile import compile_constraint
from ramet.constraint.testing import byte_vocabulary, explain_bytes
from ramet.errors import InvalidConstraint

BYTES = byte_vocabulary()

INTEGER = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}
TAG: dict[str, Any] = {
    "type": "structural_tag",
    "structures": [
        {"begin": "<function=f>", "schema": INTEGER, "end": "</function>"},
        {"begin": "<function=go>", "schema": True, "end": "</function>"},
        {"begin": "[[", "schema": {"type": "array"}, "end": ""},
    ],
    "triggers": ["<function=", "[["],
}
COMPILED = compile_constraint("structural_tag", json.dumps(TAG), BYTES)
F = '<function=f>{"x": 1}</function>'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "a < b <func",
        "<function",
        "\0 é 日 😀 \n",
        F,
        f"hi\n{F} and <function=go>[1, {{}}]</function>!",
        F + F,
        f"<{F}",
        f"<function {F}",
        f"<<func{F}",
        "[[[1] rest",
        f"[[[1, 2]{F}[[[]",
        "[ [",
        f"{F}</function>",
    ],
)
def test_accepted(text: str) -> None:
    assert str(explain_bytes(COMPILED, text.encode())) == "accepted"


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("<function=", 10),
        ("<function=h>", 10),
        ("x <function=fo", 13),
        ('<function=f>{"x": "a"}', 18),
        ('<function=f>{"x":1}', 17),
        ('<function=f>{"x": 1}', 20),
        ('<function=f>{"x": 1}<', 21),
        (F + "<function=x", 41),
        ("[[1", 2),
        ("<function=go>{</function>", 14),
    ],
)
def test_refused(text: str, num_bytes: int) -> None:
    found = explain_bytes(COMPILED, text.encode())
    assert not found.is_accepted
    assert found.num_bytes == num_bytes


def test_what_is_forced() -> None:
    compiled = COMPILED
    assert explain_bytes(compiled, b"text").forced == ""
    assert explain_bytes(compiled, b"text <function=f").forced == '>{"x": '
    assert explain_bytes(compiled, b'<function=f>{"x": 1}').forced == "</function>"


def one(begin: str = "<a>", schema: object = INTEGER, end: str = "</a>", **more: object) -> dict[str, Any]:
    return {"type": "structural_tag", "structures": [{"begin": begin, "schema": schema, "end": end, **more}], "triggers": ["<a"]}


@pytest.mark.parametrize(
    ("tag", "why"),
    [
        ([], "JSON object"),
        ({}, "needs the key 'type'"),
        ({**TAG, "type": "x"}, "must be"),
        ({**TAG, "format": {}}, "format"),
        ({**TAG, "extra": 1}, "no key 'extra'"),
        ({**TAG, "structures": []}, "not empty"),
        ({**TAG, "structures": [1]}, "begin, schema and end"),
        ({**TAG, "triggers": []}, "not empty"),
        ({**TAG, "triggers": [1]}, "list of strings"),
        ({**TAG, "triggers": ["[["]}, "none of the triggers"),
        ({**TAG, "triggers": ["", "[["]}, "empty"),
        ({**TAG, "triggers": ["<function=", "[[", "<tool"]}, "no begin starts with the trigger '<tool'"),
        ({**TAG, "triggers": ["<function=", "[[", "<func"]}, "holds the trigger"),
        (one(more=1), "no key 'more'"),
        (one(begin=1), "must be a string"),  # type: ignore[arg-type]
        (one(begin="<a\ud800"), "whole characters"),
        (one(schema=1), "schema behind"),
        (one(schema={"not": {}}), "keyword not"),
        (one(schema={"type": "integer"}, end="5"), "rest of a number"),
        (one(schema={}, end=""), "rest of a number"),
        ({**TAG, "structures": [*TAG["structures"], {"begin": "<function=f>x", "schema": True, "end": ""}]}, "cannot be told"),
        ({**TAG, "structures": TAG["structures"] * 2}, "cannot be told"),
    ],
)
def test_invalid_tags(tag: object, why: str) -> None:
    with pytest.raises(InvalidConstraint, match=why):
        compile_constraint("structural_tag", json.dumps(tag), BYTES)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "nonsense"])
def test_no_json(text: str) -> None:
    with pytest.raises(InvalidConstraint):
        compile_constraint("structural_tag", text, BYTES)
