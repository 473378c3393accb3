r"""Patterns and formats of a JSON Schema as patterns for llguidance.

llguidance reads patterns as Rust does (`[a&&b]` is an intersection there) and passes over formats that it does not know, so it gets only
sets and repetitions, written from the reading that the schemas of the automaton have too.
"""

from __future__ import annotations

from ramet.constraint.grammar.regex_text import regex_text
from ramet.constraint.grammar.rules import Choice, Expr, Row, Times, char, without_dead_ends
from ramet.constraint.limits import Source
from ramet.constraint.schema.formats import format_tree
from ramet.constraint.schema.pattern import read_pattern
from ramet.constraint.syntax import Alt, Chars, Node, Repeat, Seq


def normal_patterns(pattern: str, path: str, source: Source) -> list[str]:
    """Anchored patterns for llguidance, all of which must match. Raises InvalidConstraint naming the pattern."""
    rules = read_pattern(source, path, pattern)
    if any(rule.is_excluded for rule in rules):
        raise source.error(
            f"{path}: in the pattern {pattern!r}: negative look-ahead is not offered in a schema that recurses or leaves objects open"
        )
    return [_anchored(rule.node, f"the pattern {pattern!r}", path, source) for rule in rules]


def format_pattern(name: str, path: str, source: Source) -> str:
    """An anchored pattern for llguidance that matches what the format does."""
    return _anchored(format_tree(name), f"the format {name}", path, source)


def _anchored(node: Node, what: str, path: str, source: Source) -> str:
    tree = without_dead_ends({"": _expr(node)})[""]
    if isinstance(tree, Choice) and not tree.options:
        raise source.error(f"{path}: {what} matches no string")
    text = regex_text(tree)
    if len(text) > source.limits.max_text_bytes:
        raise source.error(f"{path}: {what} takes {len(text)} bytes, more than the limit of {source.limits.max_text_bytes}")
    return f"^(?:{text})$"


def _expr(node: Node) -> Expr:
    if isinstance(node, Chars):
        return char(node.ranges)
    if isinstance(node, Seq):
        return Row(tuple(map(_expr, node.parts)))
    if isinstance(node, Alt):
        return Choice(tuple(map(_expr, node.options)))
    assert isinstance(node, Repeat), "the anchors are gone"
    return Times(_expr(node.body), node.min_count, node.max_count)
