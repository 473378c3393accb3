"""The kinds "json_schema", "json_schema_compact" and "json_schema_flexible": the text is a JSON Schema, the output a value of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ramet.constraint.base import Compiled
from ramet.constraint.compiled import AutomatonConstraint
from ramet.constraint.limits import Source
from ramet.constraint.schema.build import schema_for_grammar, schema_tree
from ramet.constraint.schema.sites import NeedsGrammar
from ramet.constraint.vocabulary import Vocabulary

_UNCOUNTED: Final = 1 << 1_000_000  # parts are shared, and what they come to is limited while they are made: written out it means nothing


def compile_json_schema(source: Source, vocabulary: Vocabulary) -> Compiled:
    """Compile a schema of draft 2020-12; `docs/constraints.md` says what it may ask for.

    An automaton of our own where that is enough; a schema that recurses, or leaves an object or a value open, goes to llguidance.
    Raises InvalidConstraint, with the pointer of the place, for what is no schema, not done exactly, or satisfied by no value.
    """
    try:
        tree = schema_tree(source)
    except NeedsGrammar:
        from ramet.constraint.grammar.json import compile_json_grammar

        return compile_json_grammar(source, schema_for_grammar(source), vocabulary)
    return AutomatonConstraint(tree, Source(source.kind, source.text, replace(source.limits, max_nfa_states=_UNCOUNTED)), vocabulary)
