"""The kind "lark": the text is a grammar in llguidance's dialect of Lark, and the output is what its rule `start` matches."""

from __future__ import annotations

from ramet.constraint.base import Compiled
from ramet.constraint.grammar.lark_check import checked_lark, located
from ramet.constraint.grammar.matcher import GrammarConstraint
from ramet.constraint.limits import Source
from ramet.constraint.vocabulary import Vocabulary
from ramet.errors import InvalidConstraint


def compile_lark(source: Source, vocabulary: Vocabulary) -> Compiled:
    """Compile a grammar. Its terminals are greedy: one never ends where it could go on. Raises InvalidConstraint, with line and column."""
    checked = checked_lark(source)
    try:
        return GrammarConstraint([{"lark_grammar": checked}], source, vocabulary)
    except InvalidConstraint as error:
        raise located(error, source) from error
