"""JSON Schemas that recurse, leave objects open or allow any value, through llguidance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ramet.constraint.base import Compiled
from ramet.constraint.grammar.matcher import GrammarConstraint
from ramet.constraint.grammar.schema import exact_schema
from ramet.constraint.limits import Source
from ramet.constraint.vocabulary import Vocabulary

# Without `u` among them a character has one spelling only; with it llguidance takes a key written with escapes for another key.
_ESCAPES: Final = '"\\bfnrt'
_WHITE_SPACE: Final[Mapping[str, dict[str, Any]]] = {
    "json_schema": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
    "json_schema_compact": {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"},
    "json_schema_flexible": {"whitespace_pattern": r"[ \n\r\t]{0,8}", "item_separator": ",", "key_separator": ":"},
}


def compile_json_grammar(source: Source, schema: dict[str, Any] | bool, vocabulary: Vocabulary) -> Compiled:
    """Compile a schema; `source.kind` chooses the white space.

    Properties come in the order of the schema, then those that it does not name. Strings hold no escapes but quotes, backslash and
    b, f, n, r, t, and no other control character; a number within bounds has no exponent. Raises InvalidConstraint, with the name of the
    keyword, for what is not done exactly.
    """
    return GrammarConstraint([json_grammar(source, schema, source.kind)], source, vocabulary)


def json_grammar(source: Source, schema: dict[str, Any] | bool, kind: str) -> dict[str, Any]:
    """One of the grammars that llguidance takes in a list. Raises InvalidConstraint."""
    exact = exact_schema(schema, source)
    guided: dict[str, Any] = {"allOf": [exact]} if isinstance(exact, bool) else dict(exact)
    guided["x-guidance"] = {**_WHITE_SPACE[kind], "json_allowed_escapes": _ESCAPES, "coerce_one_of": False, "lenient": False}
    return {"json_schema": guided}
