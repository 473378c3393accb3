"""The kinds "int", "float", "bool" and "str" of typed gens: fixed patterns, so they take no text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ramet.constraint.base import Compiled
from ramet.constraint.compiled import AutomatonConstraint
from ramet.constraint.limits import Source
from ramet.constraint.regex import parse_regex
from ramet.constraint.vocabulary import Vocabulary

TYPED_PATTERNS: Final[Mapping[str, str]] = {
    "int": r"[-+]?[0-9]+",
    "float": r"[-+]?[0-9]*\.?[0-9]+",
    "bool": r"(True|False)",
    "str": r'"[\w\d\s]*"',
}


def compile_typed(source: Source, vocabulary: Vocabulary) -> Compiled:
    """Compile the pattern of a type. Raises InvalidConstraint when a text is given."""
    if source.text:
        raise source.error(f"a typed constraint takes no text; use the kind regex for a pattern of your own than {source.kind}'s")
    pattern = Source(source.kind, TYPED_PATTERNS[source.kind], source.limits)
    return AutomatonConstraint(parse_regex(pattern), pattern, vocabulary)
