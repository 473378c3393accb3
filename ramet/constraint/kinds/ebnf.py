"""The kind "ebnf": the text is a grammar as llama.cpp writes it (GBNF), and the output is what its rule `root` matches."""

from __future__ import annotations

from ramet.constraint.base import Compiled
from ramet.constraint.grammar.ebnf import gbnf_to_lark
from ramet.constraint.grammar.matcher import GrammarConstraint
from ramet.constraint.limits import Source
from ramet.constraint.vocabulary import Vocabulary


def compile_ebnf(source: Source, vocabulary: Vocabulary) -> Compiled:
    """Compile a grammar; `constraint.grammar.gbnf` says what it looks like. Raises InvalidConstraint, with line and column."""
    return GrammarConstraint([{"lark_grammar": gbnf_to_lark(source)}], source, vocabulary)
