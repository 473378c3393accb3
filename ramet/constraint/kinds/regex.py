"""The kind "regex": the text is a pattern that the whole output matches."""

from __future__ import annotations

from ramet.constraint.base import Compiled
from ramet.constraint.compiled import AutomatonConstraint
from ramet.constraint.limits import Source
from ramet.constraint.regex import parse_regex
from ramet.constraint.vocabulary import Vocabulary


def compile_regex(source: Source, vocabulary: Vocabulary) -> Compiled:
    """Compile a pattern; `constraint.regex` says which. Raises InvalidConstraint."""
    return AutomatonConstraint(parse_regex(source), source, vocabulary)
