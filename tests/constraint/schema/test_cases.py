"""The handed cases about JSON Schema, those that need an engine by what the constraint has to do with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ramet.constraint.compile import compile_constraint
from ramet.constraint.compiled import AutomatonConstraint
from ramet.constraint.testing import accepts
from ramet.constraint.vocabulary import Vocabulary
from ramet.errors import InvalidConstraint

CASES = Path(__file__).resolve().parents[3].parent / "shared" / "cases" / "handed.jsonl"


def cases() -> list[Any]:
    if not CASES.exists():
        return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason="the handed cases are not beside this checkout"))]
    rows = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    return [pytest.param(row["check"], id=row["id"]) for row in rows if row["id"].startswith("JS-") and row["check"]["kind"] == "schema"]


@pytest.mark.parametrize("case", cases())
def test_verdicts(case: dict[str, Any]) -> None:
    schema = json.dumps(case["schema"])
    assert [text for text in case["accept"] if not accepts("json_schema_flexible", schema, text)] == []
    assert [text for text in case["reject"] if accepts("json_schema_flexible", schema, text)] == []


def test_schemas_that_end_a_request_and_nothing_else(bytes_vocabulary: Vocabulary) -> None:  # JS-13, JS-22, JS-26
    color = {"Color": {"type": "string"}}
    for schema in (
        json.dumps({"$ref": "/$defs/Color", "$defs": color}),
        '{"$ref": "other.json"}',
        '{"$ref": "#/$defs/Missing"}',
        "not json",
        "5",
        '{"type": "object", "properties": {"a": {"type": "foo"}}}',
        '{"type": "object", "properties": {"z": {"type": "string", "format": "idn-hostname"}}, "required": ["z"]}',
    ):
        with pytest.raises(InvalidConstraint) as caught:
            compile_constraint("json_schema", schema, bytes_vocabulary)
        assert caught.value.http_status == 400


def test_dates_are_enforced(check: Callable[..., None]) -> None:  # JS-22
    check({"type": "string", "format": "date"}, ['"2031-02-28"'], ['"2031-13-01"', '"2031-02-29"'])


def test_bounds_that_others_drop(check: Callable[..., None]) -> None:  # JS-05, JS-06
    check({"type": "integer", "maximum": 10}, ["10", "-99"], ["11"])
    check({"type": "number", "exclusiveMinimum": 1.1}, ["1.2", "5"], ["1.1", "1"])
    check({"type": "number", "exclusiveMaximum": 3.0}, ["2.9", "-1"], ["3", "3.0", "3.1"])
    check({"type": "number", "exclusiveMinimum": 0}, ["0.1", "5"], ["0", "-1"])


def test_constants_are_spelled_as_json(check: Callable[..., None]) -> None:  # JS-11
    for value, text, other in ((42, "42", '"42"'), (None, "null", "None"), (True, "true", "True")):
        check({"const": value}, [text], [other])


def test_white_space_ends(compiled: Callable[..., AutomatonConstraint]) -> None:  # JS-17
    """A model that wants only white space gets no more than 8 characters of it at a time, and the record ends."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["a"],
        "additionalProperties": False,
    }
    matcher = compiled(schema, "json_schema_flexible").matcher()
    text = b""
    while not matcher.is_final:
        byte = next((byte for byte in b" \n\t\r" if matcher.allows(byte)), None)
        byte = byte if byte is not None else next(byte for byte in range(256) if matcher.allows(byte))
        matcher.accept(byte)
        text += bytes([byte])
        assert len(text) < 200
    assert b" " * 8 in text
    assert b" " * 9 not in text
    assert json.loads(text) == {"a": 0}


def test_keys_and_values_sent_as_escapes(check: Callable[..., None]) -> None:  # JS-29
    schema = (
        '{"type": "object", "properties": {"ciudad_\\u00f1": {"enum": ["caf\\u00e9", "\\u6771\\u4eac", "\\ud83d\\ude42"]}}, '
        '"required": ["ciudad_\\u00f1"], "additionalProperties": false}'
    )
    good = [json.dumps({"ciudad_ñ": value}, ensure_ascii=False) for value in ("café", "東京", "🙂")]
    check(schema, good, ['{"ciudad_?": "caf?"}', '{"ciudad_ñ": "cafe"}'])
