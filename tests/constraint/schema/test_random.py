"""Random schemas: every text along a random path is JSON and valid, and no invalid value is let through. jsonschema is the judge."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.constraint.automaton import DEAD, Automaton
from ramet.constraint.compile import compile_constraint
from ramet.constraint.compiled import AutomatonConstraint
from ramet.constraint.testing import byte_vocabulary
from ramet.errors import InvalidConstraint

pytest.importorskip("jsonschema")

VOCABULARY = byte_vocabulary()
SEPARATORS = {"json_schema": (", ", ": "), "json_schema_compact": (",", ":"), "json_schema_flexible": (",", ":")}
NAMES = ["a", "b", "c", "ab", "x-1"]
PATTERNS = ["^a", "b\\Z", "^[ab]+\\Z", "a|b", "^(a|b)*\\Z", "(^|-)a", "a{2,3}", "[0-9]"]  # read alike by Python and ECMA
VALUES = ["a", "b", "ab", 1, 2, -3, True, False, None, 2.5, ["a"], {"a": 1}, 'é"']
ATOMS = st.sampled_from(["a", "b", "ab", "aa", "", 'é"', 1, 2, -3, 0, 14, 2.5, -1.25, True, False, None, "2020-02-29", "1.2.3.4"])


def some(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keywords)


def typed(kind: str, **keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return some(**keywords).map(lambda found: {"type": kind, **found})


BOUND = st.one_of(st.integers(-20, 20), st.integers(-200, 200).map(lambda number: number / 10))
BOUNDS = dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), BOUND)
SCALARS = st.one_of(
    typed("string", minLength=st.integers(0, 3), maxLength=st.integers(1, 5), pattern=st.sampled_from(PATTERNS)),
    typed("string", format=st.sampled_from(["date", "ipv4", "ipv6", "uuid", "time"])),
    typed("integer", **BOUNDS, multipleOf=st.sampled_from([1, 2, 3, 5, 7])),
    typed("number", **BOUNDS, multipleOf=st.sampled_from([1, 2, 5])),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=4).map(lambda values: {"enum": values}),
    st.lists(st.sampled_from(["string", "integer", "null", "boolean"]), min_size=1, unique=True).map(lambda types: {"type": types}),
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    size = st.integers(0, 3)
    objects = typed(
        "object",
        properties=st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        required=st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
        additionalProperties=st.one_of(st.just(False), SCALARS),
        patternProperties=st.dictionaries(st.sampled_from(["^x-", "a", "b\\Z"]), SCALARS, max_size=1),
        minProperties=size,
        maxProperties=size,
        propertyNames=st.sampled_from([{"maxLength": 2}, {"pattern": "^[a-z]"}, {"enum": ["a", "b"]}]),
        dependentRequired=st.just({"a": ["b"]}),
    )
    arrays = typed(
        "array",
        items=st.one_of(inner, st.just(False)),
        prefixItems=st.lists(inner, min_size=1, max_size=2),
        minItems=size,
        maxItems=size,
        uniqueItems=st.booleans(),
        contains=SCALARS,
    )
    several = st.lists(inner, min_size=1, max_size=2)
    combined = st.sampled_from(["anyOf", "allOf", "oneOf"]).flatmap(lambda name: several.map(lambda options: {name: options}))
    negated = st.tuples(SCALARS, SCALARS).map(lambda pair: {**pair[0], "not": pair[1]})
    chosen = st.tuples(objects, SCALARS, objects).map(
        lambda parts: {**parts[0], "if": {"properties": {"a": parts[1]}, "required": ["a"]}, "then": parts[2]}
    )
    return st.one_of(objects, objects, arrays, combined, negated, chosen)


SCHEMAS = st.recursive(SCALARS, containers, max_leaves=6)
INSTANCES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)),
    max_leaves=6,
)


def random_text(automaton: Automaton, rng: random.Random, num_bytes: int) -> bytes | None:
    """A text along a random path, then on the shortest way to the end; None where that is far."""
    state, text = 0, bytearray()
    for _ in range(num_bytes):
        ranges = automaton.next_bytes(state)
        if automaton.is_accepting(state) and (not ranges or rng.random() < 0.3):
            return bytes(text)
        closing = [byte for byte in b'"}],' if any(low <= byte <= high for low, high in ranges)]
        low, high = rng.choice(ranges)
        byte = closing[0] if closing and rng.random() < 0.35 else rng.choice([low, high, rng.randint(low, high)])
        state = automaton.step(state, byte)
        assert state != DEAD
        text.append(byte)
    before: dict[int, tuple[int, int] | None] = {state: None}
    todo = [state]
    for at in todo:
        if automaton.is_accepting(at):
            tail = bytearray()
            step = before[at]
            while step is not None:
                tail.append(step[1])
                step = before[step[0]]
            return bytes(text + tail[::-1])
        if len(todo) > 2000:
            return None
        for low, high in automaton.next_bytes(at):
            for byte in {low, high}:
                target = automaton.step(at, byte)
                if target not in before:
                    before[target] = (at, byte)
                    todo.append(target)
    raise AssertionError("no way leads to the end")


@settings(derandomize=True, max_examples=300, deadline=None)
@given(SCHEMAS, st.sampled_from(sorted(SEPARATORS)), st.lists(INSTANCES, max_size=6), st.integers(0, 2**32))
def test_what_is_accepted_is_valid(schema: Any, kind: str, instances: list[Any], seed: int) -> None:
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    try:
        compiled = compile_constraint(kind, json.dumps(schema), VOCABULARY)
    except InvalidConstraint as error:
        if "no value satisfies" in error.why:
            assert not any(map(validator.is_valid, instances))
        return
    if not isinstance(compiled, AutomatonConstraint):
        return
    rng = random.Random(seed)
    for num_bytes in (5, 30, 100):
        text = random_text(compiled.automaton, rng, num_bytes)
        if text is not None:
            assert compiled.automaton.accepts(text)
            assert validator.is_valid(json.loads(text)), text
    for instance in instances:
        text = json.dumps(instance, separators=SEPARATORS[kind], ensure_ascii=False).encode()
        assert not compiled.automaton.accepts(text) or validator.is_valid(instance), text


@settings(derandomize=True, max_examples=60, deadline=None)
@given(SCALARS, st.lists(ATOMS, min_size=4))
def test_scalars_are_exact_both_ways(schema: Any, instances: list[Any]) -> None:
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    text = json.dumps(schema)
    accepts: Callable[[bytes], bool] = lambda data: False  # noqa: E731
    try:
        compiled = compile_constraint("json_schema", text, VOCABULARY)
        assert isinstance(compiled, AutomatonConstraint)
        accepts = compiled.automaton.accepts
    except InvalidConstraint as error:
        assert "no value satisfies" in error.why
    for instance in instances:
        assert accepts(json.dumps(instance, ensure_ascii=False).encode()) == validator.is_valid(instance), instance
