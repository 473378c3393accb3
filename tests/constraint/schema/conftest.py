"""One way to hold a table of verdicts against a schema, and against the library jsonschema where that is installed."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ramet.constraint.compile import compile_constraint
from ramet.constraint.compiled import AutomatonConstraint
from ramet.constraint.testing import byte_vocabulary
from ramet.constraint.vocabulary import Vocabulary

Check = Callable[..., None]


@pytest.fixture(scope="session")
def bytes_vocabulary() -> Vocabulary:
    return byte_vocabulary()


@pytest.fixture(scope="session")
def compiled(bytes_vocabulary: Vocabulary) -> Callable[..., AutomatonConstraint]:
    """Compile a schema, given as a value or as text, with an automaton of our own."""

    def compile_schema(schema: Any, kind: str = "json_schema") -> AutomatonConstraint:
        text = schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)
        found = compile_constraint(kind, text, bytes_vocabulary)
        assert isinstance(found, AutomatonConstraint), "it went to llguidance"
        return found

    return compile_schema


@pytest.fixture(scope="session")
def is_valid() -> Callable[[Any, str], bool]:
    """The verdict of jsonschema, formats included; without it, True."""
    if importlib.util.find_spec("jsonschema") is None:
        return lambda schema, text: True
    from jsonschema import Draft202012Validator

    return lambda schema, text: Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).is_valid(json.loads(text))


@pytest.fixture(scope="session")
def check(compiled: Callable[..., AutomatonConstraint], is_valid: Callable[[Any, str], bool]) -> Check:
    """Every accepted text is accepted, and valid, every refused one refused."""

    def check_texts(schema: Any, accepted: Iterable[str], refused: Iterable[str], kind: str = "json_schema") -> None:
        automaton = compiled(schema, kind).automaton
        accepted = list(accepted)
        wrong = [text for text in accepted if not automaton.accepts(text.encode())]
        wrong += [text for text in refused if automaton.accepts(text.encode("utf-8", "surrogatepass"))]
        assert wrong == []
        value = json.loads(schema) if isinstance(schema, str) else schema
        assert [text for text in accepted if not is_valid(value, text)] == []

    return check_texts
