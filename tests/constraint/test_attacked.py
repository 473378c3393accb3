"""What hostile users found: each of these once took memory, time or other people's requests."""

from __future__ import annotations

import json
import time

import pytest

from ramet.constraint.compile import ConstraintCache, compile_constraint
from ramet.constraint.testing import accepts, byte_vocabulary
from ramet.errors import InvalidConstraint


def test_many_triggers_do_not_cost_their_square() -> None:
    def seconds(num_tags: int) -> float:
        tags = [{"begin": f"<tag{number}>", "schema": {"type": "boolean"}, "end": "</>"} for number in range(num_tags)]
        triggers = [tag["begin"] for tag in tags]
        start_s = time.process_time()
        text = json.dumps({"type": "structural_tag", "structures": tags, "triggers": triggers})
        compile_constraint("structural_tag", text, byte_vocabulary())
        return time.process_time() - start_s

    seconds(2)
    assert seconds(64) < 40 * max(seconds(8), 0.005)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("choice", '["a", ' + "1" * 5000 + "]"),
        ("choice", '["a", NaN]'),
        ("structural_tag", '{"type": "structural_tag", "type": "structural_tag", "structures": [], "triggers": []}'),
        ("structural_tag", '{"type": "structural_tag", "structures": ' + "9" * 5000 + "}"),
        ("lark", 'start: %json {"const": ' + "7" * 5000 + "}"),
        ("lark", "start: %json " + "[" * 5000),
        ("json_schema", '{"const": ' + "7" * 5000 + "}"),
    ],
    ids=["long number", "nan", "key twice", "number in a tag", "number in lark", "deep in lark", "number in a schema"],
)
def test_json_inside_constraints_is_read_with_limits(kind: str, text: str) -> None:
    with pytest.raises(InvalidConstraint):
        compile_constraint(kind, text, byte_vocabulary())


def test_a_cache_of_constraints_holds_no_more_bytes_than_allowed() -> None:
    vocabulary = byte_vocabulary()
    pattern = "(" + "a" * 200 + "){2}"
    first = compile_constraint("regex", pattern, vocabulary, cache=ConstraintCache())
    cache = ConstraintCache(max_bytes=3 * first.num_bytes)
    first = compile_constraint("regex", pattern, vocabulary, cache=cache)
    for number in range(8):
        compile_constraint("regex", f"{number}{pattern}", vocabulary, cache=cache)
    assert 1 <= len(cache) <= 3
    assert compile_constraint("regex", pattern, vocabulary, cache=cache) is not first


@pytest.mark.parametrize(
    ("schema", "yes", "no"),
    [
        ({"type": "number", "not": {"type": "integer"}}, ["0.5", "-123456789.25"], ["9007199254740993.5", "12345678.9999999999999", "3.0"]),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, ["1.5"], ["305004008000007000.0001", "7"]),
        ({"type": "number", "not": {"type": "integer"}, "maximum": -1e12}, ["-1234567890123.25"], ["-12345678901234567.5"]),
        ({"type": "number", "not": {"type": "integer"}, "maximum": 0.1234568, "minimum": 0.12345678}, ["0.12345679"], ["0.12345677"]),
    ],
)
def test_a_number_that_is_not_whole_is_none_for_readers_of_doubles(schema: object, yes: list[str], no: list[str]) -> None:
    assert [text for text in yes + no if accepts("json_schema", json.dumps(schema), text)] == yes
    assert not any(float(text).is_integer() for text in yes)
