"""Strings under conditions, and how they are spelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ramet.constraint.limits import Source
from ramet.constraint.schema.elimination import to_tree
from ramet.constraint.schema.formats import SHORT, format_tree
from ramet.constraint.schema.language import Language, both, minus, of_tree, so_long
from ramet.constraint.schema.pattern import Rule
from ramet.constraint.schema.spelling import FREE_CHAR, QUOTE, spelled, spelled_chars
from ramet.constraint.schema.trees import ANY_TEXT, NOTHING, join, repeat, with_length
from ramet.constraint.syntax import Alt, Node, literal


@dataclass(frozen=True, slots=True)
class Conditions:
    """What must hold for a string: its length in code points, patterns, formats, and the values it must not have."""

    low: int = 0
    high: int | None = None
    rules: tuple[Rule, ...] = ()
    formats: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def is_free(self) -> bool:
        """Whether only the length counts."""
        return not (self.rules or self.formats or self.excluded)

    def all_rules(self) -> list[Rule]:
        """The conditions but the length, in one form; the format's short form where the length would be too much to count."""
        rules = list(self.rules)
        for name in dict.fromkeys(self.formats):
            most = self.high if name in SHORT and self.high is not None and self.high >= SHORT[name][1] else None
            rules.append(Rule(format_tree(name, most)))
        if self.excluded:
            rules.append(Rule(Alt(tuple(map(literal, self.excluded))), is_excluded=True))
        return rules


def string_tree(source: Source, conditions: Conditions, made: list[Node]) -> Node:
    """The JSON texts of the strings, with their quotes; NOTHING when there is none. Raises TooLarge."""
    if conditions.is_free:
        return join(QUOTE, repeat(FREE_CHAR, conditions.low, conditions.high), QUOTE)
    return join(QUOTE, inner_tree(source, conditions, made), QUOTE)


def inner_tree(source: Source, conditions: Conditions, made: list[Node]) -> Node:
    """The same without quotes, each character in its one spelling."""
    if conditions.is_free:
        return repeat(spelled_chars(((0, 0x10FFFF),)), conditions.low, conditions.high)
    rules = conditions.all_rules()
    if len(rules) == 1 and not rules[0].is_excluded and rules[0].node is not NOTHING:
        tree = with_length(rules[0].node, conditions.low, conditions.high)
        if tree is not None:
            return spelled(tree)
    return to_tree(source, _language(source, rules, conditions.low, conditions.high), spelled_chars, made)


def string_language(source: Source, conditions: Conditions) -> Language:
    """The strings themselves. Raises TooLarge."""
    return _language(source, conditions.all_rules(), conditions.low, conditions.high)


def key_tree(source: Source, keys: Language, made: list[Node]) -> Node:
    """The JSON texts of the keys of a language."""
    return join(QUOTE, to_tree(source, keys, spelled_chars, made), QUOTE)


def _language(source: Source, rules: Sequence[Rule], low: int, high: int | None) -> Language:
    wanted = [rule.node for rule in rules if not rule.is_excluded] or [ANY_TEXT]
    found = of_tree(source, wanted[0])
    for node in wanted[1:]:
        found = both(source, found, of_tree(source, node))
    for rule in rules:
        if rule.is_excluded:
            found = minus(source, found, of_tree(source, rule.node))
    return found if (low, high) == (0, None) else so_long(source, found, low, high)


def everything(source: Source) -> Language:
    """The language of all strings."""
    return of_tree(source, ANY_TEXT)
