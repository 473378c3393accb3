"""From the text of a GBNF grammar to one that llguidance parses exactly."""

from __future__ import annotations

from typing import Final

from ramet.constraint.grammar.deep import check_depth
from ramet.constraint.grammar.gbnf import parse_gbnf
from ramet.constraint.grammar.lark_text import lark_text
from ramet.constraint.grammar.lexemes import plan_pieces
from ramet.constraint.grammar.rules import Choice, depth_of, reachable, regular_rules, substituted, without_dead_ends
from ramet.constraint.limits import Source

ROOT: Final = "root"
_MAX_REGULAR_SIZE: Final = 5_000  # nodes of a rule that is written out where it is used
_MAX_REGULAR_DEPTH: Final = 100


def gbnf_to_lark(source: Source) -> str:
    """The grammar for llguidance. Raises InvalidConstraint for what `parse_gbnf` refuses, and when no text matches."""
    try:
        return _converted(source)
    except RecursionError as error:
        raise source.error("its brackets and repetitions nest too deep") from error


def _converted(source: Source) -> str:
    rules = without_dead_ends(reachable(parse_gbnf(source, ROOT), ROOT))
    root = rules[ROOT]
    if isinstance(root, Choice) and not root.options:
        raise source.error("no text matches the rule root: each of its options needs a rule that needs itself, or a character that is none")
    regular = regular_rules(rules, _MAX_REGULAR_SIZE, _MAX_REGULAR_DEPTH)
    kept = reachable({name: substituted(expr, regular) for name, expr in rules.items()}, ROOT)
    check_depth(sum(1 + depth_of(expr, dict.fromkeys(kept, 0)) for expr in kept.values()), source)
    return lark_text(plan_pieces(kept, source), ROOT)
